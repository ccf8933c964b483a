"""A step costs what its sequences cost, however many requests have finished before: counted in calls, which no clock disturbs."""

from __future__ import annotations

import sys

from mini_engine.simulator import SimulationOptions, Simulator
from mini_engine.workload import Trace, TraceRequest, load_trace

COPIES = 6


def test_a_step_makes_as_many_calls_after_thousands_of_requests_as_before():
    """The same 150 requests, six times over. In the first round the pool still has blank blocks; then no call is added."""
    head = load_trace("synthetic_azure_conv.csv").head(150).requests
    period = head[-1].arrival + 100
    trace = Trace("rounds", tuple(
        TraceRequest(k * period + r.arrival, r.num_prompt_tokens, r.num_output_tokens) for k in range(COPIES) for r in head
    ))  # fmt: skip
    options = SimulationOptions(num_blocks=2000)
    backend = options.backend()
    simulator = Simulator(options.config(backend), backend)
    calls = ended = 0
    rounds: list[tuple[int, int]] = []

    def count(frame, event, argument) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    def progress(number: int) -> None:
        nonlocal ended
        ended += number
        if number and ended % len(head) == 0:
            rounds.append((calls, simulator.result.usage.num_steps))

    sys.setprofile(count)
    try:
        simulator.run(trace, progress)
    finally:
        sys.setprofile(None)
    each = [(c1 - c0, s1 - s0) for (c0, s0), (c1, s1) in zip([(0, 0), *rounds], rounds)]
    assert len(each) == COPIES
    assert len({steps for _, steps in each}) == 1
    per_step = [calls_ / steps for calls_, steps in each]
    assert max(per_step[1:]) <= 1.001 * min(per_step[1:])
    assert per_step[-1] <= 1.05 * per_step[0]


def test_tokens_are_dropped_when_a_request_ends():
    """What is kept of one is numbers of steps, not tokens nor times."""
    trace = load_trace("synthetic_azure_conv.csv").head(30)
    options = SimulationOptions(num_blocks=2000)
    backend = options.backend()
    simulator = Simulator(options.config(backend), backend)
    result = simulator.run(trace)
    assert not simulator._live
    assert not simulator._tokens
    assert all(len(each.spans) <= 2 + 2 * each.num_preemptions for each in result.served)
