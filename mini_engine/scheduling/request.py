"""`Request`: one sequence as the scheduler sees it, integers only. A request with n > 1 is n of these, its branches."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import cast

from mini_engine.outputs import FinishReason


class RequestStatus(Enum):
    """Where a sequence is. The finished ones say why, in the words that its owner is told."""

    WAITING = "waiting"  # has not started
    RUNNING = "running"  # holds blocks and takes part in every step
    PREEMPTED = "preempted"  # lost its blocks, waits to be recomputed
    SWAPPED = "swapped"  # waits with its blocks in host memory
    FINISHED_STOPPED = "stop"
    FINISHED_LENGTH = "length"
    FINISHED_ABORTED = "abort"
    FINISHED_CAPACITY = "capacity"


FINISHED = {status.value: status for status in RequestStatus if status.name.startswith("FINISHED")}


class Request:
    """One sequence: its tokens, how many of them have K/V, and the blocks that hold those.

    `token_ids` are prompt and output together. Prefill, decode and recompute after a preemption are one thing here:
    computed tokens chasing known ones. A sequence whose every token is computed gets its next one sampled.
    """

    __slots__ = (
        "adapter",
        "arrival",
        "block_table",
        "cache_salt",
        "index",
        "key",
        "max_num_tokens",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_pending_branches",
        "num_prompt_tokens",
        "num_starts",
        "priority",
        "rank",
        "request_id",
        "status",
        "token_ids",
    )

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        max_tokens: int,
        *,
        n: int = 1,
        priority: int = 0,
        cache_salt: str | None = None,
        adapter: str | None = None,
    ) -> None:
        self.request_id = request_id
        self.index = 0  # which branch
        self.key = (request_id, 0)
        self.priority = priority
        self.cache_salt = cache_salt
        self.adapter = adapter

        self.token_ids = list(prompt_token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        self.max_num_tokens = self.num_prompt_tokens + max_tokens
        self.num_computed_tokens = 0
        self.num_cached_tokens = 0  # found in the cache, not computed, when it first started
        self.block_table: list[int] = []

        # Branches 1 to n - 1 are forked off when the prompt has been computed. Until then this one keeps their seats.
        self.num_pending_branches = n - 1
        self.status = RequestStatus.WAITING
        # Set by the scheduler.
        self.arrival = 0  # order of arrival
        self.num_starts = 0  # 1 when it runs for the first time, one more after each preemption
        self.rank: tuple[int, ...] = ()  # order of service among those that run

    @property
    def num_tokens(self) -> int:
        """Tokens known so far: the prompt and what was sampled."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Tokens sampled so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_seqs(self) -> int:
        """Seats it takes: its own and those of the branches to come."""
        return 1 + self.num_pending_branches

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended; None while it lives."""
        return cast(FinishReason, self.status.value) if self.status.value in FINISHED else None

    def branch(self, index: int) -> Request:
        """A new sequence with the same tokens, nothing computed and no blocks yet."""
        twin = Request.__new__(Request)
        for name in Request.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.index, twin.key = index, (self.request_id, index)
        twin.token_ids = list(self.token_ids)
        twin.num_computed_tokens = twin.num_cached_tokens = twin.num_pending_branches = 0
        twin.block_table = []
        return twin

    def __repr__(self) -> str:
        done = f"{self.num_computed_tokens} of {self.num_tokens} tokens computed"
        return (
            f"Request({self.request_id!r}, branch {self.index}, {self.status.value}, {done}, blocks {self.block_table})"
        )
