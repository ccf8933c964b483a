"""The plan of a step: budget, seats, chunks, counters."""

from __future__ import annotations

from collections import Counter

import pytest

from mini_engine.cache import CacheOp
from mini_engine.scheduling import Chunk, Request, RequestStatus, SampledToken, Scheduler
from mini_engine.scheduling.counters import Counters
from mini_engine.scheduling.plan import Draft
from tests.scheduling.helpers import add, make_scheduler, names, planned, step


def test_prefill_chunks_and_decodes_share_one_budget():
    scheduler = make_scheduler(64, max_num_batched_tokens=10)
    add(scheduler, "a", 3)
    add(scheduler, "b", 12)
    assert planned(step(scheduler)) == {"a": 3, "b": 7}
    assert planned(step(scheduler)) == {"a": 1, "b": 5}
    add(scheduler, "c", 20)
    assert planned(step(scheduler)) == {"a": 1, "b": 1, "c": 8}


@pytest.mark.parametrize(("budget", "num_tokens"), [(100, 3), (100, 0), (1, 2)])
def test_a_chunk_ends_with_the_tokens_of_its_sequence_and_with_the_budget(budget, num_tokens):
    request = Request("a", [1] * 5, 8)
    request.num_computed_tokens = 3
    draft = Draft(budget)
    with pytest.raises(ValueError, match=rf"a chunk of {num_tokens} tokens .* misses 2"):
        draft.add_chunk(request, num_tokens)
    draft.add_chunk(request, min(2, budget))
    assert draft.chunks == [Chunk("a", 0, 3, min(2, budget))]
    assert draft.budget == budget - min(2, budget)


@pytest.mark.parametrize("budget", [2, 7, 10, 100])
def test_no_token_of_the_budget_is_kept_while_somebody_who_runs_misses_one(budget):
    scheduler = make_scheduler(256, max_num_batched_tokens=budget, max_num_seqs=6)
    for name, length in zip("abcdef", (3, 40, 1, 25, 9, 30)):
        add(scheduler, name, length, max_tokens=6)
    while scheduler.requests:
        plan = step(scheduler)
        computed = planned(plan)
        missing = sum(r.num_tokens - r.num_computed_tokens for r in scheduler.running if r.request_id not in computed)
        cut = [r for r in scheduler.running if r.num_tokens - r.num_computed_tokens > 1]
        assert plan.num_tokens == budget or not (missing or cut)


def test_every_computed_token_is_counted_once_as_prefill_or_as_decode():
    scheduler = make_scheduler(64, max_num_batched_tokens=6, enable_prefix_caching=False)
    lengths = {"a": (3, 5), "b": (12, 1), "c": (20, 4)}
    for name, (length, max_tokens) in lengths.items():
        add(scheduler, name, length, max_tokens)
    while scheduler.requests:
        step(scheduler)
    counters = scheduler.counters
    assert counters.num_prefill_tokens == sum(length for length, _ in lengths.values())
    assert counters.num_decode_tokens == sum(max_tokens - 1 for _, max_tokens in lengths.values())


def test_each_operation_is_counted_under_its_own_name():
    counters = Counters()
    counters.add_ops([CacheOp("copy", 1, 2)] * 3 + [CacheOp("swap_out", 1, 2)] * 2 + [CacheOp("swap_in", 1, 2)])
    counters.add_ops([CacheOp("copy", 4, 5)])
    assert (counters.num_copied_blocks, counters.num_swapped_out_blocks, counters.num_swapped_in_blocks) == (4, 2, 1)


@pytest.mark.parametrize("options", [{}, {"preemption": "swap", "num_swap_blocks": 8}])
def test_starts_are_counted_each_time_a_sequence_begins_to_run(options):
    scheduler = make_scheduler(8, enable_prefix_caching=False, max_num_seqs=4, **options)
    requests = [add(scheduler, name, 6, max_tokens=12) for name in "abcd"]
    starts = Counter()
    num_preemptions = 0
    while scheduler.requests:
        before = set(scheduler.running)
        num_preemptions += len(step(scheduler).preempted)
        starts.update(set(scheduler.running) - before)
        assert {r: r.num_starts for r in scheduler.running} == {r: starts[r] for r in scheduler.running}
    assert max(r.num_starts for r in requests) > 1  # somebody was preempted, and came back
    assert scheduler.counters.num_preemptions == num_preemptions


@pytest.mark.parametrize("budget", [1, 2, 3, 5])
def test_a_prompt_is_cut_into_chunks_of_the_budget(budget):
    scheduler = make_scheduler(64, max_num_batched_tokens=budget)
    add(scheduler, "a", 5, max_tokens=1)
    chunks = []
    while scheduler.requests:
        chunks += step(scheduler).chunks
    starts = list(range(0, 5, budget))
    assert chunks == [Chunk("a", 0, start, min(budget, 5 - start)) for start in starts]


def test_no_sequence_starts_unless_every_running_one_can_decode():
    scheduler = make_scheduler(64, max_num_batched_tokens=3)
    for name in "abcd":
        add(scheduler, name, 1, max_tokens=20)
    for _ in range(4):
        plan = step(scheduler)
    assert planned(plan) == {"a": 1, "b": 1, "c": 1}
    assert names(scheduler.waiting) == ["d"]


def test_without_chunked_prefill_a_prompt_waits_for_a_whole_budget():
    scheduler = make_scheduler(64, max_num_batched_tokens=8, enable_chunked_prefill=False)
    add(scheduler, "a", 4)
    add(scheduler, "b", 8, max_tokens=1)
    assert planned(step(scheduler)) == {"a": 4}
    for _ in range(7):
        assert planned(step(scheduler)) == {"a": 1}
    assert planned(step(scheduler)) == {"b": 8}


def test_seats_are_counted_in_branches():
    scheduler = make_scheduler(64, max_num_seqs=4)
    add(scheduler, "a", 3, n=3)
    add(scheduler, "b", 3, n=2)  # would be five
    add(scheduler, "c", 3)
    assert planned(step(scheduler)) == {"a": 3}
    assert [request.key for request in scheduler.running] == [("a", 0), ("a", 1), ("a", 2)]
    assert [chunk[:2] for chunk in step(scheduler).chunks] == [("a", 0), ("a", 1), ("a", 2)]
    assert names(scheduler.waiting) == ["b", "c"]


def test_branches_share_the_prompt_and_copy_its_tail_on_the_first_write():
    scheduler = make_scheduler(64)
    add(scheduler, "a", 6, n=3)
    step(scheduler)
    tables = [request.block_table for request in scheduler.running]
    assert tables[0] == tables[1] == tables[2]
    plan = step(scheduler)
    assert [op.kind for op in plan.cache_ops] == ["copy", "copy"]  # the last to write owns the block alone
    assert len({table[0] for table in tables}) == 1
    assert len({table[1] for table in tables}) == 3


def test_a_fork_shares_every_block_while_there_is_a_seat():
    scheduler = make_scheduler(8, max_num_seqs=2)
    request = add(scheduler, "a", 6)
    step(scheduler)
    branch = scheduler.fork(request, 1)
    assert branch.block_table == request.block_table
    assert branch.token_ids == request.token_ids
    assert branch.token_ids is not request.token_ids
    late = scheduler.fork(request, 2)
    assert (late.status, late.block_table) == (RequestStatus.PREEMPTED, [])


def test_a_resumed_sequence_longer_than_the_budget_is_cut_even_without_chunked_prefill():
    scheduler = make_scheduler(8, max_num_batched_tokens=4, enable_chunked_prefill=False, enable_prefix_caching=False)
    request = add(scheduler, "a", 4, max_tokens=12)
    for _ in range(4):
        step(scheduler)
    scheduler._requeue(request, RequestStatus.PREEMPTED)
    assert planned(step(scheduler)) == {"a": 4}
    assert planned(step(scheduler)) == {"a": 4}


def test_work_per_step_does_not_touch_the_context():
    """A decode reads the end of token_ids and block_table, however long they are: nothing is sliced, copied or walked."""

    class Watched(list):
        touched = 0

        def __getitem__(self, key):
            Watched.touched += len(range(*key.indices(len(self)))) if isinstance(key, slice) else 1
            return super().__getitem__(key)

        def __iter__(self):
            Watched.touched += len(self)
            return super().__iter__()

        def copy(self):
            raise AssertionError("copied")

    touched = {}
    for length in (100, 10_000):
        scheduler = make_scheduler(length // 4 + 8, max_num_batched_tokens=length)
        request = Request("a", list(range(length)), 40)
        request.token_ids = Watched(request.token_ids)
        request.block_table = Watched()
        scheduler.add_request(request)
        step(scheduler)
        Watched.touched = 0
        for _ in range(16):
            plan = scheduler.schedule()
            scheduler.commit(plan, {("a", 0): SampledToken(1)})
        touched[length] = Watched.touched
    assert touched[100] == touched[10_000] > 0


def test_a_request_is_printed_with_what_matters():
    request = Request("a", [1, 2, 3], 4)
    assert repr(request) == "Request('a', branch 0, waiting, 0 of 3 tokens computed, blocks [])"


@pytest.mark.parametrize("size", [0, -1, 3, 9])
def test_a_chunk_size_beyond_tokens_or_budget_is_an_error_and_leaves_nothing_behind(size):
    class Own(Scheduler):
        def chunk_size(self, num_missing, budget, num_behind):
            return size

    scheduler = make_scheduler(8, cls=Own, max_num_batched_tokens=2)
    add(scheduler, "a", 8)
    with pytest.raises(ValueError, match=f"a chunk of {size} tokens .* misses 8, and the step has 2 left; take 1 to 2"):
        scheduler.schedule()
    assert (scheduler.kv.num_free_blocks, scheduler.running, len(scheduler.waiting)) == (8, [], 1)
