"""The constants of a machine, from steps of the real engine on it: how fast it computes and reads, what a step costs besides.

    run = measure_engine(trace, backend, config, cost)      the engine serves a trace, every step timed, its work counted
    efficiency = fit_efficiency(run.steps, cost)            four constants that explain the steps
    simulate(..., efficiency=efficiency)                    and what they say about another trace

The engine runs on a clock that counts the thread's own CPU time and skips the time in which there is nothing to do: a trace
of an hour takes as long as its steps, and what else the machine does counts less.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mini_engine.backends.base import Backend
from mini_engine.backends.step_cost import Efficiency, StepCost, Work
from mini_engine.config import EngineConfig
from mini_engine.engine import LLMEngine
from mini_engine.engine.stats import EngineStats
from mini_engine.metrics import RequestTimes
from mini_engine.sampling import SamplingParams
from mini_engine.scheduling import Scheduler, StepPlan
from mini_engine.workload import Trace, TraceRequest


class MeasuredStep(NamedTuple):
    """A step of a real engine: how long it took, and what it had to do."""

    seconds: float
    work: Work
    num_seqs: int


@dataclass(frozen=True)
class MeasuredRun:
    """What a real engine did with a trace."""

    times: list[RequestTimes]
    steps: list[MeasuredStep]
    stats: EngineStats


class WorkClock:
    """Seconds of work, plus the idle time that was skipped. `source` is what counts the work."""

    def __init__(self, source: Callable[[], float] = time.thread_time) -> None:
        self._source = source
        self._offset = -source()

    def __call__(self) -> float:
        """Seconds of work, and of the waits that were skipped."""
        return self._offset + self._source()

    def wait_until(self, moment: float) -> None:
        """Jump to a moment instead of sleeping; no way back."""
        self._offset += max(0.0, moment - self())


def shrink(trace: Trace, lengths: float, times: float = 1.0) -> Trace:
    """A trace for a small machine: prompts, answers and gaps divided by these factors. Hash ids are dropped."""
    requests = (
        TraceRequest(
            r.arrival / times,
            max(1, round(r.num_prompt_tokens / lengths)),
            max(1, round(r.num_output_tokens / lengths)),
        )
        for r in trace
    )
    return Trace(trace.name, tuple(requests), synthetic=trace.synthetic)


def sample(trace: Trace, first: int, number: int) -> Trace:
    """Requests `first` to `first + number - 1`, from the moment the first of them arrives."""
    chosen = trace.requests[first : first + number]
    if len(chosen) < number:
        raise ValueError(f"the trace has {len(trace)} requests, not {first + number}")
    start = chosen[0].arrival
    moved = (TraceRequest(r.arrival - start, r.num_prompt_tokens, r.num_output_tokens, r.hash_ids) for r in chosen)
    return Trace(trace.name, tuple(moved), trace.block_tokens, trace.synthetic)


def at_once(trace: Trace) -> Trace:
    """The same requests, all there from the start."""
    requests = (TraceRequest(0.0, r.num_prompt_tokens, r.num_output_tokens, r.hash_ids) for r in trace)
    return Trace(trace.name, tuple(requests), trace.block_tokens, trace.synthetic)


def measure_engine(
    trace: Trace,
    backend: Backend,
    config: EngineConfig,
    cost: StepCost,
    *,
    scheduler: type[Scheduler] = Scheduler,
    source: Callable[[], float] = time.thread_time,
    progress: Callable[[int], object] = lambda num_ended: None,
) -> MeasuredRun:
    """Serve a trace with a real backend: greedy, every answer as long as the trace says. `cost` counts the work of steps.

    Prompts are made up, equal where hash ids are, as the tokens do not matter to the time. ValueError for a request that
    could never run.
    """
    plans: list[StepPlan] = []

    class Watched(scheduler):  # type: ignore[misc, valid-type]
        def schedule(self) -> StepPlan:
            plans.append(super().schedule())
            return plans[-1]

    clock = WorkClock(source)
    engine = LLMEngine(config, backend, scheduler=Watched, clock=clock)
    requests = list(trace)
    prompts = [_prompt(i, r, trace.block_tokens, backend.vocab_size) for i, r in enumerate(requests)]
    times: list[RequestTimes] = []
    steps: list[MeasuredStep] = []
    num_added = 0
    while num_added < len(requests) or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests():
            clock.wait_until(requests[num_added].arrival)
        while num_added < len(requests) and requests[num_added].arrival <= clock():
            params = SamplingParams(temperature=0, max_tokens=requests[num_added].num_output_tokens, ignore_eos=True)
            engine.add_request(str(num_added), prompts[num_added], params)
            num_added += 1
        begin = clock()
        outputs = engine.step()
        seconds = clock() - begin
        plan = plans.pop()
        num_logits = len(outputs)  # every request that changed got a token
        steps.append(MeasuredStep(max(seconds, 1e-9), cost.work(plan.chunks, num_logits), len(plan.chunks)))
        for output in outputs:
            if output.finished and output.metrics is not None:
                of = requests[int(output.request_id)]
                times.append(RequestTimes(of.arrival, tuple(output.metrics.token_times), of.num_prompt_tokens))
                progress(1)
    return MeasuredRun(times, steps, engine.stats())


def _prompt(number: int, request: TraceRequest, block_tokens: int | None, vocab_size: int) -> list[int]:
    if block_tokens is not None:
        return request.prompt_token_ids(block_tokens, vocab_size)
    length = request.num_prompt_tokens
    return [(number * 7919 + 31 * at) % (vocab_size - 1) + 1 for at in range(length)]


def fit_efficiency(steps: Sequence[MeasuredStep], cost: StepCost) -> Efficiency:
    """The constants with the least relative error over these steps, none of them negative, reading after computing.

    seconds ≈ overhead + per sequence × sequences + FLOPs / rate + bytes / rate. Squares of relative errors are least below the
    middle, as a step can be late by any factor but not early; so all four are scaled until half of the steps take longer.
    A rate that the steps do not show, because something else takes all the time, becomes a thousand times the peak, so that
    it does not count.
    On one model the weights are read in every step, so the fit can hardly tell the overhead of a step from reading them:
    their sum is what the steps say, and what another model would take is not.
    ValueError for fewer than eight steps: four constants would explain anything.
    """
    if len(steps) < 8:
        raise ValueError(f"{len(steps)} steps are too few for four constants: measure at least 8")
    rows = np.array(
        [
            [1.0, step.num_seqs, step.work.flops / cost.peak_flops, step.work.bytes / cost.gpu.memory_bandwidth]
            for step in steps
        ]
    )
    seconds = np.array([step.seconds for step in steps])
    found = np.array(_least_squares(rows / seconds[:, None]))
    found *= np.median(seconds / (rows @ found))
    overhead, per_sequence, computing, reading = found.tolist()
    return Efficiency(
        flops=min(1 / max(computing, 1e-9), 1000.0),
        bandwidth=min(1 / max(reading, 1e-9), 1000.0),
        step_overhead=overhead,
        sequence_overhead=per_sequence,
        overlap=False,
    )


def _least_squares(rows: np.ndarray) -> list[float]:
    """Weights of at least 0 whose sum of columns is nearest to 1 in every row: of all sets of columns, the best that needs
    no negative weight.
    """
    columns = range(rows.shape[1])
    best: tuple[float, list[float]] = (float("inf"), [])
    for size in range(1, len(columns) + 1):
        for chosen in itertools.combinations(columns, size):
            part = rows[:, chosen]
            found: Any = np.linalg.lstsq(part, np.ones(len(rows)), rcond=None)[0]
            error = float(((part @ found - 1) ** 2).sum())
            if (found >= 0).all() and error < best[0]:
                weights = [0.0] * len(columns)
                for column, weight in zip(chosen, found):
                    weights[column] = float(weight)
                best = (error, weights)
    return best[1]


def error_of(simulated: float, measured: float) -> float:
    """How far a simulated figure is off, as a share of the measured one; above 0 when it is too large."""
    return simulated / measured - 1
