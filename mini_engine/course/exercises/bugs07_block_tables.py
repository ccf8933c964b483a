"""Block tables with one bug each: the engine's own, with one method overridden.

A bug in a part (the pool, its queue, the index) is a subclass of that part, put into a cache by `with_part`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mini_engine.cache import BlockPool, BlockTables, CacheOp, CacheRequest, KVCacheManager
from mini_engine.course.bug_bank import Bug, BugBank, hand_out_class


def with_part(base: type, name: str, kind: type) -> type:
    """The cache class `base` whose part, such as "pool" or "pool.free_queue", is of a class made to stand in for its own."""
    *path, last = name.split(".")

    class Cache(base):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            owner: Any = self
            for step in path:
                owner = getattr(owner, step)
            getattr(owner, last).__class__ = kind  # its content stays, its methods change

    return Cache


class OtherNumbers(BlockTables):
    """Right: it hands out the last block first. Which number a block has is nobody's business."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.pool.release(self.pool.allocate(num_blocks))


class WithoutPrefixCache(KVCacheManager):
    """Right: the engine's manager with its prefix cache off."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size, enable_prefix_caching=False)


RIGHT = {
    "the engine's own": BlockTables,
    "the manager without its prefix cache": WithoutPrefixCache,
    "other block numbers": OtherNumbers,
}


class _DoubleFree(BlockPool):
    def release(self, blocks: Sequence[int]) -> None:
        super().release([block for block in blocks if self.ref_count(block)])


class _TakesWhatThereIs(BlockPool):
    def allocate(self, n: int) -> list[int]:
        return super().allocate(min(n, self.num_free))


class _KeepsWhatItTook(BlockPool):
    def allocate(self, n: int) -> list[int]:
        return [block for _ in range(n) for block in super(_KeepsWhatItTook, self).allocate(1)]


class _AnyNumber(BlockPool):
    def _check(self, block: int) -> None:
        self._refs[block]


class _TooLate(BlockTables):
    def append(self, request: CacheRequest, n: int = 1) -> list[CacheOp]:
        sequence, end = self._resident(request), request.num_computed_tokens + n
        ops = super().append(request, n)
        if end % self.block_size == 1 and end > 1 and sequence.table:
            self.pool.release([sequence.table.pop()])
        return ops


class _TooEarly(BlockTables):
    def append(self, request: CacheRequest, n: int = 1) -> list[CacheOp]:
        ops = super().append(request, n)
        if (request.num_computed_tokens + n) % self.block_size == 0:
            request.block_table += self.pool.allocate(1)
        return ops


class _OneAtATime(BlockTables):
    def append(self, request: CacheRequest, n: int = 1) -> list[CacheOp]:
        return super().append(request, min(n, self.block_size))


class _LeaksTail(BlockTables):
    def free(self, request: CacheRequest) -> None:
        if request.num_computed_tokens % self.block_size:
            request.block_table.pop()
        super().free(request)


class _KeepsTable(BlockTables):
    def free(self, request: CacheRequest) -> None:
        stale = list(request.block_table)
        super().free(request)
        request.block_table += stale


class _NeedsAPrompt(BlockTables):
    def append(self, request: CacheRequest, n: int = 1) -> list[CacheOp]:
        request.block_table[-1]
        return super().append(request, n)


WRONG = {
    "takes the next block one token late": Bug(
        _TooLate, "Fill a block to its last slot, append one token more, and count the blocks of the table."
    ),
    "takes the next block one token early": Bug(
        _TooEarly, "Fill a block to its last slot and no further: how many blocks does the table need?"
    ),
    "grows by one block at most": Bug(
        _OneAtATime,
        "Start a request without room, `start(cache, b, 0)`, then store nine tokens at once: `compute(cache, b)`.",
    ),
    "gives what there is": Bug(
        with_part(BlockTables, "pool", _TakesWhatThereIs),
        "Ask the pool for more blocks than are free, while some are free.",
    ),
    "a failed allocation keeps what it took": Bug(
        with_part(BlockTables, "pool", _KeepsWhatItTook),
        "After a refusal while some blocks are free, is num_free what it was before?",
    ),
    "free forgets the half-full last block": Bug(
        _LeaksTail, "Free a request whose last block is not full, and count the free blocks."
    ),
    "free leaves the table as it was": Bug(_KeepsTable, "Look at block_table after free."),
    "a second free goes unnoticed": Bug(
        with_part(BlockTables, "pool", _DoubleFree), "Release a block twice: the second time must be an error."
    ),
    "any number is a block": Bug(
        with_part(BlockTables, "pool", _AnyNumber), "Python counts from the end below 0: ask for block -1, and block 0."
    ),
    "an empty prompt cannot grow": Bug(_NeedsAPrompt, "Start a request without any token, then append the first one."),
}

BLOCK_TABLE_BUGS = BugBank("cache", RIGHT, WRONG, hand_out_class, crash_counts=True)
