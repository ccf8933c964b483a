"""One small mend for each defect of the broken allocator, alone: for teachers, and as what a lab goes on with.

Each is the broken class with as little overridden as cures that one defect. Some of them would be written otherwise if
all were mended at once; the engine's `cache` is how that looks.
"""

from __future__ import annotations

from collections.abc import Sequence as Tokens

from mini_engine.course.broken_allocator import Block, BlockAllocator, Sequence


class NoticesSecondRelease(BlockAllocator):
    def release(self, sequence: Sequence) -> None:
        if any(block.ref_count < 1 for block in sequence.blocks):
            raise ValueError("this sequence was released before")
        super().release(sequence)


class EmptiesTheTable(BlockAllocator):
    def release(self, sequence: Sequence) -> None:
        super().release(sequence)
        sequence.blocks = []


class GrowsFromNothing(BlockAllocator):
    def append(self, sequence: Sequence, token: int) -> None:
        if not sequence.blocks:
            sequence.blocks.append(self._take())
        super().append(sequence, token)


class PlansTheStart(BlockAllocator):
    """Counts before it takes, and answers whoever asks first."""

    def can_start(self, prompt: Tokens[int]) -> bool:
        size, parent, hits = self.block_size, 0, []
        for first in range(0, len(prompt) // size * size, size):
            parent = self.digest(parent, prompt[first : first + size])
            if parent not in self.by_digest:
                break
            hits.append(self.by_digest[parent])
        num_new = -(-len(prompt) // size) - len(hits)
        return num_new <= len(self.free) - sum(block.ref_count == 0 for block in hits)

    def start(self, prompt: Tokens[int]) -> Sequence:
        if not self.can_start(prompt):
            raise MemoryError(f"no room for {len(prompt)} tokens, {len(self.free)} blocks are free")
        return super().start(prompt)


class Forks(BlockAllocator):
    def fork(self, sequence: Sequence) -> Sequence:
        for block in sequence.blocks:
            self._hold(block)
        return Sequence(list(sequence.blocks))


class TakesFirst(BlockAllocator):
    def append(self, sequence: Sequence, token: int) -> None:
        last = sequence.blocks[-1]
        if last.ref_count > 1 and len(last.tokens) < self.block_size:
            copy = self._take()
            copy.tokens = list(last.tokens)
            last.ref_count -= 1
            sequence.blocks[-1] = copy
        super().append(sequence, token)


class TellsOfCopies(BlockAllocator):
    def append(self, sequence: Sequence, token: int) -> list[tuple[int, int]]:  # type: ignore[override]
        before = sequence.table
        super().append(sequence, token)
        return [(src, dst) for src, dst in zip(before, sequence.table) if src != dst]


class NamesWhatDecodingFills(BlockAllocator):
    def append(self, sequence: Sequence, token: int) -> None:
        super().append(sequence, token)
        last, *earlier = reversed(sequence.blocks)
        parent = earlier[0].digest if earlier else 0
        if len(last.tokens) == self.block_size and parent is not None:
            last.digest = self.digest(parent, last.tokens)
            self.by_digest[last.digest] = last


class TailFirst(BlockAllocator):
    def release(self, sequence: Sequence) -> None:
        super().release(Sequence(sequence.blocks[::-1]))


class LeavesOneToCompute(BlockAllocator):
    def start(self, prompt: Tokens[int]) -> Sequence:
        sequence = super().start(prompt[:-1])
        if len(prompt) == 1:
            sequence.blocks.append(self._take())
        for token in prompt[-1:]:
            self.append(sequence, token)
        return sequence


class NamesWhatIsComputed(BlockAllocator):
    """`computed` is called after the forward pass."""

    def start(self, prompt: Tokens[int]) -> Sequence:
        known = dict(self.by_digest)
        sequence = super().start(prompt)
        for block in sequence.blocks:
            if block.digest is not None and known.get(block.digest) is not block:
                del self.by_digest[block.digest]
                older = known.get(block.digest)
                if older is not None and older.digest == block.digest:
                    self.by_digest[block.digest] = older
        return sequence

    def computed(self, sequence: Sequence) -> None:
        self.by_digest.update((block.digest, block) for block in sequence.blocks if block.digest is not None)


class LooksAtTheTokens(BlockAllocator):
    def start(self, prompt: Tokens[int]) -> Sequence:
        for token in prompt:
            if not 0 <= token < 2**32:
                raise ValueError(f"token {token} is not in 0 .. 2**32 - 1")
        return super().start(prompt)


class ComparesTheTokens(BlockAllocator):
    """A prompt that meets other content under one of its names is computed whole, and not entered."""

    def start(self, prompt: Tokens[int]) -> Sequence:
        everything, size, parent = self.by_digest, self.block_size, 0
        for first in range(0, len(prompt) // size * size, size):
            tokens = list(prompt[first : first + size])
            parent = self.digest(parent, tokens)
            if parent in everything and everything[parent].tokens != tokens:
                break
        else:
            return super().start(prompt)
        self.by_digest = {}
        sequence = super().start(prompt)
        self.by_digest = everything
        for block in sequence.blocks:
            block.digest = None
        return sequence


class SaltsTheNames(BlockAllocator):
    root = 0

    def digest(self, parent: int, tokens: Tokens[int]) -> int:
        return super().digest(parent or self.root, tokens)

    def start(self, prompt: Tokens[int], cache_salt: str = "") -> Sequence:
        self.root = super().digest(0, list(cache_salt.encode())) if cache_salt else 0
        return super().start(prompt)


class EvictsItsOwnName(BlockAllocator):
    def _take(self) -> Block:
        for block in list(self.free.values())[:1]:
            if block.digest is not None and self.by_digest.get(block.digest) is not block:
                block.digest = None
        return super()._take()


class BlankFirst(BlockAllocator):
    def release(self, sequence: Sequence) -> None:
        super().release(sequence)
        for block in sequence.blocks:
            if block.ref_count == 0 and block.digest is None:
                self.free.move_to_end(block.number, last=False)


ALLOCATOR_MENDS: dict[str, type[BlockAllocator]] = {
    "a second release goes unnoticed": NoticesSecondRelease,
    "a late release takes a block from its new owner": EmptiesTheTable,
    "a released sequence still has its blocks": EmptiesTheTable,
    "an empty prompt cannot grow": GrowsFromNothing,
    "nobody can ask first": PlansTheStart,
    "nothing can be shared on purpose": Forks,
    "a copy gives up the shared block first": TakesFirst,
    "nobody is told of a copy": TellsOfCopies,
    "a refused prompt keeps what it took": PlansTheStart,
    "blocks filled by decoding are lost to the cache": NamesWhatDecodingFills,
    "the head of a prompt goes first": TailFirst,
    "a full hit leaves nothing to compute": LeavesOneToCompute,
    "a block is found before it is computed": NamesWhatIsComputed,
    "a token out of range stops halfway": LooksAtTheTokens,
    "a name is believed": ComparesTheTokens,
    "one cache for all tenants": SaltsTheNames,
    "an evicted twin takes the name along": EvictsItsOwnName,
    "blank blocks wait behind cached ones": BlankFirst,
}
