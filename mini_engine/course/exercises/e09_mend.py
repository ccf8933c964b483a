"""Lesson 09, find the bug: what the broken allocator finds again, and what a refused prompt leaves behind."""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from typing import Any

from mini_engine.course.broken_allocator import Block, BlockAllocator, Sequence
from mini_engine.course.defects.labs import STILL_WORKS, allocator_works, cured
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises.mend09_model import any_calls


class MendedPrefixes(BlockAllocator):
    """The allocator that gives up tails first, names what decoding fills, and starts a prompt wholly or not at all."""

    def release(self, sequence: Sequence) -> None:
        for block in reversed(sequence.blocks):
            block.ref_count -= 1
            if block.ref_count == 0:
                self.free[block.number] = block

    def append(self, sequence: Sequence, token: int) -> None:
        super().append(sequence, token)
        last = sequence.blocks[-1]
        parent = sequence.blocks[-2].digest if len(sequence.blocks) > 1 else 0
        if len(last.tokens) == self.block_size and parent is not None:
            last.digest = self.digest(parent, last.tokens)
            self.by_digest[last.digest] = last

    def start(self, prompt: Tokens[int]) -> Sequence:
        hits, parent, size = [], 0, self.block_size
        for first in range(0, len(prompt) // size * size, size):
            parent = self.digest(parent, prompt[first : first + size])
            block = self.by_digest.get(parent)
            if block is None:
                break
            hits.append(block)
        needed = -(-len(prompt) // size) - len(hits) + sum(block.ref_count == 0 for block in hits)
        if needed > len(self.free):
            raise MemoryError(f"{needed} blocks needed, {len(self.free)} free")
        return super().start(prompt)


class _UndoesTheStart(MendedPrefixes):
    """Another right answer: try, and put everything back."""

    def release(self, sequence: Sequence) -> None:
        super(MendedPrefixes, self).release(Sequence(list(reversed(sequence.blocks))))

    def start(self, prompt: Tokens[int]) -> Sequence:
        known = {**self.free, **{block.number: block for block in self.by_digest.values()}}
        before = [(block, block.ref_count, block.tokens, block.digest) for block in known.values()]
        order, names = list(self.free), dict(self.by_digest)
        try:
            return BlockAllocator.start(self, prompt)
        except MemoryError:
            for block, ref_count, tokens, digest in before:
                block.ref_count, block.tokens, block.digest = ref_count, tokens, digest
            self.free.clear()
            self.free.update((number, known[number]) for number in order)
            self.by_digest = names
            raise


class _KeepsTheFirstTwin(MendedPrefixes):
    """Another right answer: where a block with this name is there already, that one stays findable."""

    def append(self, sequence: Sequence, token: int) -> None:
        BlockAllocator.append(self, sequence, token)
        if len(sequence.blocks[-1].tokens) == self.block_size:
            name = 0
            for block in sequence.blocks:
                name = self.digest(name, block.tokens)
            sequence.blocks[-1].digest = name
            self.by_digest.setdefault(name, sequence.blocks[-1])


class _HeadFirst(MendedPrefixes):
    def release(self, sequence: Sequence) -> None:
        BlockAllocator.release(self, sequence)


class _BlankAtRelease(MendedPrefixes):
    def release(self, sequence: Sequence) -> None:
        super().release(sequence)
        for block in sequence.blocks:
            if block.digest is not None:
                self.by_digest.pop(block.digest, None)


class _WithoutItsParent(MendedPrefixes):
    def append(self, sequence: Sequence, token: int) -> None:
        BlockAllocator.append(self, sequence, token)
        last = sequence.blocks[-1]
        if len(last.tokens) == self.block_size:
            last.digest = self.digest(1, last.tokens)
            self.by_digest[last.digest] = last


class _DecodingUnnamed(MendedPrefixes):
    def append(self, sequence: Sequence, token: int) -> None:
        BlockAllocator.append(self, sequence, token)


class _CountsTheWholePrompt(MendedPrefixes):
    def start(self, prompt: Tokens[int]) -> Sequence:
        if -(-len(prompt) // self.block_size) > len(self.free):
            raise MemoryError("too long")
        return super().start(prompt)


class _FreesWhatItTook(MendedPrefixes):
    """Gives the new blocks back, and forgets those that it hit."""

    def start(self, prompt: Tokens[int]) -> Sequence:
        taken: list[Block] = []
        take = self._take

        def noting() -> Block:
            taken.append(take())
            return taken[-1]

        self._take = noting  # type: ignore[method-assign]
        try:
            return BlockAllocator.start(self, prompt)
        except MemoryError:
            self.release(Sequence(taken))
            raise
        finally:
            del self._take


class _ZeroHolders(MendedPrefixes):
    def release(self, sequence: Sequence) -> None:
        for block in reversed(sequence.blocks):
            block.ref_count = 0
            self.free[block.number] = block


class _ToTheFront(MendedPrefixes):
    def release(self, sequence: Sequence) -> None:
        for block in sequence.blocks:
            block.ref_count -= 1
            if block.ref_count == 0:
                self.free[block.number] = block
                self.free.move_to_end(block.number, last=False)


class _EachBlockAsTheFirst(MendedPrefixes):
    def append(self, sequence: Sequence, token: int) -> None:
        BlockAllocator.append(self, sequence, token)
        last = sequence.blocks[-1]
        if len(last.tokens) == self.block_size:
            last.digest = self.digest(0, last.tokens)
            self.by_digest[last.digest] = last


class _LeavesTheTwinUnnamed(MendedPrefixes):
    def append(self, sequence: Sequence, token: int) -> None:
        BlockAllocator.append(self, sequence, token)
        last = sequence.blocks[-1]
        if len(last.tokens) == self.block_size:
            parent: Any = sequence.blocks[-2].digest if len(sequence.blocks) > 1 else 0
            digest = self.digest(parent, last.tokens)
            if digest not in self.by_digest:
                last.digest = digest
                self.by_digest[digest] = last


class _OneTokenLate(MendedPrefixes):
    def append(self, sequence: Sequence, token: int) -> None:
        last = sequence.blocks[-1]
        if len(last.tokens) == self.block_size and last.digest is None:
            parent = sequence.blocks[-2].digest if len(sequence.blocks) > 1 else 0
            last.digest = self.digest(parent or 0, last.tokens)
            self.by_digest[last.digest] = last
        BlockAllocator.append(self, sequence, token)


class _RoundsDown(MendedPrefixes):
    """Counts the full blocks only."""

    def start(self, prompt: Tokens[int]) -> Sequence:
        size = self.block_size
        hits = self.hits(prompt)
        if len(prompt) // size - len(hits) + sum(block.ref_count == 0 for block in hits) > len(self.free):
            raise MemoryError("too long")
        return BlockAllocator.start(self, prompt)

    def hits(self, prompt: Tokens[int]) -> list[Block]:
        hits, parent, size = [], 0, self.block_size
        for first in range(0, len(prompt) // size * size, size):
            parent = self.digest(parent, prompt[first : first + size])
            if parent not in self.by_digest:
                break
            hits.append(self.by_digest[parent])
        return hits


class _HitsAreFree(_RoundsDown):
    """Forgets that a hit may lie among the free blocks."""

    def start(self, prompt: Tokens[int]) -> Sequence:
        if -(-len(prompt) // self.block_size) - len(self.hits(prompt)) > len(self.free):
            raise MemoryError("too long")
        return BlockAllocator.start(self, prompt)


class _HitsBehindAMiss(_RoundsDown):
    """Counts what has a name, also behind the first miss."""

    def start(self, prompt: Tokens[int]) -> Sequence:
        needed, parent, size = 0, 0, self.block_size
        for first in range(0, len(prompt), size):
            tokens = prompt[first : first + size]
            parent = self.digest(parent, tokens)
            block = self.by_digest.get(parent) if len(tokens) == size else None
            needed += block is None or block.ref_count == 0
        if needed > len(self.free):
            raise MemoryError("too long")
        return BlockAllocator.start(self, prompt)


class _GivesBackTheHolds(MendedPrefixes):
    """Tries, and gives back what it held; the names that it entered stay, and those that it took are lost."""

    def start(self, prompt: Tokens[int]) -> Sequence:
        before = list(self.free.values())
        try:
            return BlockAllocator.start(self, prompt)
        except MemoryError:
            for block in before:
                block.ref_count = 0
            self.free.clear()
            self.free.update((block.number, block) for block in before)
            raise


ANY = "any calls: what is held, findable and free is right"
TAILS, DECODED = "the head of a prompt outlives its tail", "what decoding fills is found again"
WHOLE = "a refused prompt leaves nothing behind"

MEND_PREFIXES = Exercise(
    id="09.mend",
    title="A cache that forgets the right things",
    reference=MendedPrefixes,
    properties=[
        Property(STILL_WORKS, allocator_works),
        cured("the head of a prompt goes first", TAILS),
        cured("blocks filled by decoding are lost to the cache", DECODED),
        cured("a refused prompt keeps what it took", WHOLE),
        Property(ANY, any_calls),
    ],
    budget=6_000_000,
    mutants=[
        Mutant("as it was", BlockAllocator, TAILS, "Three methods, three bugs."),
        Mutant("head first", _HeadFirst, TAILS, "Without its head, a prompt is not found."),
        Mutant("decoding unnamed", _DecodingUnnamed, DECODED, "A block is full when its last token comes, whoever brings it."),
        Mutant("a name without its parent", _WithoutItsParent, DECODED, "The name is made of all that came before."),
        Mutant("frees what it took, not what it hit", _FreesWhatItTook, WHOLE, "A hit is a hold, too."),
        Mutant("hits count as new blocks", _CountsTheWholePrompt, STILL_WORKS, "A hit needs no new block."),
        Mutant("free, whoever else holds it", _ZeroHolders, ANY, "A block is free when its last holder has gone."),
        Mutant("to the front of the queue", _ToTheFront, ANY, "What was freed last is reused last."),
        Mutant("each block as the first", _EachBlockAsTheFirst, ANY, "The parent of the second block is the first block's digest."),
        Mutant("leaves a twin unnamed", _LeavesTheTwinUnnamed, ANY, "The next block needs the name of its parent, twin or not."),
        Mutant("one token late", _OneTokenLate, ANY, "The block is full now, whether or not another token comes."),
        Mutant("counts full blocks only", _RoundsDown, ANY, "The last tokens need a block of their own."),
        Mutant("a hit needs no room", _HitsAreFree, WHOLE, "A hit that nobody holds lies in the queue: taking it makes that one shorter."),
        Mutant("hits behind a miss", _HitsBehindAMiss, ANY, "A start stops at the first miss, and takes new blocks from there on."),
        Mutant("gives back the holds only", _GivesBackTheHolds, ANY, "Taking a block has wiped its name. Count first, then take."),
        Mutant("forgets at release", _BlankAtRelease, STILL_WORKS, "Free blocks are where the cache lives."),
    ],
    alternatives=[_UndoesTheStart, _KeepsTheFirstTwin],
)  # fmt: skip
