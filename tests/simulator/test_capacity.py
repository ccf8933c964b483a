"""The largest rate that keeps a promise: found where it can be computed by hand, and an end where there is none."""

from __future__ import annotations

import pytest

from mini_engine.simulator import Efficiency, simulate, summarize
from mini_engine.simulator.capacity import HIGHEST, LOWEST, capacity, largest_rate
from tests.simulator.helpers import trace_of

# Every step takes a quarter of a second and nothing else counts: GPUs a thousand times as fast as those of the table.
QUARTERS = {"efficiency": Efficiency(flops=1000, bandwidth=1000, step_overhead=0.25)}
ONE_STEP_EACH = trace_of(*((float(i), 4, 1) for i in range(41)))


def by_hand(rate: float, seats: int, number: int = 41) -> list[float]:
    """TTFT of requests that come evenly, `number / rate` seconds from the first to the last, and take one step each."""
    gap = number / rate / (number - 1)
    waiting, clock, found = [i * gap for i in range(number)], 0.0, []
    while waiting:
        clock = max(clock, waiting[0])
        batch = [arrival for arrival in waiting[:seats] if arrival <= clock]
        waiting, clock = waiting[len(batch) :], clock + 0.25
        found += [clock - arrival for arrival in batch]
    return found


@pytest.mark.parametrize("seats", [1, 2])
def test_one_seat_serves_four_requests_a_second(seats):
    """Steps of 0.25 s: up to 4 per seat and second nobody waits longer than one step; above, the queue grows to the end."""
    found = capacity(ONE_STEP_EACH, ttft=0.51, meeting=1, within=0.001, max_num_seqs=seats, **QUARTERS)
    assert found.fails_at is not None
    assert max(by_hand(found.rate * 0.999, seats)) <= 0.51 < max(by_hand(found.fails_at * 1.001, seats))
    assert 4 * seats < found.rate < 4.5 * seats
    if seats == 1:  # the last of 41 arrives after 41 / rate seconds, and its step ends after 41 / 4
        assert found.rate == pytest.approx(41 / (41 / 4 - 0.51), rel=0.002)
    assert found.note == ""


def test_the_capacity_holds_and_a_little_more_fails():
    limits, options = {"ttft": 0.6, "tpot": 0.26}, {"batching": "iteration", "max_num_seqs": 4, **QUARTERS}
    trace = trace_of(*((float(i), 10 + i % 7, 1 + i % 5) for i in range(40)))
    found = capacity(trace, meeting=0.9, within=0.02, **limits, **options)
    shares = [
        summarize(simulate(trace.at_rate(rate), **options), **limits).goodput.share
        for rate in (found.rate, found.fails_at)
    ]
    assert shares[0] >= 0.9 > shares[1]
    assert found.rate < found.fails_at <= 1.02 * found.rate


@pytest.mark.parametrize("limit", [LOWEST * 1.01, 0.003, 0.25, 0.99, 1.0, 3.99, 4.0, 7.3, 300.0, HIGHEST * 0.99])
def test_bisection_ends_on_both_sides_of_the_limit(limit):
    asked = []

    def share_at(rate: float) -> float:
        asked.append(rate)
        return 1.0 if rate <= limit else 0.0

    found = largest_rate(share_at, 0.9, 0.05)
    assert found.rate <= limit < found.fails_at <= 1.05 * found.rate
    assert found.num_runs == len(asked) <= 12
    low, high = 0.0, float("inf")  # every rate asked lies inside what is known by then
    for rate in asked:
        assert low < rate < high
        low, high = (rate, high) if rate <= limit else (low, rate)
    assert (low, high) == (found.rate, found.fails_at)


def test_a_share_that_goes_up_and_down_still_ends_between_a_rate_that_holds_and_one_that_fails():
    found = largest_rate(lambda rate: float(rate < 20 and int(10 * rate) % 3 > 0), 0.9, 0.01)
    assert int(10 * found.rate) % 3
    assert found.fails_at is not None
    assert not int(10 * found.fails_at) % 3


@pytest.mark.parametrize("limits", [{"ttft": 1e-6}, {"tpot": 0.0}, {"e2e": 0.1}])
@pytest.mark.parametrize("batching", ["static", "chunked"])
def test_a_promise_that_nobody_can_keep_is_no_capacity(limits, batching):
    found = capacity(trace_of((0.0, 9, 3), (1.0, 9, 3)), batching=batching, **limits, **QUARTERS)
    assert (found.rate, found.fails_at) == (0.0, LOWEST)
    assert "0% meet the limits" in found.note
    assert found.num_runs < 10


def test_requests_that_are_turned_away_count_as_missed():
    trace = trace_of(*((float(i), 100 if i < 2 else 5, 2) for i in range(10)))
    options = {"num_blocks": 3, "ttft": 10.0, **QUARTERS}
    assert capacity(trace, meeting=0.8, **options).rate > 0
    assert capacity(trace, meeting=0.9, **options).rate == 0
    assert "only 80% meet" in str(capacity(trace, meeting=0.9, **options))


def test_a_sample_too_short_to_fail_says_so():
    trace = trace_of((0.0, 4, 1), (1.0, 4, 1), (2.0, 4, 1))
    found = capacity(trace, ttft=60.0, **QUARTERS)
    assert (found.rate, found.fails_at) == (HIGHEST, None)
    assert "nothing fails" in str(found)
    short = capacity(trace, ttft=0.6, meeting=1, max_num_seqs=1, **QUARTERS)
    assert 0 < short.rate < HIGHEST
    assert "too short to queue up" in short.note


@pytest.mark.parametrize("batching", ["static", "iteration", "chunked"])
def test_a_rate_of_a_billion_ends(batching):
    trace = trace_of(*((float(i), 50, 20) for i in range(60))).at_rate(1e9)
    result = simulate(trace, batching=batching, num_blocks=30, max_num_seqs=8)
    assert len(result.served) == 60


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs a limit"),
        ({"ttft": 1.0, "meeting": 0}, "meeting=0"),
        ({"ttft": 1.0, "meeting": 1.5}, "meeting=3/2"),
        ({"ttft": 1.0, "within": 0}, "within=0"),
        ({"ttft": -1.0}, "ttft=-1 must"),
        ({"ttft": 1.0, "batching": "dynamic"}, "batching="),
        ({"ttft": 1.0, "max_num_seqs": 0}, "max_num_seqs=0"),
    ],
)
def test_what_makes_no_sense_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        capacity(ONE_STEP_EACH, **given)
