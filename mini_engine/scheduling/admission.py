"""What must fit before a sequence starts: its whole prompt, its first chunk, or the most it can ever need."""

from __future__ import annotations

from collections.abc import Sequence

from mini_engine.cache import KVCacheManager
from mini_engine.config import EngineConfig
from mini_engine.scheduling.request import Request, RequestStatus


class Admission:
    """Blocks are taken chunk by chunk, so what a sequence has been promised when it started may still be in the pool.

    first_chunk   promises nothing beyond the first chunk: starts early, is preempted often
    whole_prompt  promises all tokens known so far: a prompt once started is computed to its end, decodes may run short
    worst_case    promises prompt and max_tokens, for every branch: nobody is ever preempted, few run at once
    """

    def __init__(self, config: EngineConfig, kv: KVCacheManager) -> None:
        self.kv = kv
        self.rule = config.admission
        self.block_size = config.block_size
        self.reserve = int(config.watermark * config.num_blocks)

    def fits(self, request: Request, running: Sequence[Request], budget: int) -> bool:
        """Whether `request` fits beside `running`, with `budget` tokens left in this step."""
        spare = self.kv.num_free_blocks - self.reserve - sum(self._owed(other) for other in running)
        return self._needed(request, budget) <= spare

    def num_blocks(self, num_tokens: int) -> int:
        """Blocks that hold so many tokens, the last perhaps partly."""
        return -(-num_tokens // self.block_size)

    def _goal(self, request: Request) -> int:
        """Tokens that it may count on room for, once it runs."""
        return request.max_num_tokens - 1 if self.rule == "worst_case" else request.num_tokens

    def _needed(self, request: Request, budget: int) -> int:
        """By how much the free blocks fall, now and later, if it starts."""
        goal = self._goal(request)
        swapped = request.status is RequestStatus.SWAPPED
        if self.rule == "first_chunk":
            known = request.num_computed_tokens if swapped else len(self.kv.match(request)) * self.block_size
            goal = min(goal, known + budget)
        now = self.num_blocks(goal) if swapped else self.kv.num_blocks_to_allocate(request, goal)
        return now + self._branches(request)

    def _owed(self, request: Request) -> int:
        """Blocks that a running sequence was promised and has not taken yet."""
        if self.rule == "first_chunk":
            return 0
        return max(0, self.num_blocks(self._goal(request)) - len(request.block_table)) + self._branches(request)

    def _branches(self, request: Request) -> int:
        """Blocks of the branches to come: all but the full blocks of the prompt, which they share."""
        if self.rule != "worst_case":
            return 0
        shared = request.num_prompt_tokens // self.block_size
        return request.num_pending_branches * (self.num_blocks(self._goal(request)) - shared)
