"""Nothing is lost and nothing comes from nowhere: tokens, blocks, time, work."""

from __future__ import annotations

import itertools
from collections import defaultdict
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_engine.backends import SimulatedBackend
from mini_engine.catalog import get_gpu, get_model
from mini_engine.roofline import decode_step_time, prefill_flops
from mini_engine.simulator import StaticBatch, simulate, summarize
from mini_engine.workload import Trace, TraceRequest, load_trace
from tests.simulator.helpers import FixedTime, run, trace_of

requests = st.tuples(st.integers(0, 40).map(lambda n: n / 8), st.integers(1, 40), st.integers(1, 12))
OPTIONS = {
    "chunked": {},
    "whole prompts": {"enable_chunked_prefill": False, "max_num_batched_tokens": 64},
    "static": {"scheduler": StaticBatch, "enable_chunked_prefill": False, "max_num_batched_tokens": 400},
    "reserved": {"num_blocks": 5, "block_size": 52, "enable_prefix_caching": False},
    "static, reserved": {
        "scheduler": StaticBatch, "enable_chunked_prefill": False, "max_num_batched_tokens": 400, "num_blocks": 4,
        "block_size": 52,
    },
    "tight": {"num_blocks": 14, "admission": "first_chunk"},
    "tight, swap": {"num_blocks": 14, "admission": "first_chunk", "preemption": "swap", "num_swap_blocks": 20},
    "tight, small host": {"num_blocks": 14, "admission": "first_chunk", "preemption": "swap", "num_swap_blocks": 2},
    "no prefix cache": {"enable_prefix_caching": False, "max_num_seqs": 3},
    "too small for many": {"num_blocks": 7, "policy": "shortest_first"},
    "worst case": {"num_blocks": 14, "admission": "worst_case", "max_num_batched_tokens": 3},
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
@settings(max_examples=25)
@given(st.lists(requests, min_size=1, max_size=12).map(sorted))
def test_the_books_balance(name, listed):
    result = run(trace_of(*listed), **OPTIONS[name])  # its check_books asserts tokens, blocks and clock
    check_computed_tokens(result)
    check_never_idle(result)
    u = result.usage
    assert 0 <= u.used_slots <= u.held_slots
    if result.served:
        per_request = sum(result.token_times(each)[-1] - each.arrival for each in result.served if each.spans)
        if "capacity" in result.finish_reasons:  # it is in the system for a step or more after its last token
            assert u.in_system >= per_request - 1e-9
        else:
            assert u.in_system == pytest.approx(per_request)


def check_computed_tokens(result):
    """Every token of every request is computed, in order, and once unless a preemption took it away."""
    highest: dict[str, int] = defaultdict(int)
    again = 0
    for step in result.steps:
        assert step.num_computed >= sum(chunk.num_tokens for chunk in step.chunks)
        for request_id, _, start, n in step.chunks:
            again += max(0, min(highest[request_id], start + n) - start)
            highest[request_id] = max(highest[request_id], start + n)
    for each in result.served:
        if each.spans:
            assert highest[str(each.number)] == each.num_prompt_tokens + each.num_output_tokens - 1
    assert result.usage.num_again == again
    if not result.counters.num_preemptions:
        assert again == 0


def check_never_idle(result):
    """Between two steps there is a pause only when nobody is in the system."""
    spans = [(each.arrival, result.token_times(each)[-1]) for each in result.served if each.spans]
    for before, after in itertools.pairwise(result.steps):
        assert before.end <= after.begin
        if before.end < after.begin:
            assert not any(arrival < after.begin and before.end < last for arrival, last in spans)
            assert any(arrival == after.begin for arrival, _ in spans) or after.chunks == ()


@pytest.mark.parametrize(
    ("prompt", "output", "budget"), [(1000, 50, 2048), (5000, 20, 2048), (2048, 1, 512), (1, 1, 2048)]
)
def test_one_request_alone_takes_the_closed_form(prompt, output, budget):
    model, gpu = get_model("llama-3-8b"), get_gpu("h100-sxm")
    result = simulate(trace_of((3.0, prompt, output)), max_num_batched_tokens=budget)
    weights = 2 * (8_030_261_248 - 128256 * 4096)
    computed = weights // 2
    seconds, done = 0.0, 0
    while done < prompt:  # the prefill, chunk by chunk
        n = min(budget, prompt - done)
        flops = prefill_flops(computed - 128256 * 4096, n, 32, 32, 128, done=done)
        flops += 2 * 128256 * 4096 * (done + n == prompt)
        seconds += max(flops / (0.5 * 989e12), (weights + 131_072 * (done + n)) / (0.8 * 3.35e12)) + 2e-3
        done += n
    ttft = seconds
    for context in range(prompt + 1, prompt + output):  # the decodes
        step = decode_step_time(weights, 131_072, context, 1, 0.8 * 3.35e12, computed, 0.5 * 989e12, 32, 32, 128)
        seconds += float(step.total) + 2e-3
    (served,) = result.served
    times = result.token_times(served)
    assert times[0] - 3.0 == pytest.approx(ttft, rel=1e-9)
    assert times[-1] - 3.0 == pytest.approx(seconds, rel=1e-9)
    assert result.end == times[-1]
    assert model.vocab_size == 128256
    assert gpu.bf16_flops == 989e12


def test_littles_law():
    """L = λ W: requests in the system, counted step by step, against arrival rate times mean time in the system."""
    trace = load_trace("synthetic_azure_conv.csv").head(400)
    result = simulate(trace, max_num_seqs=12)
    s = summarize(result)
    assert s.e2e is not None
    assert s.requests_per_s is not None
    assert s.queueing.mean > 0.1  # there is a queue
    assert s.mean_in_system == pytest.approx(s.requests_per_s * s.e2e.mean, rel=0.02)


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_a_queue_of_one_waits_as_long_as_theory_says(load):
    """M/D/1: Poisson arrivals, equal service times, one at a time: the mean wait is ρ / (2 (1 - ρ)) of them (Pollaczek-Khinchine)."""
    random, now, listed = Random(7), 0.0, []
    for _ in range(8000):
        now += random.expovariate(load / FixedTime.SECONDS)
        listed.append(TraceRequest(now, 1, 1))
    result = run(Trace("poisson", tuple(listed)), record=False, max_num_seqs=1, enable_prefix_caching=False)
    # A request that comes while a step runs is looked at when the step ends; one alone starts at once.
    mean = sum(each.start - each.arrival for each in result.served) / len(result.served)
    assert mean / FixedTime.SECONDS == pytest.approx(load / (2 * (1 - load)), rel=0.06)


def test_the_same_trace_gives_the_same_result():
    trace = load_trace("synthetic_mooncake_synthetic.jsonl").head(25)
    a, b = (simulate(trace, model="llama-3.1-8b", num_blocks=4000, preemption="swap") for _ in range(2))
    assert summarize(a, ttft=1.0) == summarize(b, ttft=1.0)
    assert a.step_ends == b.step_ends


def test_work_of_a_run_does_not_depend_on_the_size_of_chunks():
    trace = trace_of((0, 3000, 1), (0, 700, 1), (0.5, 2500, 1))
    flops = {simulate(trace, max_num_batched_tokens=budget).usage.flops for budget in (300, 2048, 8192)}
    assert len(flops) == 1
    assert simulate(trace, batching="iteration").usage.flops in flops


def test_a_backend_behind_the_engine_or_the_simulator_keeps_the_same_time():
    backend = SimulatedBackend(get_model("llama-3-8b"), get_gpu("h100-sxm"))
    assert backend.clock() == 0
    backend.wait_until(2.5)
    backend.wait_until(1.0)
    assert backend.clock() == 2.5
    assert backend.block(1) == ()
