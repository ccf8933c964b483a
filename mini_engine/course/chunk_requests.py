"""Drive a scheduler without an engine: every step's chunks as plain numbers, and a toy model that tells when one was wrong.

run = ChunkRun(Scheduler, budget=8)
run.add("a", range(20), 3)                    # 20 prompt tokens, 3 to answer
run.step()                                    # [("a", 0, 8)]: name, first token, number of tokens
run.finish()                                  # the steps that are left
run.answer("a") == right_answer(range(20), 3)
"""

from __future__ import annotations

from collections.abc import Sequence

from mini_engine.cache import KVCacheManager
from mini_engine.config import EngineConfig
from mini_engine.scheduling import Request, SampledToken, Scheduler

MOST_STEPS = 300


def next_token(history: Sequence[int | None]) -> int:
    """What the toy model says after these tokens; None stands for one that was never computed."""
    mixed = 7
    for token in history:
        mixed = (mixed * 31 + (997 if token is None else token) + 1) % 65_521
    return mixed % 1000


def right_answer(prompt: Sequence[int], num_tokens: int) -> list[int]:
    """The answer when every token was computed, in one piece."""
    known = list(prompt)
    for _ in range(num_tokens):
        known.append(next_token(known))
    return known[len(list(prompt)) :]


class ChunkRun:
    """A scheduler with a large cache and blocks of 4. A smaller priority number is served first."""

    def __init__(self, scheduler: type[Scheduler], budget: int) -> None:
        config = EngineConfig(num_blocks=512, block_size=4, max_num_batched_tokens=budget, policy="priority")
        self.scheduler = scheduler(config, KVCacheManager(config.num_blocks, config.block_size))
        self.budget = budget
        self._computed: dict[str, dict[int, int]] = {}
        self._requests: dict[str, Request] = {}
        self._num_steps = 0

    def add(self, name: str, prompt: Sequence[int], max_tokens: int, priority: int = 0) -> None:
        """Queue a request. ValueError for a name that is taken, an empty prompt, or no token to answer."""
        prompt = list(prompt)
        if name in self._requests or not prompt or max_tokens < 1:
            raise ValueError(f"add({name!r}): a new name, a prompt and at least one token to answer, please")
        request = self._requests[name] = Request(name, prompt, max_tokens, priority=priority)
        self._computed[name] = {}
        self.scheduler.add_request(request)

    def step(self) -> list[tuple[str, int, int]]:
        """Plan, compute, commit: the chunks of the step, (name, first token, number of tokens). [] when all is done."""
        if not self.scheduler.requests:
            return []
        self._num_steps += 1
        if self._num_steps > MOST_STEPS:
            raise AssertionError(f"no end after {MOST_STEPS} steps")
        plan = self.scheduler.schedule()
        tokens = {}
        for name, _, start, num_tokens in plan.chunks:
            request, computed, end = self._requests[name], self._computed[name], start + num_tokens
            if start == request.num_cached_tokens > 0 and not computed:  # found in the cache: computed by somebody else
                computed.update(enumerate(request.token_ids[:start]))
            computed.update((at, request.token_ids[at]) for at in range(start, end))
            token = next_token([computed.get(at) for at in range(end)])
            tokens[name, 0] = SampledToken(token, "length" if end + 1 >= request.max_num_tokens else None)
        self.scheduler.commit(plan, tokens)
        return [(name, start, num_tokens) for name, _, start, num_tokens in plan.chunks]

    def finish(self) -> list[list[tuple[str, int, int]]]:
        """Step until nobody is left; AssertionError when that never happens."""
        steps = []
        while self.scheduler.requests:
            steps.append(self.step())
        return steps

    def answer(self, name: str) -> list[int]:
        """The tokens that were sampled for a request so far. KeyError for a name that was never added."""
        if name not in self._requests:
            raise KeyError(f"answer({name!r}): no such request; there are {', '.join(self._requests) or 'none'}")
        request = self._requests[name]
        return request.token_ids[request.num_prompt_tokens :]
