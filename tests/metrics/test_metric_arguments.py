"""Metrics refuse what is no number by the name of the argument; whatever they take, they print no nan and no inf."""

from __future__ import annotations

import inspect

import pytest

from mini_engine import metrics
from mini_engine.metrics import RequestTimes
from tests.bad_values import NEVER, SOMETIMES, is_refused, is_refused_or_computed

TIMES = RequestTimes(0.0, (1.0, 2.0), 10, 5)
CALLS = {
    RequestTimes: {"arrival": 0.0, "token_times": (1.0, 2.0), "num_prompt_tokens": 10, "num_cached_tokens": 5},
    metrics.throughput: {"requests": [TIMES]},
    metrics.goodput: {"requests": [TIMES], "ttft": 1.0, "tpot": 1.0, "e2e": 3.0},
    metrics.percentile: {"values": [1.0, 2.0], "q": 50},
    metrics.summarize_latency: {"values": [1.0, 2.0]},
    metrics.summarize: {"requests": [TIMES]},
    metrics.hit_rate: {"cached_tokens": 1, "prompt_tokens": 2},
    metrics.slot_utilization: {"used_slots": 1, "allocated_slots": 2},
    metrics.block_utilization: {"allocated_blocks": 1, "pool_blocks": 2},
}
ARGUMENTS = [pytest.param(f, name, id=f"{f.__name__}-{name}") for f, given in CALLS.items() for name in given]


def test_every_function_and_every_argument_is_on_the_list():
    public = {f for name, f in vars(metrics).items() if inspect.isfunction(f) and f.__module__ == metrics.__name__}
    assert {f for f in public if not f.__name__.startswith("_")} <= set(CALLS)
    for function, given in CALLS.items():
        assert set(given) == set(inspect.signature(function).parameters)


@pytest.mark.parametrize(("function", "name"), ARGUMENTS)
def test_no_metric_takes_what_is_no_number(function, name):
    for bad in NEVER:
        if function is metrics.summarize_latency and bad == [None]:
            continue  # an undefined TPOT: left out
        is_refused(function, CALLS[function], name, bad)


@pytest.mark.parametrize(("function", "name"), ARGUMENTS)
def test_odd_values_are_refused_or_measured(function, name):
    others = {"num_cached_tokens": 0} if function is RequestTimes and name == "num_prompt_tokens" else {}
    for value in SOMETIMES:
        is_refused_or_computed(function, CALLS[function] | others, name, value)


def test_a_window_that_no_clock_can_tell_from_none_has_no_rate():
    requests = [RequestTimes(0.0, (1e-320,))]
    assert metrics.throughput(requests).requests_per_s is None
    assert "inf" not in str(metrics.summarize(requests))
