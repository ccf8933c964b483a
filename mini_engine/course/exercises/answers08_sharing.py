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
        in_use, offset = divmod(request.num_computed_tokens, self.block_size)
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


class BranchesOnly(KVCacheManager):
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


# -- blocks ------------------------------------------------------------------------------------------------------------


def by_hand(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    """Tables filled token by token, copy by copy: the oracle."""
    tables, fresh, copies = [], 0, 0
    holders: dict[int, int] = {}
    shared = list(range(-(-prefix // block)))
    for number in shared:
        holders[number] = n
    fresh = len(shared)
    for _ in range(n):
        table = list(shared)
        for position in range(prefix, prefix + out):
            i = position // block
            if i == len(table):
                table.append(fresh)
                holders[fresh] = 1
                fresh += 1
            elif holders[table[i]] > 1:
                holders[table[i]] -= 1
                table[i] = fresh
                holders[fresh] = 1
                fresh += 1
                copies += 1
        tables.append(table)
    common = (
        [number for number in shared if all(number in table for table in tables)]
        if n > 1
        else shared[: prefix // block]
    )
    return len(common), len({b for table in tables for b in table} - set(common)), copies


def by_rest(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    full, rest = divmod(prefix, block)
    return full, n * -(-(rest + out) // block), (n - 1) * (rest > 0)


def tail_stays_shared(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    full = -(-prefix // block)
    return full, n * (-(-(prefix + out) // block) - full), 0


def copies_always(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    shared, private, _ = by_rest(prefix, out, n, block)
    return shared, private, n - 1


def all_copy(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    shared, private, copied = by_rest(prefix, out, n, block)
    return shared, private, n if copied else 0


def never_copies(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    shared, private, _ = by_rest(prefix, out, n, block)
    return shared, private, 0


def outputs_apart(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    """Blocks for the outputs alone: the tail of the prompt is forgotten."""
    shared, _, copied = by_rest(prefix, out, n, block)
    return shared, n * -(-out // block), copied


def one_branch(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    shared, _, copied = by_rest(prefix, out, n, block)
    return shared, -(-(prefix + out) // block) - shared, copied


def tail_counted_once(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    """All outputs in a row, as if they could lie in one another's blocks."""
    shared, _, copied = by_rest(prefix, out, n, block)
    return shared, -(-(n * (prefix % block + out)) // block), copied


def rounded_down(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    shared, _, copied = by_rest(prefix, out, n, block)
    return shared, n * ((prefix % block + out) // block), copied


def copies_are_extra(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    shared, private, copied = by_rest(prefix, out, n, block)
    return shared, private + copied, copied
