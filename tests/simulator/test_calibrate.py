"""Constants from measured steps: known ones are found again, and the real engine's steps are counted right."""

from __future__ import annotations

from random import Random

import pytest

from mini_engine.backends import AuditBackend
from mini_engine.backends.step_cost import Efficiency, StepCost
from mini_engine.catalog import get_gpu, get_model
from mini_engine.config import EngineConfig
from mini_engine.scheduling import Chunk
from mini_engine.simulator.calibrate import (
    MeasuredStep,
    WorkClock,
    error_of,
    fit_efficiency,
    measure_engine,
    sample,
    shrink,
)
from mini_engine.workload import load_trace
from tests.simulator.helpers import trace_of

MODEL, GPU = get_model("smollm2-135m"), get_gpu("l4")
TRUE = {
    "all four": Efficiency(flops=0.4, bandwidth=0.6, step_overhead=3e-3, sequence_overhead=2e-4, overlap=False),
    "no cost for sequences": Efficiency(flops=0.4, bandwidth=0.6, step_overhead=3e-3, overlap=False),
    "only overhead": Efficiency(flops=1000, bandwidth=1000, step_overhead=3e-3, sequence_overhead=1e-3, overlap=False),
}


def steps_of(efficiency: Efficiency, noise: float = 0.0, number: int = 200) -> list[MeasuredStep]:
    """Steps of a machine with these constants, some of them late."""
    random, cost = Random(3), StepCost(MODEL, GPU, efficiency=efficiency)
    steps = []
    for _ in range(number):
        batch = random.randint(1, 30)
        chunks = [Chunk("", 0, random.randint(0, 800), 1) for _ in range(batch)]
        if random.random() < 0.3:
            chunks.append(Chunk("", 0, 0, random.randint(2, 500)))
        work = cost.work(chunks, len(chunks))
        late = 1 + noise * random.random() + (3.0 if random.random() < noise / 4 else 0.0)
        steps.append(MeasuredStep(cost.seconds(work, len(chunks)) * late, work, len(chunks)))
    return steps


@pytest.mark.parametrize("name", TRUE)
def test_exact_steps_give_the_constants_back(name):
    true, found = TRUE[name], fit_efficiency(steps_of(TRUE[name]), StepCost(MODEL, GPU))
    assert found.step_overhead == pytest.approx(true.step_overhead, rel=1e-3)
    assert found.sequence_overhead == pytest.approx(true.sequence_overhead, abs=1e-6)
    if name != "only overhead":
        assert found.flops == pytest.approx(true.flops, rel=1e-3)
        assert found.bandwidth == pytest.approx(true.bandwidth, rel=1e-3)
    assert found.overlap is False


def test_late_steps_do_not_move_the_middle():
    """Steps that take up to twice as long, now and then five times: half of them stay on either side."""
    steps = steps_of(TRUE["all four"], noise=1.0)
    cost = StepCost(MODEL, GPU, efficiency=fit_efficiency(steps, StepCost(MODEL, GPU)))
    errors = [error_of(cost.seconds(step.work, step.num_seqs), step.seconds) for step in steps]
    assert abs(sorted(errors)[len(errors) // 2]) < 0.01
    assert sorted(abs(error) for error in errors)[len(errors) // 2] < 0.3


def test_too_few_steps_are_refused():
    with pytest.raises(ValueError, match="7 steps are too few"):
        fit_efficiency(steps_of(TRUE["all four"])[:7], StepCost(MODEL, GPU))


def test_the_engine_serves_a_trace_on_a_clock_that_skips_what_is_idle():
    """The source stands still, except where the backend works: half a second a step."""
    worked = 0.0

    class Slow(AuditBackend):
        def execute(self, batch):
            nonlocal worked
            worked += 0.5
            return super().execute(batch)

    config = EngineConfig(num_blocks=64, block_size=4, max_num_batched_tokens=16)
    trace = trace_of((1.0, 16, 3), (1.0, 8, 2), (60.0, 4, 1))
    cost = StepCost(MODEL, GPU)
    run = measure_engine(trace, Slow(vocab_size=500), config, cost, source=lambda: worked)
    found = {each.arrival: each.token_times for each in run.times if each.num_prompt_tokens != 8}
    assert found == {1.0: (1.5, 2.0, 2.5), 60.0: (60.5,)}
    assert [step.seconds for step in run.steps] == [0.5] * 4
    assert [step.num_seqs for step in run.steps] == [1, 2, 2, 1]
    assert run.steps[0].work == cost.work([Chunk("", 0, 0, 16)], 1)
    assert run.steps[1].work == cost.work([Chunk("", 0, 16, 1), Chunk("", 0, 0, 8)], 2)
    assert worked == 2.0


def test_the_clock_never_runs_backwards():
    clock = WorkClock(lambda: 7.0)
    assert clock() == 0
    clock.wait_until(3.0)
    clock.wait_until(2.0)
    assert clock() == 3.0


def test_parts_of_a_trace_for_a_small_machine():
    trace = load_trace("synthetic_azure_conv.csv")
    part = sample(shrink(trace, 8, 2.0), 10, 5)
    assert [r.num_prompt_tokens for r in part] == [
        max(1, round(r.num_prompt_tokens / 8)) for r in trace.requests[10:15]
    ]
    assert [r.arrival for r in part] == pytest.approx(
        [(r.arrival - trace.requests[10].arrival) / 2 for r in trace.requests[10:15]]
    )
    with pytest.raises(ValueError, match=r"has 1000 requests, not 1001"):
        sample(trace, 990, 11)


def test_errors_are_shares_of_what_was_measured():
    assert error_of(1.5, 1.0) == 0.5
    assert error_of(0.5, 1.0) == -0.5
