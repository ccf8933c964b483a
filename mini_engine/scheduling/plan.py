"""What one step will do, decided before it is done (`StepPlan`), and what came of it (`SampledToken`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mini_engine.cache import CacheOp
from mini_engine.outputs import FinishReason


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
