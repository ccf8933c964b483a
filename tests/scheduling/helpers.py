"""A scheduler alone, with a made-up model: the next token is always 1."""

from __future__ import annotations

from typing import Any

from mini_engine.cache import KVCacheManager
from mini_engine.config import EngineConfig
from mini_engine.engine.invariants import check_plan, check_queues
from mini_engine.scheduling import Request, SampledToken, Scheduler, StepPlan


def make_scheduler(
    num_blocks: int, block_size: int = 4, *, cls: type[Scheduler] = Scheduler, **options: Any
) -> Scheduler:
    config = EngineConfig(num_blocks=num_blocks, block_size=block_size, **options)
    kv = KVCacheManager(
        num_blocks,
        block_size,
        enable_prefix_caching=config.enable_prefix_caching,
        num_swap_blocks=config.num_swap_blocks,
    )
    return cls(config, kv)


def add(scheduler: Scheduler, name: str, length: int, max_tokens: int = 8, **options: Any) -> Request:
    """A prompt of so many tokens that no other name's prompt begins with."""
    request = Request(name, [sum(name.encode())] * length, max_tokens, **options)
    scheduler.add_request(request)
    return request


def step(scheduler: Scheduler, token_id: int = 1) -> StepPlan:
    """Plan, pretend, commit; a sequence ends by length."""
    plan = scheduler.schedule()
    check_plan(scheduler, plan)
    result = {}
    for chunk in plan.chunks:
        request = scheduler.requests[chunk.request_id, chunk.index]
        last = request.num_tokens + 1 >= request.max_num_tokens
        for index in (chunk.index, *range(1, request.num_pending_branches + 1)):
            result[chunk.request_id, index] = SampledToken(token_id, "length" if last else None)
    scheduler.commit(plan, result)
    check_queues(scheduler)
    return plan


def planned(plan: StepPlan) -> dict[str, int]:
    """request id -> tokens of its chunk."""
    return {chunk.request_id: chunk.num_tokens for chunk in plan.chunks}


def names(requests: Any) -> list[str]:
    return [request.request_id for request in requests]
