"""The simulator held against the real engine on this machine: constants from one part of a trace, latencies on the others."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from mini_engine.arguments import count, real
from mini_engine.backends.simulated import SimulatedBackend
from mini_engine.backends.step_cost import Efficiency
from mini_engine.catalog import GPUSpec
from mini_engine.config import EngineConfig
from mini_engine.metrics import RequestTimes, percentile
from mini_engine.roofline.measure import MachineRates, measure_rates, one_thread
from mini_engine.simulator.calibrate import (
    MeasuredRun,
    at_once,
    error_of,
    fit_efficiency,
    measure_engine,
    sample,
    shrink,
)
from mini_engine.simulator.result import SimulationResult
from mini_engine.simulator.simulator import Simulator
from mini_engine.workload import Trace

PARTS = ("calibration", "second part", "third part")
WARM_UP = 24  # requests that are served first, all at once


@dataclass(frozen=True)
class Latency:
    """One figure, seconds, and by what share of the measured one the simulated one is too large."""

    measured: float
    simulated: float
    error: float


@dataclass(frozen=True)
class Part:
    """One part of the trace, served by both."""

    steps_measured: int
    steps_simulated: int
    median_step_error: float
    """Of the real steps, each beside its own cost."""
    latencies: dict[str, Latency]
    """Median and 90th percentile of TTFT and ITL."""


@dataclass(frozen=True)
class Comparison:
    """The constants that the first part gave, and what they were worth."""

    model: str
    rate: float
    constants: dict[str, float]
    parts: dict[str, Part]

    def to_json(self) -> dict[str, Any]:
        """As plain data for json.dump."""
        return asdict(self)

    def __str__(self) -> str:
        of = self.constants
        lines = [
            f"{self.model}, {self.rate:.2f} requests a second; a step takes {1e3 * of['step_overhead']:.2f} ms, "
            f"{1e3 * of['sequence_overhead']:.3f} ms for each sequence, and computes at {of['flops_efficiency']:.2f} and reads at "
            f"{of['bandwidth_efficiency']:.2f} of this machine's {of['peak_flops'] / 1e9:.0f} GFLOP/s and "
            f"{of['peak_bandwidth'] / 1e9:.0f} GB/s"
        ]
        for name, part in self.parts.items():
            lines.append(f"{name}: {part.steps_measured} steps, the median step is {part.median_step_error:.1%} off")
            lines += [
                f"  {figure.replace('_', ' ').upper():9} measured {each.measured:.4f} s  simulated {each.simulated:.4f} s  {each.error:+.1%}"
                for figure, each in part.latencies.items()
            ]
        return "\n".join(lines)


def simulated_against_measured(
    model: Any,
    trace: Trace,
    *,
    name: str = "",
    requests: int = 30,
    load: float = 0.6,
    lengths_divided_by: float = 8,
    rates: MachineRates | None = None,
) -> Comparison:
    """Serve three parts of `requests` requests each with the torch engine on one thread; simulate all three with what the
    first one taught.

    model: a torch model of `load_model`. load: share of the time in which the engine is to be busy. Times are CPU time of
    the one thread, idle time skipped, so the result depends on this machine and hardly on what else it does.
    """
    from mini_engine.backends import TorchBackend

    requests, load = count("requests", requests, minimum=4), float(real("load", load, minimum=0, limit=10))
    rates = measure_rates(size=1024) if rates is None else rates
    machine = GPUSpec(
        name="this machine, one thread",
        memory_bytes=1 << 34,
        memory_bandwidth=round(rates.bandwidth),
        bf16_flops=round(rates.flops),
    )
    config = EngineConfig(
        num_blocks=2048,
        max_num_seqs=32,
        max_num_batched_tokens=128,
        max_model_len=model.spec.max_model_len,
        enable_prefix_caching=False,
    )

    def backend(efficiency: Efficiency | None = None) -> SimulatedBackend:
        # Packed for a CPU a weight takes two bytes; the cache keeps the model's own fp32.
        return SimulatedBackend(model.spec, machine, dtype="fp16", kv_dtype="fp32", efficiency=efficiency)

    cost, whole = backend().cost, shrink(trace, lengths_divided_by)
    with one_thread():
        crowd = at_once(sample(whole, 0, WARM_UP))
        warm = measure_engine(crowd, TorchBackend(model), config, cost)
        rate = max(load, 1e-3) * len(crowd) / sum(step.seconds for step in warm.steps)
        parts = [sample(whole, WARM_UP + k * requests, requests).at_rate(rate) for k in range(len(PARTS))]
        measured = [measure_engine(part, TorchBackend(model), config, cost) for part in parts]
    efficiency = fit_efficiency(measured[0].steps, cost)
    fitted = backend(efficiency).cost
    compared = {}
    for label, part, run in zip(PARTS, parts, measured):
        simulated = Simulator(config, backend(efficiency)).run(part)
        errors = [abs(error_of(fitted.seconds(step.work, step.num_seqs), step.seconds)) for step in run.steps]
        compared[label] = Part(
            len(run.steps), simulated.usage.num_steps, round(percentile(errors, 50), 4), _latencies(run, simulated)
        )
    constants = {
        "peak_flops": machine.bf16_flops,
        "peak_bandwidth": machine.memory_bandwidth,
        "flops_efficiency": round(efficiency.flops, 4),
        "bandwidth_efficiency": round(efficiency.bandwidth, 4),
        "step_overhead": round(efficiency.step_overhead, 6),
        "sequence_overhead": round(efficiency.sequence_overhead, 6),
    }
    return Comparison(name or model.spec.name, round(rate, 4), constants, compared)


def _latencies(run: MeasuredRun, simulated: SimulationResult) -> dict[str, Latency]:
    real_, ours = _figures(run.times), _figures(simulated.times())
    return {
        name: Latency(round(real_[name], 6), round(ours[name], 6), round(error_of(ours[name], real_[name]), 4))
        for name in real_
    }


def _figures(times: list[RequestTimes]) -> dict[str, float]:
    values = {"ttft": [float(each.ttft) for each in times], "itl": [float(gap) for each in times for gap in each.itl]}
    return {f"{name}_p{q}": percentile(of, q) for name, of in values.items() for q in (50, 90)}
