"""Static batching, the way of serving before iteration-level scheduling: a batch starts together and ends together."""

from __future__ import annotations

from collections.abc import Sequence

from mini_engine.scheduling import Chunk, Request, Scheduler, StepPlan


class StaticBatch(Scheduler):
    """Nobody joins until the last sequence of the batch has ended.

    The batch is a rectangle: prompts are padded to the longest, and a sequence that is done keeps its row until all are.
    `padded` says what is computed, the padding included; blocks hold real tokens only. Use it without chunked prefill and
    with a token budget that a whole batch fits in.
    """

    _forming = True
    _batch: frozenset[Request] = frozenset()
    _width = _length = 0  # rows of the batch, and columns so far

    def schedule(self) -> StepPlan:
        """Plan a step; newcomers may start only when the batch before has ended."""
        self._forming = not self.running
        return super().schedule()

    def admit(self, request: Request) -> bool:
        """Whether this request joins the batch that is being formed."""
        return self._forming and super().admit(request)

    def padded(self, plan: StepPlan) -> Sequence[Chunk]:
        """The rectangle that this step computes. Call it once for every plan that has chunks, in their order."""
        if not self._batch.issuperset(self.running):
            self._batch, self._width = frozenset(self.running), len(self.running)
            self._length = max(request.num_tokens for request in self.running)
            return [Chunk("", 0, 0, self._length)] * self._width
        self._length += 1
        return [Chunk("", 0, self._length - 1, 1)] * self._width
