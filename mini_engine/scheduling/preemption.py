"""What making room means for the sequence that has to go: `Recompute` or `Swap`."""

from __future__ import annotations

from mini_engine.cache import CacheOp, KVCacheManager, NoFreeBlocksError
from mini_engine.scheduling.request import Request, RequestStatus


class Recompute:
    """Drop the K/V. The tokens stay, sampled ones too: on return they are one prompt, and what is still cached is hit."""

    def preempt(self, request: Request, kv: KVCacheManager) -> list[CacheOp]:
        """Free the victim's blocks: it starts again from its first token, or from a hit. No cache operations."""
        kv.free(request)
        request.num_computed_tokens = 0
        request.status = RequestStatus.PREEMPTED
        return []


class Swap(Recompute):
    """Move the K/V to host memory, which holds `num_swap_blocks` blocks. Where it is full: recompute."""

    def preempt(self, request: Request, kv: KVCacheManager) -> list[CacheOp]:
        """Plan the moves to the host; recompute instead when the host has no room."""
        try:
            ops = kv.swap_out(request)
        except NoFreeBlocksError:
            return super().preempt(request, kv)
        request.status = RequestStatus.SWAPPED
        return ops


PREEMPTIONS = {"recompute": Recompute, "swap": Swap}
