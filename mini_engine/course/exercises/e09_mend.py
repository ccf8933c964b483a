"""Lesson 09, find the bug: what the broken allocator finds again, and what a refused prompt leaves behind."""

from __future__ import annotations

from collections.abc import Sequence as Tokens

from mini_engine.course.broken_allocator import Block, BlockAllocator, Sequence
from mini_engine.course.defects.labs import STILL_WORKS, allocator_works, cured
from mini_engine.course.exercise import Exercise, Mutant, Property


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
    ],
    mutants=[
        Mutant("as it was", BlockAllocator, TAILS, "Three methods, three bugs."),
        Mutant("head first", _HeadFirst, TAILS, "Without its head, a prompt is not found."),
        Mutant("decoding unnamed", _DecodingUnnamed, DECODED, "A block is full when its last token comes, whoever brings it."),
        Mutant("a name without its parent", _WithoutItsParent, DECODED, "The name is made of all that came before."),
        Mutant("frees what it took, not what it hit", _FreesWhatItTook, WHOLE, "A hit is a hold, too."),
        Mutant("hits count as new blocks", _CountsTheWholePrompt, STILL_WORKS, "A hit needs no new block."),
        Mutant("forgets at release", _BlankAtRelease, STILL_WORKS, "Free blocks are where the cache lives."),
    ],
    alternatives=[_UndoesTheStart],
)  # fmt: skip
