"""The definitions, on times small enough to check by hand, and against NumPy's percentiles."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mini_engine.metrics import (
    RequestTimes,
    block_utilization,
    goodput,
    hit_rate,
    percentile,
    slot_utilization,
    summarize,
    summarize_latency,
    throughput,
)

A = RequestTimes(arrival=1, token_times=(3, 4, 7), num_prompt_tokens=10, num_cached_tokens=8)
B = RequestTimes(arrival=2, token_times=(9,), num_prompt_tokens=6)


def test_latencies_of_one_request():
    assert (A.ttft, A.itl, A.tpot, A.e2e, A.e2e_per_token) == (2, [1, 3], 2, 6, 2)
    assert (B.ttft, B.itl, B.tpot, B.e2e) == (7, [], None, 7)


gaps = st.lists(st.fractions(0, 10), min_size=1, max_size=20)


@given(st.fractions(0, 100), gaps)
def test_end_to_end_is_ttft_and_the_gaps(arrival, gaps):
    times, now = [], arrival
    for gap in gaps:
        times.append(now := now + gap)
    request = RequestTimes(arrival, tuple(times))
    assert request.e2e == request.ttft + sum(request.itl)
    if request.num_output_tokens > 1:
        assert request.e2e == request.ttft + (request.num_output_tokens - 1) * request.tpot
        assert request.e2e_per_token >= request.tpot * Fraction(len(gaps) - 1, len(gaps))


def test_throughput_over_first_arrival_to_last_completion():
    rate = throughput([A, B])
    assert (rate.window, rate.output_tokens_per_s, rate.total_tokens_per_s) == (8, 0.5, 2.5)
    assert rate.requests_per_s == 0.25


def test_a_window_without_length_has_no_rate():
    rate = throughput([RequestTimes(5, (5,))])
    assert (rate.window, rate.output_tokens_per_s, rate.requests_per_s) == (0, None, None)
    assert "nan" not in str(summarize([RequestTimes(5, (5,))]))


def test_goodput_needs_every_limit_met():
    assert goodput([A, B], ttft=2).share == Fraction(1, 2)
    assert goodput([A, B], ttft=7).share == 1
    assert goodput([A, B], ttft=7, tpot=1).share == Fraction(1, 2)  # B has one token: no TPOT to miss
    assert goodput([A, B], e2e=6).requests_per_s == 1 / 8
    assert goodput([A, B], ttft=2, tpot=3).limits == {"ttft": 2, "tpot": 3}
    assert goodput([A, B], ttft=0).share == 0
    with pytest.raises(ValueError, match="give at least one of ttft, tpot, e2e"):
        goodput([A])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 100))
def test_percentiles_are_numpys(values, q):
    assert percentile(values, q) == pytest.approx(float(np.percentile(values, q)), rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("q", [-1, 100.5, float("nan")])
def test_percentiles_outside_the_range_are_refused(q):
    with pytest.raises(ValueError, match="q="):
        percentile([1], q)


def test_summaries_leave_out_what_is_undefined():
    summary = summarize([A, B])
    assert summary.tpot.mean == summary.tpot.max == 2
    assert (summary.itl.mean, summary.itl.max) == (2, 3)
    assert summary.hit_rate == Fraction(8, 16)
    assert summarize_latency([None, None]) is None
    text = str(summarize([B]))
    assert "TPOT  -" in text
    assert not re.search(r"\b(nan|inf|None)\b", text)


def test_no_requests_have_no_metrics():
    for function in (throughput, summarize, lambda r: goodput(r, ttft=1)):
        with pytest.raises(ValueError, match="empty"):
            function([])


@pytest.mark.parametrize(
    ("arrival", "times", "named"),
    [
        (1, (), "token_times is empty"),
        (2, (1,), r"token_times\[0\]=1 is not a time after arrival=2"),
        (0, (1, 3, 2), r"token_times\[2\]=2 is not a time after token_times\[1\]=3"),
        (0, (float("nan"),), r"token_times\[0\]"),
        (0, (float("inf"),), r"token_times\[0\]"),
    ],
)
def test_times_out_of_order_are_refused(arrival, times, named):
    with pytest.raises(ValueError, match=named):
        RequestTimes(arrival, times)


def test_counts_out_of_range_are_refused():
    with pytest.raises(ValueError, match="num_cached_tokens"):
        RequestTimes(0, (1,), num_prompt_tokens=3, num_cached_tokens=4)
    with pytest.raises(ValueError, match="used_slots"):
        slot_utilization(17, 16)
    with pytest.raises(ValueError, match="pool_blocks"):
        block_utilization(0, 0)
    with pytest.raises(ValueError, match="cached_tokens"):
        hit_rate(-1, 5)


def test_two_utilizations_two_names():
    assert slot_utilization(437, 464) == Fraction(437, 464)
    assert block_utilization(29, 100) == Fraction(29, 100)
