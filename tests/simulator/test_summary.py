"""The figures of a run are those of `mini_engine.metrics`, which count token by token."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_engine import metrics
from mini_engine.simulator import simulate, summarize
from mini_engine.workload import load_trace
from tests.simulator.helpers import run, trace_of

requests = st.tuples(st.integers(0, 40).map(lambda n: n / 8), st.integers(1, 40), st.integers(1, 12))


@settings(max_examples=60)
@given(st.lists(requests, min_size=1, max_size=12).map(sorted), st.integers(10, 20))
def test_latencies_are_those_of_a_count_token_by_token(listed, num_blocks):
    result = run(trace_of(*listed), num_blocks=num_blocks, admission="first_chunk")
    s, slow = summarize(result, ttft=1.5, tpot=0.3), metrics.summarize(result.times())
    for name in ("ttft", "tpot", "itl", "e2e"):
        ours, theirs = getattr(s, name), getattr(slow, name)
        if theirs is None:
            assert ours is None
            continue
        for figure in ("mean", "p50", "p99", "max"):
            assert getattr(ours, figure) == pytest.approx(getattr(theirs, figure), rel=1e-12), (name, figure)
        values = [getattr(r, name) for r in result.times()]
        pooled = [gap for gaps in values for gap in gaps] if name == "itl" else [v for v in values if v is not None]
        assert ours.p90 == pytest.approx(metrics.percentile(pooled, 90), rel=1e-12)
    assert s.output_tokens_per_s == pytest.approx(float(slow.throughput.output_tokens_per_s))
    assert s.total_tokens_per_s == pytest.approx(float(slow.throughput.total_tokens_per_s))
    assert s.requests_per_s == pytest.approx(float(slow.throughput.requests_per_s))
    assert s.hit_rate == pytest.approx(float(slow.hit_rate))
    good = metrics.goodput(result.times(), ttft=1.5, tpot=0.3)
    assert s.goodput.num_met == good.share * len(result.times())
    assert s.goodput.requests_per_s == pytest.approx(float(good.requests_per_s))


def test_a_run_by_hand():
    """Steps of 0.25 s, a budget of 16 tokens: the second request's prompt waits for the first one's."""
    result = run(trace_of((0.0, 16, 3), (0.0, 8, 2)))
    first, second = sorted(result.served, key=lambda each: each.number)
    assert result.token_times(first) == [0.25, 0.5, 0.75]
    assert result.token_times(second) == [0.5, 0.75]
    s = summarize(result, ttft=0.25)
    assert (s.ttft.mean, s.ttft.p50, s.itl.max, s.tpot.mean, s.e2e.max) == (0.375, 0.375, 0.25, 0.25, 0.75)
    assert (s.queueing.p50, s.queueing.max) == (0.125, 0.25)
    assert s.output_tokens_per_s == 5 / 0.75
    assert (s.goodput.num_met, s.goodput.share) == (1, 0.5)
    assert s.mean_in_system == 2


def test_those_turned_away_count_against_goodput():
    result = run(trace_of((0.0, 4, 1), (0.0, 500, 1)))
    s = summarize(result, ttft=10)
    assert (s.num_served, s.num_rejected, s.goodput.share) == (1, 1, 0.5)
    assert "1 request turned away: larger than the pool" in str(s)


def test_a_limit_that_no_step_can_meet_is_named():
    result = simulate(trace_of((0.0, 4, 2)))
    s = summarize(result, tpot=0.001, ttft=0.0)
    assert s.goodput.num_met == 0
    notes = [note for note in s.notes if "no request can meet" in note]
    assert len(notes) == 2
    assert "TPOT <= 0.001 s: the shortest step takes 0.0076" in notes[1]


@pytest.mark.parametrize("limit", [-1, float("nan"), "fast", True])
def test_a_limit_that_is_no_time(limit):
    with pytest.raises(ValueError, match="ttft"):
        summarize(run(trace_of((0.0, 4, 2))), ttft=limit)


def test_a_trace_of_which_nothing_could_run_has_no_figures():
    s = summarize(run(trace_of((0.0, 500, 1))), ttft=1)
    assert (s.num_served, s.ttft, s.itl, s.window, s.output_tokens_per_s, s.mean_in_system) == (
        0,
        None,
        None,
        0,
        None,
        None,
    )
    assert "nan" not in str(s)
    assert s.goodput.share == 0


def test_prefix_hits_are_bounded_by_what_the_trace_shares():
    from mini_engine.workload import prefix_reuse

    trace = load_trace("synthetic_shared_prefix_block16.jsonl").head(60)
    shared, apart = (summarize(simulate(trace, prefix_cache=cache)) for cache in (True, False))
    assert apart.hit_rate == 0
    assert 0.9 < shared.hit_rate <= float(prefix_reuse(trace).by_tokens)
    assert shared.ttft.p50 < apart.ttft.p50


def test_every_figure_is_in_the_json():
    s = summarize(run(trace_of((0.0, 4, 2))), ttft=1)
    assert set(s.to_json()) == {field.name for field in dataclasses.fields(s)}
