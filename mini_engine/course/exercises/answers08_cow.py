"""Answers to lesson 08's copy on write: right ones, written another way, and the wrong ones that people write."""

from __future__ import annotations

from mini_engine.cache import CacheOp, CacheRequest, KVCacheManager, NoFreeBlocksError


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


class TakesItBack(CopyOnWrite):
    """Another right answer: lets go first, and takes hold again when no block is free."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        i = _entry(self, request)
        if i is None or not _is_shared(self, request.block_table[i]):
            return None
        src = request.block_table[i]
        self.pool.release([src])
        try:
            request.block_table[i : i + 1] = self.pool.allocate(1)
        except NoFreeBlocksError:
            self.pool.touch([src])
            raise
        return CacheOp("copy", src, request.block_table[i])


def _entry(cache: KVCacheManager, request: CacheRequest) -> int | None:
    """The entry of the table where the next token goes; None when there is no block yet."""
    i = request.num_computed_tokens // cache.block_size
    return i if i < len(request.block_table) else None


def _is_shared(cache: KVCacheManager, block: int) -> bool:
    return cache.pool.ref_count(block) > 1


def _copy(cache: KVCacheManager, table: list[int], i: int) -> CacheOp:
    """Replace entry i by a copy."""
    src = table[i]
    (table[i],) = cache.pool.allocate(1)
    cache.pool.release([src])
    return CacheOp("copy", src, table[i])


class NeverCopies(KVCacheManager):
    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        return None


class AlwaysCopies(KVCacheManager):
    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        i = _entry(self, request)
        return None if i is None else _copy(self, request.block_table, i)


class BlocksOfFour(KVCacheManager):
    """Right as long as the blocks have 4 slots."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        table, i = request.block_table, request.num_computed_tokens // 4
        return _copy(self, table, i) if i < len(table) and _is_shared(self, table[i]) else None


class FirstBlock(KVCacheManager):
    """Looks at the first block of the table."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        return _copy(self, request.block_table, 0) if _is_shared(self, request.block_table[0]) else None


class LastBlock(KVCacheManager):
    """Looks at the end of the table, where the reserve lies, or where nothing is written any more."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        table = request.block_table
        return _copy(self, table, len(table) - 1) if table and _is_shared(self, table[-1]) else None


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
        return _copy(self, table, i) if _is_shared(self, table[i]) else None


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
        i = _entry(self, request)
        if i is None or not _is_shared(self, request.block_table[i]):
            return None
        return _copy(self, list(request.block_table), i)


class NewTable(KVCacheManager):
    """Replaces the list instead of changing it."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        i = _entry(self, request)
        if i is None or not _is_shared(self, request.block_table[i]):
            return None
        request.block_table = list(request.block_table)
        return _copy(self, request.block_table, i)


class CountsTheToken(CopyOnWrite):
    """Advances the request, which the scheduler does after the step."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        op = super().cow_if_shared(request)
        request.num_computed_tokens += op is not None
        return op


class IntoTheReserve(KVCacheManager):
    """Puts the copy at the end of the table, in place of a reserved block."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        table, i = request.block_table, _entry(self, request)
        if i is None or not _is_shared(self, table[i]):
            return None
        src = table[i]
        (table[-1],) = self.pool.allocate(1)
        self.pool.release([src])
        return CacheOp("copy", src, table[-1])


class CutsTheReserve(CopyOnWrite):
    """Ends the table with the copy: the reserved blocks are held, and in no table."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        op = super().cow_if_shared(request)
        if op is not None:
            del request.block_table[request.num_computed_tokens // self.block_size + 1 :]
        return op


class KeepsItsHold(KVCacheManager):
    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        op = super().cow_if_shared(request)
        if op is not None:
            self.pool.touch([op.src])
        return op


class ReleasesForAll(KVCacheManager):
    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        op = super().cow_if_shared(request)
        while op and _is_shared(self, op.src):
            self.pool.release([op.src])
        return op


class GivesUpFirst(KVCacheManager):
    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        table, i = request.block_table, _entry(self, request)
        if i is None or not _is_shared(self, table[i]):
            return None
        src = table[i]
        self.pool.release([src])
        (table[i],) = self.pool.allocate(1)
        return CacheOp("copy", src, table[i])


class TakesTheEntryOut(KVCacheManager):
    """Empties the place in the table before there is a block for it."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        table, i = request.block_table, _entry(self, request)
        if i is None or not _is_shared(self, table[i]):
            return None
        src = table.pop(i)
        table.insert(i, self.pool.allocate(1)[0])
        self.pool.release([src])
        return CacheOp("copy", src, table[i])


class WritesAnyway(CopyOnWrite):
    """Swallows the error, so that the request writes into the shared block."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        try:
            return super().cow_if_shared(request)
        except MemoryError:
            return None


class TakesInAnyCase(CopyOnWrite):
    """Takes a block before it looks, and gives it back when there is nothing to copy."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        spare = self.pool.allocate(1)
        self.pool.release(spare)
        return super().cow_if_shared(request)


class RefusesWhenFull(CopyOnWrite):
    """Raises whenever nothing is free, needed or not."""

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        if not self.pool.num_free:
            raise NoFreeBlocksError(1, 0)
        return super().cow_if_shared(request)
