"""What a scheduler has done since it was made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mini_engine.cache import CacheOp


@dataclass(slots=True)
class Counters:
    """Counts of committed work; preemptions count when they are decided, hits at every start, resumes included."""

    num_preemptions: int = 0
    num_prefill_tokens: int = 0  # computed from a prompt, or again after a preemption
    num_decode_tokens: int = 0  # computed one at a time behind a sampled token
    num_prefix_hit_tokens: int = 0
    num_copied_blocks: int = 0
    num_swapped_out_blocks: int = 0
    num_swapped_in_blocks: int = 0

    def add_ops(self, ops: Sequence[CacheOp]) -> None:
        """Count the cache operations of a step by kind."""
        for op in ops:
            if op.kind == "copy":
                self.num_copied_blocks += 1
            elif op.kind == "swap_out":
                self.num_swapped_out_blocks += 1
            else:
                self.num_swapped_in_blocks += 1
