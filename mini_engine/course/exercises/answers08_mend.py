"""Answers to lesson 08's mend of the broken allocator: right ones, and the wrong ones that people write."""

from __future__ import annotations

import copy

from mini_engine.course.broken_allocator import Block, BlockAllocator, Sequence

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


class AsksFirst(BlockAllocator):
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


class BuildsTheBlock(BlockAllocator):
    """Another right answer: one new block for either case, and pairs that are lists."""

    fork = MendedSharing.fork

    def append(self, sequence: Sequence, token: int) -> list[list[int]]:  # type: ignore[override]
        *head, last = sequence.blocks
        is_full = len(last.tokens) == self.block_size
        if not is_full and last.ref_count == 1:
            last.tokens.append(token)
            return []
        new = self._take()
        if is_full:
            new.tokens.append(token)
            sequence.blocks.append(new)
            return []
        new.tokens = [*last.tokens, token]
        last.ref_count -= 1
        sequence.blocks[:] = [*head, new]
        return [[last.number, new.number]]


class OneTable(MendedSharing):
    def fork(self, sequence: Sequence) -> Sequence:
        for block in sequence.blocks:
            block.ref_count += 1
        return Sequence(sequence.blocks)


class NoHold(MendedSharing):
    def fork(self, sequence: Sequence) -> Sequence:
        return Sequence(list(sequence.blocks))


class HoldsTheLast(MendedSharing):
    def fork(self, sequence: Sequence) -> Sequence:
        sequence.blocks[-1].ref_count += 1
        return Sequence(list(sequence.blocks))


class HoldsTwice(MendedSharing):
    def fork(self, sequence: Sequence) -> Sequence:
        return super().fork(super().fork(sequence))


class TwoHolders(MendedSharing):
    """Right for the first fork."""

    def fork(self, sequence: Sequence) -> Sequence:
        for block in sequence.blocks:
            block.ref_count = 2
        return Sequence(list(sequence.blocks))


class CopiesAtTheFork(MendedSharing):
    def fork(self, sequence: Sequence) -> Sequence:
        branch = super().fork(sequence)
        last = branch.blocks[-1]
        if len(last.tokens) < self.block_size:
            new = self._take()
            new.tokens = list(last.tokens)
            last.ref_count -= 1
            branch.blocks[-1] = new
        return branch


class OtherBlocks(MendedSharing):
    def fork(self, sequence: Sequence) -> Sequence:
        return Sequence(copy.deepcopy(super().fork(sequence).blocks))


class AsItWas(MendedSharing):
    def append(self, sequence: Sequence, token: int) -> None:  # type: ignore[override]
        BlockAllocator.append(self, sequence, token)


class GivesBackTheCount(MendedSharing):
    def append(self, sequence: Sequence, token: int) -> Copies:  # type: ignore[override]
        shared = sequence.blocks[-1]
        try:
            return super().append(sequence, token)
        except MemoryError:
            shared.ref_count += 1
            raise


class PutsAPlaceFirst(MendedSharing):
    """The table grows before there is a block for it."""

    def append(self, sequence: Sequence, token: int) -> Copies:  # type: ignore[override]
        if len(sequence.blocks[-1].tokens) < self.block_size:
            return super().append(sequence, token)
        sequence.blocks.append(Block(-1))
        sequence.blocks[-1] = self._take()
        sequence.blocks[-1].tokens.append(token)
        return []


class SaysNothing(MendedSharing):
    def append(self, sequence: Sequence, token: int) -> Copies:  # type: ignore[override]
        super().append(sequence, token)
        return []


class WrongWay(MendedSharing):
    def append(self, sequence: Sequence, token: int) -> Copies:  # type: ignore[override]
        return [(new, old) for old, new in super().append(sequence, token)]


class TellsOfNewBlocks(MendedSharing):
    def append(self, sequence: Sequence, token: int) -> Copies:  # type: ignore[override]
        before = sequence.table
        copies = super().append(sequence, token)
        return copies if len(sequence.table) == len(before) else [(before[-1], sequence.table[-1])]


class _Copies(MendedSharing):
    def replace(self, sequence: Sequence) -> Copies:
        """Put a copy in place of the last block."""
        last, new = sequence.blocks[-1], self._take()
        new.tokens = list(last.tokens)
        last.ref_count -= 1
        sequence.blocks[-1] = new
        return [(last.number, new.number)]


class CopiesEveryTime(_Copies):
    def append(self, sequence: Sequence, token: int) -> Copies:  # type: ignore[override]
        return self.replace(sequence) + super().append(sequence, token)


class CopiesTheFullBlock(_Copies):
    def append(self, sequence: Sequence, token: int) -> Copies:  # type: ignore[override]
        copies = self.replace(sequence) if sequence.blocks[-1].ref_count > 1 else []
        return copies + super().append(sequence, token)


class LetsGoOfTheFullBlock(MendedSharing):
    def append(self, sequence: Sequence, token: int) -> Copies:  # type: ignore[override]
        last = sequence.blocks[-1]
        is_shared = len(last.tokens) == self.block_size and last.ref_count > 1
        copies = super().append(sequence, token)
        last.ref_count -= is_shared
        return copies


class LetsGoTwice(MendedSharing):
    def append(self, sequence: Sequence, token: int) -> Copies:  # type: ignore[override]
        last = sequence.blocks[-1]
        copies = super().append(sequence, token)
        last.ref_count -= bool(copies)
        return copies


class KeepsItsHold(MendedSharing):
    def append(self, sequence: Sequence, token: int) -> Copies:  # type: ignore[override]
        last = sequence.blocks[-1]
        copies = super().append(sequence, token)
        last.ref_count += bool(copies)
        return copies


class OneListOfTokens(MendedSharing):
    """The copy and the shared block keep their tokens in one list."""

    def append(self, sequence: Sequence, token: int) -> Copies:  # type: ignore[override]
        last = sequence.blocks[-1]
        copies = super().append(sequence, token)
        if copies:
            last.tokens.append(token)
            sequence.blocks[-1].tokens = last.tokens
        return copies
