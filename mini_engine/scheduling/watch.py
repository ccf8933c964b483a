"""The watchdog: schedulers that go round in circles are stopped, so that no run hangs."""

from __future__ import annotations

from collections.abc import Collection

from mini_engine.scheduling.plan import StepPlan
from mini_engine.scheduling.request import Request

WATCHED = 256  # steps without a token for anybody, after which it is asked whether there is progress at all


class NoProgressError(RuntimeError):
    """The scheduler goes round in circles: it would never end."""


class Watch:
    """Counts what is computed without a token for anybody."""

    def __init__(self) -> None:
        self._num_steps = self._num_tokens = 0

    def step(self, plan: StepPlan, gained: bool, requests: Collection[Request]) -> None:
        """NoProgressError when so much was computed since the last token that it must be the same, again and again.

        gained: whether a sequence of `requests` got a token in this step, or ended.
        """
        if gained:
            self._num_steps = self._num_tokens = 0
            return
        self._num_steps += 1
        self._num_tokens += plan.num_tokens
        if self._num_steps % WATCHED == 0:
            known = sum(request.num_tokens for request in requests)
            if self._num_tokens > 4 * known:
                raise NoProgressError(
                    f"{self._num_steps} steps computed {self._num_tokens} tokens of {len(requests)} requests "
                    f"that have {known}, and none gained a token: they are preempted in circles"
                )
