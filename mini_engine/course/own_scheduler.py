"""The engine's scheduler, opened for a learner, and `serve`: what a scheduler plans step by step, without a backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mini_engine.cache import KVCacheManager
from mini_engine.config import EngineConfig
from mini_engine.outputs import FinishReason
from mini_engine.scheduling import Request, SampledToken, Scheduler, StepPlan
from mini_engine.simulator import NoProgressError

CIRCLES = 20  # times the tokens that there are to compute, before a run counts as endless
ASKED = 100  # times that one step may be given the same waiting request


class SchedulerLab(Scheduler):
    """The engine's scheduler with two more methods. It runs in LLMEngine and in the simulator as it is."""

    _given: tuple[object, Request | None, int] = (None, None, 0)  # in which step, whom, how often

    def missing(self, request: Request) -> int:
        """Tokens that are known and have no K and V yet: 1 for a request that decodes."""
        return request.num_tokens - request.num_computed_tokens

    def next_in_line(self) -> Request | None:
        """The waiting request whose turn it is; None when nobody waits. One that has outgrown the whole pool ends here.

        NoProgressError when one step is given the same one again and again.
        """
        while self.waiting:
            request = self.waiting.first()
            if self.admission.num_blocks(request.num_tokens) <= self.config.num_blocks:
                self._count(request)
                return request
            self.end(request)
        return None

    def _count(self, request: Request) -> None:
        step, last, times = self._given
        times = times + 1 if step is self._draft and last is request else 1
        self._given = self._draft, request, times
        if times > ASKED:
            raise NoProgressError(
                f"{request.request_id} is first in line, does not start, and is asked for {ASKED} times in one step"
            )


class Job(NamedTuple):
    """A request that comes before step `step`, with `prompt` tokens, and is to get `output` more; `n` answers."""

    prompt: int
    output: int
    step: int = 0
    n: int = 1


def make_scheduler(kind: type[Scheduler], **options: Any) -> Scheduler:
    """A scheduler over an empty cache: whole prompts, blocks of 4, unless `options` of `EngineConfig` say otherwise."""
    config = EngineConfig(
        **{
            "num_blocks": 64,
            "block_size": 4,
            "max_num_seqs": 4,
            "max_num_batched_tokens": 64,
            "enable_prefix_caching": False,
            "enable_chunked_prefill": False,
            **options,
        }
    )
    kv = KVCacheManager(
        config.num_blocks, config.block_size, enable_prefix_caching=config.enable_prefix_caching
    )  # nothing is swapped here
    return kind(config, kv)


def serve(scheduler: Scheduler, jobs: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """Run `jobs` ({"a": (prompt, output), "b": (prompt, output, step)}) to their end: for each step, tokens by request.

    NoProgressError when a step plans nothing although somebody waits, or when the same is computed over and over.
    """
    return [tokens_of(plan) for plan in plans(scheduler, jobs)]


def tokens_of(plan: StepPlan) -> dict[str, int]:
    """Tokens that a step computes, by request; "a.1" is the second answer to a."""
    names = [chunk.request_id if chunk.index == 0 else f"{chunk.request_id}.{chunk.index}" for chunk in plan.chunks]
    if len(set(names)) < len(names):
        raise ValueError(f"a request stands twice in one step: {names}")
    return dict(zip(names, (chunk.num_tokens for chunk in plan.chunks)))


def plans(scheduler: Scheduler, jobs: Mapping[str, Sequence[int]]) -> list[StepPlan]:
    """The same, as the plans themselves. Made-up prompts share no prefix."""
    todo = sorted(((name, Job(*job)) for name, job in jobs.items()), key=lambda each: each[1].step)
    most = CIRCLES * sum((job.prompt + job.output) * job.n for _, job in todo) + CIRCLES
    found: list[StepPlan] = []
    num_computed = number = 0
    while todo or scheduler.requests:
        while todo and todo[0][1].step <= len(found):
            name, job = todo.pop(0)
            tokens = [1000 * number + at for at in range(job.prompt)]
            scheduler.add_request(Request(name, tokens, job.output, n=job.n))
            number += 1
        if not scheduler.requests:
            found.append(StepPlan())
            continue
        plan = scheduler.schedule()
        if not plan.chunks and not plan.finished:
            waiting = ", ".join(key[0] for key in scheduler.requests)
            raise NoProgressError(f"step {len(found)}: nothing is planned, and {waiting} would wait for ever")
        scheduler.commit(plan, _sampled(scheduler, plan))
        found.append(plan)
        num_computed += plan.num_tokens
        if num_computed > most or len(found) > most:
            unfinished = ", ".join(key[0] for key in scheduler.requests)
            raise NoProgressError(f"{len(found)} steps computed {num_computed} tokens, and {unfinished} never ends")
    return found


def _sampled(scheduler: Scheduler, plan: StepPlan) -> dict[tuple[str, int], SampledToken]:
    """A token for each sequence that is computed to its end, and for the branches that come out of it."""
    tokens = {}
    for request_id, index, start, num_tokens in plan.chunks:
        request = scheduler.requests[request_id, index]
        if start + num_tokens == request.num_tokens:
            reason: FinishReason | None = "length" if request.num_tokens + 1 >= request.max_num_tokens else None
            for branch in range(index, index + 1 + request.num_pending_branches):
                tokens[request_id, branch] = SampledToken(0, reason)
    return tokens
