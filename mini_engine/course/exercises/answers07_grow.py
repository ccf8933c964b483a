"""Lesson 07, a table that grows: right answers written another way, and wrong ones that people write."""

from __future__ import annotations

from mini_engine.cache import CacheRequest, KVCacheManager, NoFreeBlocksError


class GrowingManager(KVCacheManager):
    """The engine's manager with its own `grow` written out."""

    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        """Append blocks until the table has room for num_tokens tokens."""
        missing = -(-num_tokens // self.block_size) - len(request.block_table)
        if missing > 0:
            request.block_table += self.pool.allocate(missing)


class BlockByBlock(KVCacheManager):
    """Another right answer: it asks first, and takes one at a time."""

    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        room = len(request.block_table) * self.block_size
        if (num_tokens - room + self.block_size - 1) // self.block_size > self.pool.num_free:
            raise NoFreeBlocksError(num_tokens, self.pool.num_free)
        while len(request.block_table) * self.block_size < num_tokens:
            request.block_table.extend(self.pool.allocate(1))


class OneByOneUndone(KVCacheManager):
    """Another right answer: it takes one at a time, and gives back what it took when there are no more."""

    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        table, held = request.block_table, len(request.block_table)
        try:
            while len(table) < (num_tokens + self.block_size - 1) // self.block_size:
                table.append(self.pool.allocate(1)[0])
        except NoFreeBlocksError:
            self.pool.release(table[held:])
            del table[held:]
            raise


class EachToken(KVCacheManager):
    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        if len(request.block_table) < num_tokens:
            request.block_table += self.pool.allocate(num_tokens - len(request.block_table))


class AlwaysOne(KVCacheManager):
    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        if num_tokens > len(request.block_table) * self.block_size:
            request.block_table += self.pool.allocate(1)


class OneTooMany(KVCacheManager):
    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        missing = num_tokens // self.block_size + 1 - len(request.block_table)
        request.block_table += self.pool.allocate(max(missing, 0))


class RoundsDown(KVCacheManager):
    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        missing = num_tokens // self.block_size - len(request.block_table)
        request.block_table += self.pool.allocate(max(missing, 0))


class OneTokenLate(KVCacheManager):
    """The test is `>` where `>=` is meant, or the other way round: the block is taken when a token is there for it."""

    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        table = request.block_table
        missing = -(-num_tokens // self.block_size) - len(table)
        if missing > 0 and not (table and num_tokens % self.block_size == 1):
            table += self.pool.allocate(missing)


class ANewList(KVCacheManager):
    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        missing = -(-num_tokens // self.block_size) - len(request.block_table)
        if missing > 0:
            request.block_table = request.block_table + self.pool.allocate(missing)


class StartsOver(KVCacheManager):
    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        needed = -(-num_tokens // self.block_size)
        if needed > len(request.block_table):
            self.pool.release(request.block_table)
            request.block_table[:] = self.pool.allocate(needed)[::-1]


class AtTheFront(KVCacheManager):
    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        missing = -(-num_tokens // self.block_size) - len(request.block_table)
        if missing > 0:
            request.block_table[:0] = self.pool.allocate(missing)


class Sorts(KVCacheManager):
    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        missing = -(-num_tokens // self.block_size) - len(request.block_table)
        if missing > 0:
            request.block_table += self.pool.allocate(missing)
            request.block_table.sort()


class NextNumber(KVCacheManager):
    """Blocks are given out in order at first. Later they are not."""

    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        table, held = request.block_table, len(request.block_table)
        missing = -(-num_tokens // self.block_size) - held
        if missing > 0:
            table += self.pool.allocate(missing)
            table[held:] = range(table[held], table[held] + missing)


class Shrinks(KVCacheManager):
    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        needed = -(-num_tokens // self.block_size)
        self.pool.release(request.block_table[needed:])
        del request.block_table[needed:]
        if needed > len(request.block_table):
            request.block_table += self.pool.allocate(needed - len(request.block_table))


class NoFloor(KVCacheManager):
    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        missing = -(-num_tokens // self.block_size) - len(request.block_table)
        request.block_table += self.pool.allocate(missing)


class KeepsWhatItTook(KVCacheManager):
    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        while len(request.block_table) * self.block_size < num_tokens:
            request.block_table += self.pool.allocate(1)


class SaysNothing(KVCacheManager):
    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        missing = -(-num_tokens // self.block_size) - len(request.block_table)
        if missing > 0:
            request.block_table += self.pool.allocate(min(missing, self.pool.num_free))


class FourAlways(KVCacheManager):
    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        missing = -(-num_tokens // 4) - len(request.block_table)
        if missing > 0:
            request.block_table += self.pool.allocate(missing)
