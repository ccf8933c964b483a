"""What each way of batching and of keeping memory does, on runs small enough to follow; and that none of them can hang."""

from __future__ import annotations

import pytest

from mini_engine.backends import SimulatedBackend
from mini_engine.cache import KVCacheManager
from mini_engine.catalog import get_gpu, get_model, list_models
from mini_engine.scheduling import Chunk, Request, RequestStatus, Scheduler, StepPlan
from mini_engine.scheduling.plan import Draft
from mini_engine.simulator import Efficiency, NoProgressError, SimulationOptions, StaticBatch, simulate, summarize
from mini_engine.workload import load_trace
from tests.simulator.helpers import FixedTime, run, trace_of

STATIC = {"scheduler": StaticBatch, "enable_chunked_prefill": False, "max_num_batched_tokens": 400}
WHOLE = {"enable_chunked_prefill": False, "max_num_batched_tokens": 400}
# A batch of two with answers of 2 and 6 tokens; the third request comes while it runs.
UNEVEN = trace_of((0.0, 8, 2), (0.0, 3, 6), (0.1, 4, 2))


def times(result) -> list[list[float]]:
    return [result.token_times(each) for each in sorted(result.served, key=lambda each: each.number)]


def test_a_static_batch_lets_nobody_in_until_its_last_sequence_has_ended():
    first, second, third = times(run(UNEVEN, **STATIC))
    assert first == [0.25, 0.5]
    assert second == [0.25, 0.5, 0.75, 1.0, 1.25, 1.5]
    assert third == [1.75, 2.0]


def test_iteration_level_scheduling_lets_the_third_in_at_the_next_step():
    assert times(run(UNEVEN, **WHOLE))[2] == [0.5, 0.75]


def test_padding_is_counted_row_by_row():
    """Two rows of 8 for the prompts, 2 × 5 decodes; then one row of 4 and one decode. Real tokens: 11, 1 + 5, 4 + 1."""
    result = run(UNEVEN, **STATIC)
    assert [step.num_computed for step in result.steps] == [16, 2, 2, 2, 2, 2, 4, 1]
    assert result.usage.num_tokens == 11 + 1 + 5 + 4 + 1
    assert result.usage.num_padding == 5 + 0 + 4
    s = summarize(result)
    assert s.padding_share == 9 / 31
    assert run(UNEVEN, **WHOLE).usage.num_padding == 0


def test_a_step_of_a_static_batch_takes_as_long_as_its_rectangle():
    result = simulate(UNEVEN, batching="static", record=True)
    cost = SimulationOptions().backend().cost
    for step, rows, chunk in ((0, 2, Chunk("", 0, 0, 8)), (3, 2, Chunk("", 0, 10, 1)), (7, 1, Chunk("", 0, 4, 1))):
        logits = sum(times_[0] <= result.steps[step].end <= times_[-1] for times_ in times(result))
        expected = cost.seconds(cost.work([chunk] * rows, logits), rows)
        assert result.steps[step].end - result.steps[step].begin == pytest.approx(expected)


@pytest.mark.parametrize("batching", ["static", "iteration", "chunked"])
@pytest.mark.parametrize("memory", ["reserved", "paged"])
def test_every_way_of_batching_runs_with_and_without_dynamic_memory(batching, memory):
    trace = load_trace("synthetic_azure_conv.csv").head(80)
    result = simulate(trace, batching=batching, memory=memory, num_blocks=3000)
    s = summarize(result)
    assert s.num_served == 80
    assert s.num_preemptions == 0 or memory == "paged"
    assert s.slot_utilization < 0.3 if memory == "reserved" else s.slot_utilization > 0.95


def test_reserved_memory_is_used_as_far_as_tokens_reach():
    """4 regions of 100 tokens; one request of 20 + 5: it holds 100 slots for 5 steps, and fills 20, 21, ... 24 of them."""
    options = SimulationOptions(memory="reserved", reserve_tokens=100, num_blocks=25)
    config = options.config(options.backend())
    assert (config.num_blocks, config.block_size, config.max_model_len) == (4, 100, 100)
    result = run(trace_of((0.0, 20, 5)), num_blocks=4, block_size=100, max_num_batched_tokens=64)
    assert result.slot_utilization == pytest.approx((20 + 21 + 22 + 23 + 24) / 500)
    assert result.block_utilization == 0.25


def test_what_does_not_fit_a_reserved_region_is_turned_away_or_cut_short():
    s = summarize(simulate(trace_of((0.0, 101, 1), (0.0, 90, 20), (0.0, 9, 9)), memory="reserved", reserve_tokens=100))
    assert s.rejections == {"longer than max_model_len": 1}
    assert s.num_cut_short == 1
    assert "1 request cut short" in str(s)


def test_a_long_prompt_stalls_decodes_unless_it_comes_in_chunks():
    """A prompt of 32,000 tokens on an H100: whole it holds everybody up for seconds; in chunks for as long as a chunk takes."""
    trace = trace_of((0.0, 100, 400), (0.5, 32_000, 2))
    whole, chunked = (simulate(trace, model="llama-3.1-8b", batching=way) for way in ("iteration", "chunked"))
    assert summarize(whole).itl.max == pytest.approx(7.15e14 / (0.5 * 989e12), rel=0.01)  # 1.4 s
    assert summarize(chunked).itl.max < 0.15
    assert summarize(chunked).ttft.max > summarize(whole).ttft.max  # each chunk reads weights and prefix again


def test_chunks_read_what_a_whole_prompt_reads_once():
    whole, chunked = (simulate(trace_of((0.0, 8000, 1)), max_num_batched_tokens=n).usage for n in (8000, 1000))
    assert chunked.flops == whole.flops
    weights, kv = 2 * (8_030_261_248 - 128256 * 4096), 131_072
    assert whole.bytes_read == weights + kv * 8000
    assert chunked.bytes_read == 8 * weights + kv * sum(range(1000, 8001, 1000))


CROWD = trace_of(*((0.0, 30, 30) for _ in range(8)))  # 8 sequences that grow together in a pool for 5


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_sequences_that_outgrow_the_pool_are_preempted_and_come_back(preemption):
    swap = {"num_swap_blocks": 200} if preemption == "swap" else {}
    result = run(
        CROWD, num_blocks=64, max_num_batched_tokens=64, enable_prefix_caching=False, preemption=preemption, **swap
    )
    assert result.counters.num_preemptions == sum(each.num_preemptions for each in result.served) > 0
    assert all(each.num_output_tokens == 30 for each in result.served)
    if preemption == "swap":
        assert result.usage.num_again == 0
        assert result.usage.swapped_bytes == 131_072 * 4 * 2 * result.counters.num_swapped_out_blocks > 0
    else:
        assert result.usage.num_again > 0
        assert result.usage.swapped_bytes == 0


def test_swapping_takes_the_time_of_the_bus():
    fast, slow = (
        simulate(CROWD, num_blocks=16, preemption="swap", prefix_cache=False, pcie_bandwidth=rate)
        for rate in (64e9, 64e6)
    )
    moved = fast.usage.swapped_bytes
    assert fast.usage.moving == pytest.approx(moved / 64e9)
    assert slow.usage.moving == pytest.approx(slow.usage.swapped_bytes / 64e6)
    assert moved > 0
    assert fast.end < slow.end


def test_a_request_that_outgrows_the_whole_pool_ends_and_the_others_go_on():
    result = run(trace_of((0.0, 8, 100), (0.0, 4, 5)), num_blocks=5)
    assert result.finish_reasons == {"capacity": 1, "length": 1}
    assert summarize(result).num_cut_short == 1
    assert next(each for each in result.served if each.number == 0).num_output_tokens == 5 * 4 - 8 + 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_model_len": 40}, "longer than max_model_len"),
        ({"num_blocks": 10}, "larger than the pool"),
        (WHOLE | {"max_num_batched_tokens": 40}, "over the token budget"),
    ],
)
def test_what_could_never_run_is_turned_away_and_counted(options, reason):
    result = run(trace_of((0.0, 41, 5), (0.0, 3, 2), (9.0, 50, 5)), **options)
    assert result.rejections == {reason: 2}
    assert [each.number for each in result.rejected] == [0, 2]
    assert len(result.served) == 1
    assert result.end == result.token_times(result.served[0])[-1] == 0.5  # not when the last of them was turned away
    assert "2 requests turned away" in str(summarize(result))


@pytest.mark.parametrize("batching", ["iteration", "static"])
def test_prompts_stay_whole_unless_they_may_be_cut(batching):
    trace = trace_of((0.0, 100, 2), (0.0, 30, 2))
    assert simulate(trace, batching=batching, max_num_batched_tokens=40).rejections == {"over the token budget": 1}
    assert simulate(trace, batching="chunked", max_num_batched_tokens=40).rejections == {}
    many = trace_of(*((0.0, 1500, 2) for _ in range(20)))  # more than any budget that is not made for them
    result = simulate(many, batching=batching, record=True)
    assert all(chunk.num_tokens in (1, 1500) for step in result.steps for chunk in step.chunks)


def test_a_prompt_as_long_as_the_context_has_no_room_for_an_answer_and_is_no_error():
    result = run(trace_of((0.0, 40, 5), (0.0, 39, 5)), max_model_len=40)
    assert [(each.number, each.num_output_tokens) for each in result.served] == [(0, 0), (1, 1)]
    assert summarize(result).num_cut_short == 2


class Idle(Scheduler):
    """Plans nothing, for ever."""

    def schedule(self) -> StepPlan:
        self._draft = Draft(0)
        return StepPlan()


class Restless(Scheduler):
    """Takes everything away from whoever is about to finish a prompt: work is done, nobody gets anywhere."""

    def schedule(self) -> StepPlan:
        for request in list(self.running):
            self._leave(request)
            self.kv.free(request)
            request.num_computed_tokens = 0
            request.status = RequestStatus.PREEMPTED
            self.waiting.add(request)
        return super().schedule()


@pytest.mark.parametrize(("scheduler", "message"), [(Idle, "makes no progress"), (Restless, "in circles")])
def test_a_scheduler_that_gets_nowhere_is_stopped(scheduler, message):
    """The watchdog: an error in a moment, not a hang."""
    trace = trace_of((0.0, 40, 2), (0.0, 40, 2))
    with pytest.raises(NoProgressError, match=message):
        run(trace, scheduler=scheduler, enable_prefix_caching=False)


def test_slow_progress_is_no_circle():
    """A budget of one token: thousands of steps before the first answer, and no complaint."""
    result = run(trace_of((0.0, 3000, 1), (0.0, 10, 1)), num_blocks=1000, max_num_batched_tokens=1)
    assert len(result.served) == 2
    assert result.usage.num_steps >= 3000


def test_a_scheduler_and_a_cache_of_ones_own_are_what_runs():
    asked = {"scheduler": 0, "cache": 0}

    class Mine(Scheduler):
        def admit(self, request: Request) -> bool:
            asked["scheduler"] += 1
            return super().admit(request)

    class MyCache(KVCacheManager):
        def append(self, request, n=1):
            asked["cache"] += 1
            return super().append(request, n)

    simulate(CROWD, scheduler=Mine, kv_manager=MyCache)
    assert asked["scheduler"] >= 7
    assert asked["cache"] >= 8 * 29


def test_ids_of_any_size_share_where_they_are_equal():
    from mini_engine.workload import Trace, TraceRequest

    huge = 2**64 - 1
    listed = [TraceRequest(float(i), 40, 2, (huge, 5, i)) for i in range(3)]
    result = run(Trace("huge", tuple(listed), 16), num_blocks=200)
    assert [each.num_cached_tokens for each in result.served] == [0, 32, 32]
    assert result.usage.num_tokens == 41 + 9 + 9  # the last id covers 8 tokens, not 16


def test_tokens_of_a_trace_without_ids_are_never_shared():
    assert run(trace_of(*((float(i), 40, 2) for i in range(4)))).hit_rate == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batching": "dynamic"}, "batching="),
        ({"memory": "virtual"}, "memory="),
        ({"reserve_tokens": 5}, "reserve_tokens=5 needs memory='reserved'"),
        ({"memory": "reserved", "num_blocks": 3, "reserve_tokens": 1000}, "hold no region of 1000"),
        ({"model": "llama-9"}, "llama-9"),
        ({"max_model_len": 9000}, "max_model_len=9000 is more than the model's 8192"),
        ({"preemption": "swap", "swap_bytes": 100}, "num_swap_blocks"),
        ({"preemption": "swap", "gpu": "tpu-v5e", "tp": 2}, "tpu-v5e has no PCIe bandwidth"),
        ({"max_num_seqs": 0}, "max_num_seqs=0"),
        ({"max_num_seqs": "all", "batching": "static"}, "max_num_seqs='all'"),
        ({"model": "llama-3-70b"}, "no block of 16 tokens fits"),
        ({"model": "jamba-v0.1", "tp": 8}, "cannot be counted"),
        ({"prefix_cache": "yes"}, "prefix_cache="),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises((ValueError, KeyError), match=message):
        simulate(trace_of((0.0, 4, 2)), **options)


@pytest.mark.parametrize("name", list_models())
def test_every_model_of_the_table_can_be_served(name):
    given = {"num_params": 80e9, "num_active_params": 3e9} if get_model(name).layers_without_kv else {}
    trace = trace_of((0.0, 100, 5), (0.0, 700, 3))
    result = simulate(trace, model=name, gpu="b200-sxm", tp=16, num_blocks=200, **given)
    assert result.finish_reasons == {"length": 2}
    assert result.end > result.least_step


def test_a_static_batch_of_any_size_has_a_budget():
    options = SimulationOptions(batching="static", max_num_seqs=10**9)
    assert options.config(options.backend()).max_num_batched_tokens == 10**12


def test_calibrated_machines_can_be_given():
    slow = simulate(trace_of((0.0, 4, 2)), efficiency=Efficiency(step_overhead=1.0))
    assert slow.end == pytest.approx(2.0, abs=0.1)
    backend = SimulatedBackend(get_model("smollm2-135m"), get_gpu("l4"))
    assert run(trace_of((0.0, 4, 2)), backend).end > 0
    assert FixedTime().clock() == 0.0
