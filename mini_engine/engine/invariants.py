"""What must be true of an engine: between any two steps (`check_all`), and of a plan before it is executed (`check_plan`).

The cache's own invariants are in `mini_engine.cache.invariants`; here are those of queues, chunks and progress.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mini_engine.cache.invariants import check_idle, check_manager, check_ops
from mini_engine.scheduling import RequestStatus, Scheduler, StepPlan

if TYPE_CHECKING:
    from mini_engine.engine import LLMEngine


def check_all(engine: LLMEngine) -> None:
    """AssertionError naming the invariant, the block and the request, if anything is inconsistent."""
    scheduler, kv = engine.scheduler, engine.kv_manager
    check_queues(scheduler)
    check_manager(kv, scheduler.requests.values())
    if not scheduler.requests:
        check_idle(kv)
    for request in scheduler.requests.values():
        computed, size = request.num_computed_tokens, kv.block_size
        assert computed < request.num_tokens, f"computed tokens: {request} has none left to compute"
        num_blocks = -(-computed // size) if request.status is RequestStatus.RUNNING else 0
        assert len(request.block_table) == num_blocks, f"block table: {request} should hold {num_blocks} blocks"


def check_queues(scheduler: Scheduler) -> None:
    """Every sequence is in exactly one queue, and its status says which."""
    places = Counter([*scheduler.waiting, *scheduler.running, *scheduler.ending])
    for request, times in places.items():
        assert times == 1, f"one queue: {request} is in {times}"
        assert scheduler.requests.get(request.key) is request, f"one queue: {request} is queued, but not known"
    for request in scheduler.requests.values():
        assert places[request], f"one queue: {request} is in none"
        runs = request in scheduler.running
        assert runs == (request.status is RequestStatus.RUNNING), f"one queue: {request} is not where its status says"
    ranks = [request.rank for request in scheduler.running]
    assert ranks == sorted(ranks), f"order of service: the running sequences have ranks {ranks}"
    seats, most = scheduler.num_seats_taken, scheduler.config.max_num_seqs
    assert seats <= most, f"seats: {seats} taken of max_num_seqs={most}"


def check_plan(scheduler: Scheduler, plan: StepPlan) -> None:
    """A plan makes progress within its budget, and writes only where its sequences may write."""
    budget = scheduler.config.max_num_batched_tokens
    assert plan.num_tokens <= budget, f"budget: {plan.num_tokens} tokens planned of max_num_batched_tokens={budget}"
    if scheduler.requests:
        assert plan.chunks or plan.finished, "progress: the plan computes nothing and ends nobody"
    scheduled: dict[tuple[str, int], int] = {}
    for request_id, index, start, num_tokens in plan.chunks:
        key = (request_id, index)
        assert key not in scheduled, f"chunks: {key} has two"
        request = scheduler.requests[key]
        assert request in scheduler.running, f"chunks: {request} does not run"
        assert start == request.num_computed_tokens, f"chunks: {request} is to start at {start}"
        left = request.num_tokens - start
        assert 1 <= num_tokens <= left, f"chunks: {request} is to compute {num_tokens} tokens"
        scheduled[key] = num_tokens
    if len(scheduler.running) <= budget and not plan.preempted:
        idle = [request for request in scheduler.running if request.key not in scheduled]
        assert not idle, f"fairness: the budget has a token for each, but {idle} get none"
    check_manager(scheduler.kv, scheduler.requests.values(), scheduled)
    check_ops(scheduler.kv, plan.cache_ops)
