"""What commit and rollback make of a plan: only commit advances anything, and nothing doubtful is kept."""

from __future__ import annotations

import dataclasses

import pytest

from mini_engine.scheduling import Chunk, RequestStatus, SampledToken, Scheduler, StepPlan
from tests.scheduling.helpers import add, make_scheduler, planned, step


def test_a_plan_cannot_be_changed():
    plan = StepPlan()
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.chunks = (Chunk("a", 0, 0, 1),)
    with pytest.raises(AttributeError):
        Chunk("a", 0, 0, 1).start = 5
    assert hash(plan) == hash(StepPlan())


def test_only_commit_advances_anything():
    scheduler = make_scheduler(8)
    request = add(scheduler, "a", 9)
    plan = scheduler.schedule()
    assert (request.num_computed_tokens, request.num_tokens, scheduler.kv.num_cached_blocks) == (0, 9, 0)
    scheduler.commit(plan, {("a", 0): SampledToken(5)})
    assert (request.num_computed_tokens, request.num_tokens, scheduler.kv.num_cached_blocks) == (9, 10, 2)


def test_one_plan_at_a_time():
    scheduler = make_scheduler(8)
    add(scheduler, "a", 3)
    plan = scheduler.schedule()
    with pytest.raises(RuntimeError, match="neither committed nor rolled back"):
        scheduler.schedule()
    scheduler.rollback(plan)
    with pytest.raises(RuntimeError, match="no plan"):
        scheduler.rollback(plan)
    assert planned(step(scheduler)) == {"a": 3}


def test_a_rolled_back_start_waits_again_as_if_nothing_had_been():
    scheduler = make_scheduler(8, max_num_batched_tokens=4)
    first, second = add(scheduler, "a", 6), add(scheduler, "b", 2)
    plan = scheduler.schedule()
    scheduler.rollback(plan)
    assert scheduler.kv.num_free_blocks == 8
    assert [request.status for request in (first, second)] == [RequestStatus.WAITING] * 2
    assert scheduler.schedule() == plan


def test_a_rolled_back_decode_keeps_its_computed_tokens_and_no_block_beyond():
    scheduler = make_scheduler(8)
    request = add(scheduler, "a", 8)
    step(scheduler)
    assert scheduler.kv.num_free_blocks == 6
    plan = scheduler.schedule()  # the ninth token takes a third block
    assert scheduler.kv.num_free_blocks == 5
    scheduler.rollback(plan)
    assert (request.status, request.num_computed_tokens) == (RequestStatus.RUNNING, 8)
    assert scheduler.kv.num_free_blocks == 6


def test_a_rolled_back_copy_is_not_trusted():
    scheduler = make_scheduler(16)
    add(scheduler, "a", 6, n=2)
    step(scheduler)
    plan = scheduler.schedule()
    assert [op.kind for op in plan.cache_ops] == ["copy"]
    scheduler.rollback(plan)
    assert [request.status for request in scheduler.requests.values()].count(RequestStatus.PREEMPTED) == 1
    assert scheduler.counters.num_preemptions == 0
    assert scheduler.counters.num_copied_blocks == 0


def test_a_rolled_back_swap_is_recomputed():
    scheduler = make_scheduler(4, preemption="swap", num_swap_blocks=4)
    add(scheduler, "a", 8)
    victim = add(scheduler, "b", 8)
    step(scheduler)
    plan = scheduler.schedule()
    assert plan.preempted == (("b", 0),)
    assert victim.status is RequestStatus.SWAPPED
    scheduler.rollback(plan)
    assert (victim.status, victim.num_computed_tokens) == (RequestStatus.PREEMPTED, 0)
    assert scheduler.kv.num_free_swap_blocks == 4


def test_an_error_while_planning_leaves_the_scheduler_usable():
    class Broken(Scheduler):
        def pick_victim(self, running):
            raise KeyError("oops")

    scheduler = make_scheduler(4, cls=Broken)
    add(scheduler, "a", 8)
    add(scheduler, "b", 8)
    step(scheduler)
    with pytest.raises(KeyError):
        scheduler.schedule()
    Broken.pick_victim = Scheduler.pick_victim
    while scheduler.requests:
        step(scheduler)
    assert scheduler.kv.num_free_blocks == 4
