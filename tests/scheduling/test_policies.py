"""Who starts first, who is served first, who makes room, and what must fit before anybody starts."""

from __future__ import annotations

import random

import pytest

from mini_engine.scheduling import POLICIES, Request, RequestStatus, Scheduler
from mini_engine.scheduling.queues import WaitingQueue
from tests.scheduling.helpers import add, make_scheduler, names, planned, step


def order_of_starts(policy: str, arrivals: list[tuple[str, int, int]]) -> list[str]:
    """Run (name, length, priority) one at a time; the order in which they start."""
    scheduler = make_scheduler(64, max_num_seqs=1, policy=policy)
    for name, length, priority in arrivals:
        add(scheduler, name, length, max_tokens=1, priority=priority)
    started = []
    while scheduler.requests:
        started += planned(step(scheduler))
    return started


ARRIVALS = [("a", 9, 1), ("b", 2, 1), ("c", 5, 0), ("d", 2, -3)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("fcfs", ["a", "b", "c", "d"]), ("shortest_first", ["b", "d", "c", "a"]), ("priority", ["d", "c", "a", "b"])],
)
def test_who_starts_first(policy, expected):
    assert order_of_starts(policy, ARRIVALS) == expected


@pytest.mark.parametrize(("policy", "victim"), [("fcfs", "c"), ("shortest_first", "a"), ("priority", "b")])
def test_who_makes_room(policy, victim):
    """Three sequences fill the pool, in whatever order they started; the next token needs a block of somebody."""
    scheduler = make_scheduler(6, policy=policy, max_num_batched_tokens=64)
    for name, length, priority in (("a", 8, 0), ("b", 8, 2), ("c", 8, 1)):
        add(scheduler, name, length - (policy == "shortest_first") * (name != "a"), priority=priority)
    preempted = ()
    while not preempted:
        preempted = step(scheduler).preempted
    assert preempted[0] == (victim, 0)


def test_priorities_are_served_first_even_when_they_came_last():
    """An unimportant sequence that started long ago never takes a block from an important one."""
    scheduler = make_scheduler(6, policy="priority")
    add(scheduler, "low", 8, max_tokens=12, priority=5)
    step(scheduler)
    add(scheduler, "high", 8, max_tokens=12, priority=0)
    while "high" in names(scheduler.requests.values()):
        plan = step(scheduler)
        assert ("high", 0) not in plan.preempted
    assert scheduler.counters.num_preemptions > 0


def test_the_victim_can_be_chosen_by_a_subclass():
    class OldestFirst(Scheduler):
        def pick_victim(self, running):
            return running[0]

    scheduler = make_scheduler(4, cls=OldestFirst)
    add(scheduler, "a", 8, max_tokens=4)
    add(scheduler, "b", 8, max_tokens=4)
    step(scheduler)
    assert step(scheduler).preempted == (("a", 0),)
    while scheduler.requests:
        step(scheduler)


def test_pick_victim_answers_for_any_list():
    requests = []
    for number, priority in enumerate((3, 7, 7, 1)):
        request = Request(f"r{number}", [1], 1, priority=priority)
        request.arrival = number
        requests.append(request)
    assert make_scheduler(4).pick_victim(requests) is requests[3]
    assert make_scheduler(4, policy="priority").pick_victim(requests) is requests[2]


@pytest.mark.parametrize("policy", ["fcfs", "priority", "shortest_first"])
def test_the_queue_is_a_sorted_list_that_things_leave_from_anywhere(policy):
    rng = random.Random(policy)
    queue, inside = WaitingQueue(POLICIES[policy]()), []
    for number in range(600):
        if len(inside) > 8 or (inside and rng.random() < 0.4):
            gone = rng.choice(inside)
            queue.remove(gone)
            inside.remove(gone)
            if rng.random() < 0.5:
                gone.status = RequestStatus.PREEMPTED
                gone.token_ids += [0] * rng.randrange(9)  # it may have run meanwhile
                queue.add(gone)
                inside.append(gone)
        else:
            request = Request(f"r{number}", [0] * rng.randrange(1, 9), 1, priority=rng.randrange(3))
            request.arrival = number
            queue.add(request)
            inside.append(request)
        assert len(queue) == len(inside)
        assert set(queue) == set(inside)
        if inside:
            assert queue.first() is min(inside, key=POLICIES[policy]().queue_order)


# -- admission ---------------------------------------------------------------------------------------------------------


def test_whole_prompt_admission_counts_the_blocks_that_started_prompts_still_need():
    scheduler = make_scheduler(6, max_num_batched_tokens=8)
    add(scheduler, "a", 16)  # four blocks, two of them not taken before the second step
    add(scheduler, "b", 12)
    assert planned(step(scheduler)) == {"a": 8}
    assert scheduler.kv.num_free_blocks == 4
    assert planned(step(scheduler)) == {"a": 8}


def test_first_chunk_admission_starts_on_what_is_free_now():
    scheduler = make_scheduler(6, max_num_batched_tokens=9, admission="first_chunk")
    add(scheduler, "a", 4)
    add(scheduler, "b", 24)
    assert planned(step(scheduler)) == {"a": 4, "b": 5}


def test_first_chunk_admission_counts_from_the_hit_on():
    scheduler = make_scheduler(7, max_num_batched_tokens=9, admission="first_chunk", watermark=0.5)  # three kept free
    first = add(scheduler, "a", 8, max_tokens=9)
    step(scheduler)
    scheduler.add_request(Request("b", [*first.token_ids[:8], *range(8)], 2))
    assert planned(step(scheduler)) == {"a": 1}  # b hits two blocks and needs two more, one of four may be taken
    while first.key in scheduler.requests:
        step(scheduler)
    assert planned(step(scheduler)) == {"b": 8}


def test_worst_case_admission_never_preempts():
    scheduler = make_scheduler(7, admission="worst_case")
    for name in "abc":
        add(scheduler, name, 5, max_tokens=8)  # 12 tokens with K/V: three blocks each
    assert planned(step(scheduler)) == {"a": 5, "b": 5}
    while scheduler.requests:
        step(scheduler)
    assert scheduler.counters.num_preemptions == 0


def test_worst_case_admission_counts_every_branch():
    scheduler = make_scheduler(8, admission="worst_case")
    add(scheduler, "a", 6, max_tokens=7, n=3)  # one shared block, then two for each branch: seven
    add(scheduler, "b", 3, max_tokens=2)  # one
    add(scheduler, "c", 3, max_tokens=2)
    assert planned(step(scheduler)) == {"a": 6, "b": 3}
    while scheduler.requests:
        step(scheduler)
    assert scheduler.counters.num_preemptions == 0


def test_worst_case_admission_lets_one_start_that_may_not_fit():
    """Alone, anything that fits today may start: the worst case need not come."""
    scheduler = make_scheduler(2, admission="worst_case")
    add(scheduler, "a", 4, max_tokens=1000)
    assert planned(step(scheduler)) == {"a": 4}


def test_the_watermark_is_kept_free_beside_others_only():
    scheduler = make_scheduler(10, watermark=0.3)
    add(scheduler, "a", 36)  # nine of ten blocks: alone it may
    assert planned(step(scheduler)) == {"a": 36}
    scheduler = make_scheduler(10, watermark=0.3)
    add(scheduler, "a", 16)
    add(scheduler, "b", 13)  # four and four: two would be left
    add(scheduler, "c", 1)
    assert planned(step(scheduler)) == {"a": 16}
    scheduler = make_scheduler(10, watermark=0.3)
    add(scheduler, "a", 16)
    add(scheduler, "b", 12)  # four and three: three are left
    assert planned(step(scheduler)) == {"a": 16, "b": 12}


def test_a_hit_needs_no_block_of_its_own_unless_nobody_holds_it():
    scheduler = make_scheduler(4)
    first = add(scheduler, "a", 8, max_tokens=5)
    step(scheduler)
    scheduler.add_request(Request("b", [*first.token_ids[:8], 7], 2))
    plan = step(scheduler)  # a grows to three blocks, b shares two of them and takes the last one
    assert planned(plan) == {"a": 1, "b": 1}
    assert scheduler.kv.num_free_blocks == 0


def test_nobody_starts_in_a_step_that_preempts():
    scheduler = make_scheduler(4, policy="priority")
    add(scheduler, "a", 8)
    add(scheduler, "b", 8)
    step(scheduler)
    add(scheduler, "c", 1, priority=-1)  # first in line, and there will be a block for it
    plan = step(scheduler)
    assert plan.preempted == (("b", 0),)
    assert scheduler.kv.num_free_blocks == 1
    assert planned(plan) == {"a": 1}
    assert planned(step(scheduler)) == {"c": 1, "a": 1}


@pytest.mark.parametrize("options", [{}, {"preemption": "swap", "num_swap_blocks": 9}])
@pytest.mark.parametrize("answer", [True, False])
def test_a_subclass_may_admit_anybody_or_nobody(options, answer):
    """Whatever `admit` says, blocks are never given out twice, and everybody gets through."""

    class Custom(Scheduler):
        def admit(self, request):
            return answer

    scheduler = make_scheduler(5, cls=Custom, max_num_batched_tokens=16, **options)
    for number, name in enumerate("abcdef"):
        add(scheduler, name, 5 + number, max_tokens=5)
    most_running = 0
    for _ in range(200):
        if scheduler.requests:
            step(scheduler)
            most_running = max(most_running, len(scheduler.running))
    assert not scheduler.requests
    assert scheduler.kv.num_free_blocks == 5
    assert (most_running > 1) == answer


# -- what making room means --------------------------------------------------------------------------------------------


def test_recompute_keeps_the_tokens_and_starts_over():
    scheduler = make_scheduler(4, enable_prefix_caching=False)
    add(scheduler, "a", 8, max_tokens=3)
    victim = add(scheduler, "b", 8, max_tokens=3)
    step(scheduler)
    step(scheduler)
    assert (victim.num_computed_tokens, victim.num_tokens, victim.block_table) == (0, 9, [])
    step(scheduler)
    assert planned(step(scheduler)) == {"b": 9}


def test_swap_keeps_the_computed_tokens():
    scheduler = make_scheduler(4, preemption="swap", num_swap_blocks=2)
    add(scheduler, "a", 8, max_tokens=3)
    victim = add(scheduler, "b", 8, max_tokens=3)
    step(scheduler)
    plan = step(scheduler)
    assert [op.kind for op in plan.cache_ops] == ["swap_out", "swap_out"]
    assert (victim.status, victim.num_computed_tokens) == (RequestStatus.SWAPPED, 8)
    step(scheduler)
    plan = step(scheduler)
    assert [op.kind for op in plan.cache_ops] == ["swap_in", "swap_in"]
    assert planned(plan) == {"b": 1}


@pytest.mark.parametrize(("num_swap_blocks", "status"), [(1, RequestStatus.PREEMPTED), (2, RequestStatus.SWAPPED)])
def test_swap_falls_back_to_recompute_one_block_short(num_swap_blocks, status):
    scheduler = make_scheduler(4, preemption="swap", num_swap_blocks=num_swap_blocks)
    add(scheduler, "a", 8)
    victim = add(scheduler, "b", 8)
    step(scheduler)
    step(scheduler)
    assert victim.status is status
