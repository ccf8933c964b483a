"""Answers to lesson 08's fork and copy on write: right ones, written another way, and the wrong ones that people write."""

from __future__ import annotations

from mini_engine.cache import BlockPool, CacheOp, CacheRequest, KVCacheManager

Table = list[int]


# -- fork --------------------------------------------------------------------------------------------------------------


def fork(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    """The block table of a new branch that shares the first num_tokens tokens."""
    shared = table[: -(-num_tokens // block_size)]
    pool.touch(shared)
    return shared


def fork_in_a_loop(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    branch = []
    for i, block in enumerate(table):
        if i * block_size < num_tokens:
            pool.touch([block])
            branch.append(block)
    return branch


def same_list(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    pool.touch(table[: -(-num_tokens // block_size)])
    return table


def no_holder(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    return table[: -(-num_tokens // block_size)]


def full_blocks_only(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    shared = table[: num_tokens // block_size]
    pool.touch(shared)
    return shared


def one_block_too_many(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    shared = table[: num_tokens // block_size + 1]
    pool.touch(shared)
    return shared


def the_reserve_too(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    pool.touch(table)
    return list(table)


def holds_the_first(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    pool.touch(table[:1])
    return table[: -(-num_tokens // block_size)]


def holds_twice(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    shared = table[: -(-num_tokens // block_size)]
    pool.touch(shared)
    pool.touch(shared)
    return shared


def new_blocks(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    return pool.allocate(-(-num_tokens // block_size))


# -- copy on write -----------------------------------------------------------------------------------------------------


class CopyOnWrite(KVCacheManager):
    """The engine's cache, with its copy on write written out."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        table, i = request.block_table, request.num_computed_tokens // self.block_size
        if i >= len(table) or self.pool.ref_count(table[i]) == 1:
            return None
        src = table[i]
        (dst,) = self.pool.allocate(1)
        table[i] = dst
        self.pool.release([src])
        return CacheOp("copy", src, dst)


class InOtherWords(KVCacheManager):
    """Another right answer: asks whether the block is private, and goes by the number of blocks in use."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        in_use = request.num_computed_tokens // self.block_size
        if len(request.block_table) <= in_use or self.pool.is_private(request.block_table[in_use]):
            return None
        op = CacheOp("copy", request.block_table[in_use], self.pool.allocate(1)[0])
        self.pool.release([op.src])
        request.block_table[in_use] = op.dst
        return op


class NeverCopies(KVCacheManager):
    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        return None


class AlwaysCopies(KVCacheManager):
    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        table, i = request.block_table, request.num_computed_tokens // self.block_size
        if i >= len(table):
            return None
        src = table[i]
        (table[i],) = self.pool.allocate(1)
        self.pool.release([src])
        return CacheOp("copy", src, table[i])


class FirstBlock(CopyOnWrite):
    """Looks at the first block of the table."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        table = request.block_table
        if self.pool.ref_count(table[0]) == 1:
            return None
        src = table[0]
        (table[0],) = self.pool.allocate(1)
        self.pool.release([src])
        return CacheOp("copy", src, table[0])


class LastBlock(KVCacheManager):
    """Looks at the end of the table, where the reserve lies, or where nothing is written any more."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        table = request.block_table
        if not table or self.pool.ref_count(table[-1]) == 1:
            return None
        src = table[-1]
        (table[-1],) = self.pool.allocate(1)
        self.pool.release([src])
        return CacheOp("copy", src, table[-1])


class LastUnlessFull(LastBlock):
    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        return super().cow_if_shared(request) if request.num_computed_tokens % self.block_size else None


class ParentOwns(KVCacheManager):
    """Takes branch 0 for the owner of the blocks."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        return super().cow_if_shared(request) if request.index else None


class NoBlockYet(KVCacheManager):
    """Forgets that the next token may need a block that the table does not have."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        table, i = request.block_table, request.num_computed_tokens // self.block_size
        if self.pool.ref_count(table[i]) == 1:
            return None
        return super().cow_if_shared(request)


class TellsNobody(KVCacheManager):
    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        super().cow_if_shared(request)
        return None


class WrongWay(KVCacheManager):
    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        op = super().cow_if_shared(request)
        return op and CacheOp("copy", op.dst, op.src)


class KeepsTheTable(KVCacheManager):
    """A copy is made, but the table still names the shared block."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        table, i = request.block_table, request.num_computed_tokens // self.block_size
        if i >= len(table) or self.pool.ref_count(table[i]) == 1:
            return None
        (dst,) = self.pool.allocate(1)
        self.pool.release([table[i]])
        return CacheOp("copy", table[i], dst)


class NewTable(KVCacheManager):
    """Replaces the list instead of changing it."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        table = list(request.block_table)
        i = request.num_computed_tokens // self.block_size
        if i >= len(table) or self.pool.ref_count(table[i]) == 1:
            return None
        src = table[i]
        (table[i],) = self.pool.allocate(1)
        self.pool.release([src])
        request.block_table = table
        return CacheOp("copy", src, table[i])


class KeepsItsHold(KVCacheManager):
    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        table, i = request.block_table, request.num_computed_tokens // self.block_size
        if i >= len(table) or self.pool.ref_count(table[i]) == 1:
            return None
        src = table[i]
        (table[i],) = self.pool.allocate(1)
        return CacheOp("copy", src, table[i])


class ReleasesForAll(KVCacheManager):
    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        op = super().cow_if_shared(request)
        while op and self.pool.ref_count(op.src) > 1:
            self.pool.release([op.src])
        return op


class GivesUpFirst(KVCacheManager):
    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        table, i = request.block_table, request.num_computed_tokens // self.block_size
        if i >= len(table) or self.pool.ref_count(table[i]) == 1:
            return None
        src = table[i]
        self.pool.release([src])
        (table[i],) = self.pool.allocate(1)
        return CacheOp("copy", src, table[i])


class WritesAnyway(CopyOnWrite):
    """Swallows the error, so that the request writes into the shared block."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        try:
            return super().cow_if_shared(request)
        except MemoryError:
            return None
