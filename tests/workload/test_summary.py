"""Summaries and prefix reuse, on traces small enough to check by hand and against a slow oracle."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mini_engine.workload import Trace, TraceRequest, prefix_reuse, summarize


def trace_of(*ids, block=4, arrivals=None, lengths=None):
    lengths = lengths or [len(i) * block for i in ids]
    arrivals = arrivals or range(len(ids))
    return Trace("t", tuple(TraceRequest(float(a), n, 1, tuple(i)) for a, n, i in zip(arrivals, lengths, ids)), block)


def test_a_summary_by_hand():
    requests = [(0, 10, 1), (1, 20, 2), (3, 30, 3), (4, 40, 4)]
    summary = summarize(Trace("t", tuple(TraceRequest(float(a), p, o) for a, p, o in requests)))
    assert (summary.num_requests, summary.span, summary.rate) == (4, 4, 1)
    assert summary.gap_cv == pytest.approx(np.std([1, 2, 1]) / np.mean([1, 2, 1]))
    assert (summary.prompt.mean, summary.prompt.p50, summary.prompt.max) == (25, 25, 40)
    assert (summary.prompt.p90, summary.prompt.p99) == (pytest.approx(37), pytest.approx(39.7))
    assert summary.reuse_bound is None


def test_all_at_once_has_no_rate_and_prints_none():
    summary = summarize(Trace("t", (TraceRequest(0.0, 1, 1),) * 3))
    assert summary.rate is summary.gap_cv is None
    assert "all at once" in str(summary)
    assert not re.search(r"\b(nan|inf|None)\b", str(summary))


def test_reuse_by_hand():
    trace = trace_of([0, 1, 2], [0, 1, 3], [4, 1, 2], [0, 1, 2])
    assert prefix_reuse(trace).by_blocks == Fraction(
        0 + 2 + 0 + 3, 12
    )  # 4 is new, so the 1 and 2 after it do not count
    assert prefix_reuse(trace, capacity=100) == prefix_reuse(trace)


def test_a_last_block_that_is_not_full_counts_its_tokens():
    trace = trace_of([0, 1], [0, 1], block=4, lengths=[7, 7])
    assert prefix_reuse(trace).by_tokens == Fraction(7, 14)


def test_lru_evicts_the_oldest():
    trace = trace_of([0, 1], [2], [0], [1])
    assert prefix_reuse(trace, capacity=2).by_blocks == 0  # 2 evicts 0, 0 evicts 1, 1 evicts 2
    assert prefix_reuse(trace, capacity=3).by_blocks == Fraction(2, 5)
    touched = trace_of([0], [1], [0], [2], [0])
    assert prefix_reuse(touched, capacity=2).by_blocks == Fraction(2, 5)  # a hit makes a block recent


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=25),
    st.none() | st.integers(1, 12),
)
def test_reuse_against_a_slow_oracle(ids, capacity):
    cache: list[int] = []
    hits = 0
    for request in ids:
        leading = True
        for block in request:
            hit = block in cache
            leading &= hit
            hits += leading
            if hit:
                cache.remove(block)
            cache.append(block)
            if capacity is not None and len(cache) > capacity:
                cache.pop(0)
    assert prefix_reuse(trace_of(*ids), capacity).by_blocks == Fraction(hits, sum(map(len, ids)))


def test_without_hash_ids_nothing_is_known():
    with pytest.raises(ValueError, match="no hash_ids"):
        prefix_reuse(Trace("t", (TraceRequest(0.0, 1, 1),)))
    with pytest.raises(ValueError, match="capacity=0"):
        prefix_reuse(trace_of([0]), 0)


def test_made_up_tokens_are_equal_exactly_where_ids_are():
    a, b, c = trace_of([0, 1, 2], [0, 1, 3], [7, 1, 2], block=4, lengths=[10, 12, 12])
    tokens = [request.prompt_token_ids(4, 50_000) for request in (a, b, c)]
    assert [len(t) for t in tokens] == [10, 12, 12]
    assert tokens[0][:8] == tokens[1][:8]
    assert tokens[0][8:] != tokens[1][8:10]
    assert tokens[0][:4] != tokens[2][:4]
    assert all(0 <= token < 50_000 for t in tokens for token in t)
    assert len(TraceRequest(0.0, 9, 1).prompt_token_ids(4, 100)) == 9
