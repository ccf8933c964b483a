"""A second home for blocks: a bounded pool in host memory, for requests that have to leave the device for a while."""

from __future__ import annotations

from collections.abc import Callable

from mini_engine.cache.block_pool import BlockPool, NoFreeBlocksError
from mini_engine.cache.block_tables import BlockTables, CacheRequest, Sequence
from mini_engine.cache.ops import CacheOp


class SwappingTables(BlockTables):
    """Block tables that can move to the host and back. Only computed blocks are moved, reserved ones are given up."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        num_swap_blocks: int = 0,
        on_evict: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(num_blocks, block_size, on_evict)
        if num_swap_blocks < 0:
            raise ValueError(f"num_swap_blocks={num_swap_blocks}: must be at least 0")
        self.host_pool = BlockPool(num_swap_blocks)

    @property
    def num_free_swap_blocks(self) -> int:
        """Host blocks that no swapped request holds."""
        return self.host_pool.num_free

    def is_swapped(self, request: CacheRequest) -> bool:
        """Whether the request's K/V is on the host."""
        sequence = self._sequences.get((request.request_id, request.index))
        return sequence is not None and sequence.is_swapped

    def host_blocks(self, request: CacheRequest) -> list[int]:
        """The host blocks of a swapped request, in the order of its tokens; [] when it is not swapped out."""
        sequence = self._sequences.get((request.request_id, request.index))
        return [] if sequence is None else list(sequence.host_blocks)

    def swap_out(self, request: CacheRequest) -> list[CacheOp]:
        """Move the request's computed blocks to the host and give up its device blocks.

        NoFreeBlocksError when the host pool is too full: preempt by recompute instead. ValueError when it is out already.
        """
        sequence = self._resident(request)
        blocks = sequence.table[: self._num_blocks(request.num_computed_tokens)]
        if len(blocks) > self.host_pool.num_free:
            raise NoFreeBlocksError(len(blocks), self.host_pool.num_free, where="host")
        sequence.host_blocks = self.host_pool.allocate(len(blocks))
        sequence.is_swapped = True
        sequence.num_allocated = sequence.num_published = 0
        self.pool.release(sequence.table)
        sequence.table.clear()
        return [CacheOp("swap_out", src, dst) for src, dst in zip(blocks, sequence.host_blocks)]

    def num_blocks_to_swap_in(self, request: CacheRequest) -> int:
        """By how much num_free_blocks would fall in swap_in(request)."""
        return len(self._swapped(request).host_blocks)

    def swap_in(self, request: CacheRequest) -> list[CacheOp]:
        """Bring a swapped request back into new device blocks, and give up its host blocks.

        NoFreeBlocksError when blocks are lacking; ValueError when it is not swapped out.
        """
        sequence = self._swapped(request)
        blocks = self.pool.allocate(len(sequence.host_blocks))
        ops = [CacheOp("swap_in", src, dst) for src, dst in zip(sequence.host_blocks, blocks)]
        self.host_pool.release(sequence.host_blocks)
        sequence.host_blocks = []
        sequence.is_swapped = False
        sequence.table += blocks
        sequence.num_allocated = request.num_computed_tokens
        return ops

    def free(self, request: CacheRequest) -> None:
        """Give up all blocks of a request, on the device and on the host, and forget it. Harmless when it has none."""
        sequence = self._sequence(request)
        super().free(request)
        self.host_pool.release(sequence.host_blocks)

    def _swapped(self, request: CacheRequest) -> Sequence:
        sequence = self._sequence(request)
        if not sequence.is_swapped:
            raise ValueError(f"request {request.request_id!r} (branch {request.index}) is not swapped out")
        return sequence
