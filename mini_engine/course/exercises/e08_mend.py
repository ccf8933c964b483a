"""Lesson 08, find the bug: copy on write of the broken allocator."""

from __future__ import annotations

from mini_engine.course.broken_allocator import BlockAllocator, Sequence
from mini_engine.course.defects.labs import STILL_WORKS, allocator_works, cured
from mini_engine.course.exercise import Exercise, Mutant, Property

Copies = list[tuple[int, int]]


class MendedSharing(BlockAllocator):
    """The allocator with a fork, and an `append` that copies in the right order and says so."""

    def fork(self, sequence: Sequence) -> Sequence:
        """A branch over the same blocks."""
        for block in sequence.blocks:
            block.ref_count += 1
        return Sequence(list(sequence.blocks))

    def append(self, sequence: Sequence, token: int) -> Copies:  # type: ignore[override]
        """Make room for one more token and enter it; the copies (from, to) to make before it is written."""
        last, copies = sequence.blocks[-1], []
        if len(last.tokens) == self.block_size:
            sequence.blocks.append(self._take())
        elif last.ref_count > 1:
            copy = self._take()
            copy.tokens = list(last.tokens)
            last.ref_count -= 1
            sequence.blocks[-1] = copy
            copies = [(last.number, copy.number)]
        sequence.blocks[-1].tokens.append(token)
        return copies


class _AsksFirst(BlockAllocator):
    """Another right answer: the old `append`, once there is room."""

    def fork(self, sequence: Sequence) -> Sequence:
        branch = Sequence()
        for block in sequence.blocks:
            self._hold(block)
            branch.blocks.append(block)
        return branch

    def append(self, sequence: Sequence, token: int) -> Copies:  # type: ignore[override]
        if sequence.blocks[-1].ref_count > 1 and not self.free:
            raise MemoryError("no free block for the copy")
        before = sequence.table
        super().append(sequence, token)
        return [(old, new) for old, new in zip(before, sequence.table) if old != new]


class _OneTable(MendedSharing):
    def fork(self, sequence: Sequence) -> Sequence:
        for block in sequence.blocks:
            block.ref_count += 1
        return Sequence(sequence.blocks)


class _NoHold(MendedSharing):
    def fork(self, sequence: Sequence) -> Sequence:
        return Sequence(list(sequence.blocks))


class _GivesBackTheCount(MendedSharing):
    def append(self, sequence: Sequence, token: int) -> Copies:  # type: ignore[override]
        shared = sequence.blocks[-1]
        try:
            return super().append(sequence, token)
        except MemoryError:
            shared.ref_count += 1
            raise


class _SaysNothing(MendedSharing):
    def append(self, sequence: Sequence, token: int) -> Copies:  # type: ignore[override]
        super().append(sequence, token)
        return []


class _WrongWay(MendedSharing):
    def append(self, sequence: Sequence, token: int) -> Copies:  # type: ignore[override]
        return [(new, old) for old, new in super().append(sequence, token)]


class _AsItWas(MendedSharing):
    def append(self, sequence: Sequence, token: int) -> None:  # type: ignore[override]
        BlockAllocator.append(self, sequence, token)


class _NeverShares(MendedSharing):
    def append(self, sequence: Sequence, token: int) -> Copies:  # type: ignore[override]
        last = sequence.blocks[-1]
        copy = self._take()
        copy.tokens = list(last.tokens)
        last.ref_count -= 1
        sequence.blocks[-1] = copy
        super().append(sequence, token)
        return [(last.number, copy.number)]


BRANCHES, ORDER = "branches of a fork do not see each other's tokens", "a copy that finds no block changes nothing"
TOLD = "append says what has to be copied"

MEND_SHARING = Exercise(
    id="08.mend",
    title="A copy that can fail",
    reference=MendedSharing,
    properties=[
        Property(STILL_WORKS, allocator_works),
        cured("nothing can be shared on purpose", BRANCHES),
        cured("a copy gives up the shared block first", ORDER),
        cured("nobody is told of a copy", TOLD),
    ],
    mutants=[
        Mutant("append as it was", _AsItWas, ORDER, "The count goes down before there is a block."),
        Mutant("gives back what it did not take", _GivesBackTheCount, ORDER, "When the copy fails early, nothing was taken."),
        Mutant("one table for both", _OneTable, BRANCHES, "What one branch appends, the other has."),
        Mutant("a fork without a hold", _NoHold, BRANCHES, "With one holder counted, nobody copies."),
        Mutant("says nothing", _SaysNothing, TOLD, "The K/V of the copy is never moved."),
        Mutant("the wrong way", _WrongWay, TOLD, "The shared block is overwritten by an empty one."),
        Mutant("copies every time", _NeverShares, STILL_WORKS, "A block of one's own can be written in place."),
    ],
    alternatives=[_AsksFirst],
)  # fmt: skip
