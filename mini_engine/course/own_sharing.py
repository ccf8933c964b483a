"""The engine's cache with a learner's `fork` inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mini_engine.cache import BlockPool, CacheRequest, KVCacheManager

Fork = Callable[[BlockPool, list[int], int, int], list[int]]


def with_fork(fork: Fork, manager: type[KVCacheManager] = KVCacheManager) -> Any:
    """A class like `manager` whose branches get their tables from fork(pool, table, num_tokens, block_size)."""

    class OwnFork(manager):  # type: ignore[valid-type, misc]
        def fork(self, src: CacheRequest, dst: CacheRequest) -> None:
            super().fork(src, dst)  # refuses what makes no sense, and remembers the branch
            try:
                table = fork(self.pool, src.block_table, src.num_computed_tokens, self.block_size)
            except BaseException:
                self.free(dst)
                raise
            self.pool.release(dst.block_table)
            dst.block_table[:] = table

    return OwnFork
