"""Forks and copies on write with one bug each: the engine's own block tables, with one method overridden."""

from __future__ import annotations

from collections.abc import Sequence as Blocks

from mini_engine.cache import BlockPool, BlockTables, CacheOp, CacheRequest
from mini_engine.cache.block_tables import Sequence
from mini_engine.course.bug_bank import Bug, BugBank, hand_out_class
from mini_engine.course.exercises.bugs07_block_tables import RIGHT, with_part


class _NeverCopies(BlockTables):
    def _must_copy(self, sequence: Sequence, i: int) -> bool:
        return False


class _AlwaysCopies(BlockTables):
    def _must_copy(self, sequence: Sequence, i: int) -> bool:
        return i < len(sequence.table)


class _GivesUpFirst(BlockTables):
    def _copy(self, sequence: Sequence, i: int) -> CacheOp:
        src = sequence.table[i]
        self.pool.release([src])
        (sequence.table[i],) = self.pool.allocate(1)
        return CacheOp("copy", src, sequence.table[i])


class _KeepsTheOldHold(BlockTables):
    def _copy(self, sequence: Sequence, i: int) -> CacheOp:
        src = sequence.table[i]
        (sequence.table[i],) = self.pool.allocate(1)
        return CacheOp("copy", src, sequence.table[i])


class _TellsNobody(BlockTables):
    def append(self, request: CacheRequest, n: int = 1) -> list[CacheOp]:
        super().append(request, n)
        return []


class _WrongWay(BlockTables):
    def _copy(self, sequence: Sequence, i: int) -> CacheOp:
        op = super()._copy(sequence, i)
        return CacheOp("copy", op.dst, op.src)


class _CopiesAll(BlockTables):
    def append(self, request: CacheRequest, n: int = 1) -> list[CacheOp]:
        sequence, written = self._resident(request), request.num_computed_tokens // self.block_size
        earlier = [i for i in range(min(written, len(sequence.table))) if self._must_copy(sequence, i)]
        if len(earlier) + self.num_blocks_to_append(request, n) > self.pool.num_free:
            return super().append(request, n)
        return [self._copy(sequence, i) for i in earlier] + super().append(request, n)


class _CopiesBeforeItCounts(BlockTables):
    def append(self, request: CacheRequest, n: int = 1) -> list[CacheOp]:
        op = self.cow_if_shared(request)
        return ([op] if op else []) + super().append(request, n)


class _AddsNoHold(BlockTables):
    def fork(self, src: CacheRequest, dst: CacheRequest) -> None:
        super().fork(src, dst)
        self.pool.release(dst.block_table)


class _SharesFullBlocks(BlockTables):
    def fork(self, src: CacheRequest, dst: CacheRequest) -> None:
        super().fork(src, dst)
        if src.num_computed_tokens % self.block_size:
            self.pool.release([dst.block_table.pop()])


class _SharesReserved(BlockTables):
    def fork(self, src: CacheRequest, dst: CacheRequest) -> None:
        super().fork(src, dst)
        reserved = src.block_table[len(dst.block_table) :]
        self.pool.touch(reserved)
        dst.block_table += reserved


class _OneTable(BlockTables):
    def fork(self, src: CacheRequest, dst: CacheRequest) -> None:
        super().fork(src, dst)
        dst.block_table = self._sequence(src).table
        self._sequences[dst.request_id, dst.index].table = dst.block_table


class _FreesForAll(BlockPool):
    def release(self, blocks: Blocks[int]) -> None:
        for block in blocks:
            self._refs[block] = min(1, self._refs[block])
        super().release(blocks)


WRONG = {
    "never copies": Bug(_NeverCopies, "After a fork, let one branch write into the shared last block."),
    "copies for the last holder too": Bug(
        _AlwaysCopies, "When all branches but one have their copy, the last may write in place: count the copies."
    ),
    "copies every shared block": Bug(
        _CopiesAll, "Only the block that is written needs a copy: fork a table of several blocks and count."
    ),
    "gives up the shared block first": Bug(
        _GivesUpFirst, "Let the copy fail (cow_if_shared with no free block): who holds the shared block then?"
    ),
    "keeps its hold on the shared block": Bug(
        _KeepsTheOldHold, "After the copy, how many hold the old block? Free all branches: is every block free?"
    ),
    "copies before it knows that there is room": Bug(
        _CopiesBeforeItCounts, "Append so many tokens that copy and new blocks do not both fit: nothing may change."
    ),
    "tells nobody of the copy": Bug(_TellsNobody, "What append returns is all that the backend hears of the copy."),
    "copies the wrong way": Bug(_WrongWay, "Compare src and dst of the operation with the tables before and after."),
    "a fork adds no holder": Bug(_AddsNoHold, "Look at ref_count after a fork, or free the parent and allocate."),
    "a fork leaves the half-full block behind": Bug(
        _SharesFullBlocks, "Fork when the last block is not full: the branch needs the K/V in there, too."
    ),
    "a fork shares the parent's reserve": Bug(
        _SharesReserved, "Reserve room (cache_requests.start) for more tokens than are computed, then fork."
    ),
    "both branches edit one table": Bug(_OneTable, "Let one branch grow: the table of the other must stay."),
    "a free counts for all holders": Bug(
        with_part(BlockTables, "pool", _FreesForAll), "Free one branch of two: whose are the shared blocks?"
    ),
}

SHARING_BUGS = BugBank("cache", RIGHT, WRONG, hand_out_class, crash_counts=True)
