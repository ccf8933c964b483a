"""What one step will do, decided before it is done (`StepPlan`), and what came of it (`SampledToken`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mini_engine.cache import CacheOp
from mini_engine.outputs import FinishReason
from mini_engine.scheduling.request import Request, RequestStatus


class Chunk(NamedTuple):
    """Compute `num_tokens` tokens of one sequence, from position `start` on. A decode is a chunk of one token."""

    request_id: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    start: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step: run `cache_ops` in order, then every chunk in one batch.

    `preempted` and `finished` hold (request_id, index). A finished sequence ends without a token of this step: it asked
    for none (`max_tokens=0`) or has outgrown the whole pool.
    """

    chunks: tuple[Chunk, ...] = ()
    cache_ops: tuple[CacheOp, ...] = ()
    preempted: tuple[tuple[str, int], ...] = ()
    finished: tuple[tuple[str, int], ...] = ()

    @property
    def num_tokens(self) -> int:
        """Tokens that the forward pass computes."""
        return sum(chunk.num_tokens for chunk in self.chunks)


class SampledToken(NamedTuple):
    """The next token of one sequence, and why the sequence ends with it: "stop", "length", or None if it goes on."""

    token_id: int
    finish_reason: FinishReason | None = None


@dataclass(slots=True)
class Draft:
    """A plan in the making, and what a rollback needs to know about it."""

    budget: int  # tokens still to give away
    chunks: list[Chunk] = field(default_factory=list)
    cache_ops: list[CacheOp] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    started: list[tuple[Request, RequestStatus]] = field(default_factory=list)  # and what each was before
    num_hit_tokens: int = 0

    def check(self, request: Request, num_tokens: int, num_missing: int) -> None:
        """ValueError for a chunk beyond the `num_missing` tokens of the sequence, or the step's budget."""
        if not 0 < num_tokens <= num_missing or num_tokens > self.budget:
            most = min(num_missing, self.budget)
            raise ValueError(
                f"a chunk of {num_tokens} tokens for {request}: it misses {num_missing}, and the step has {self.budget} "
                f"left; {f'take 1 to {most}' if most > 0 else 'it gets none in this step'}"
            )

    def add_chunk(self, request: Request, num_tokens: int) -> None:
        """Compute the next `num_tokens` of a sequence. ValueError beyond its tokens or the step's budget."""
        self.check(request, num_tokens, len(request.token_ids) - request.num_computed_tokens)
        self.chunks.append(Chunk(request.request_id, request.index, request.num_computed_tokens, num_tokens))
        self.budget -= num_tokens

    def plan(self, finished: Sequence[Request]) -> StepPlan:
        """The draft as a plan that nobody changes any more; `finished` ended since the step before."""
        return StepPlan(
            chunks=tuple(self.chunks),
            cache_ops=tuple(self.cache_ops),
            preempted=tuple(request.key for request in self.preempted),
            finished=tuple(request.key for request in finished),
        )
