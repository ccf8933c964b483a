"""How far the simulator is off on this machine: constants from one part of a trace, latencies compared on another.

    python benchmarks/simulated_against_measured.py [--model smollm2-135m] [--requests 30] [--load 0.6] [--output PATH]

The torch engine serves three parts of the project's synthetic Azure conversation trace, lengths divided by 8 so that a CPU can
follow. Steps of the first part give the four constants of `Efficiency`. The simulator then serves all parts with them; the
second and third part it has not seen. Medians and 90th percentiles of TTFT and ITL are printed beside the measured ones, and
stored with machine, date and command in benchmarks/results/simulated_against_measured.json.

Times are those of the engine's one thread (its CPU time, idle time skipped), so that what else runs here counts less.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

from common.report import RESULTS, store

from mini_engine.backends import SimulatedBackend, TorchBackend
from mini_engine.catalog import GPUSpec
from mini_engine.config import EngineConfig
from mini_engine.metrics import percentile
from mini_engine.models import load_model
from mini_engine.roofline.measure import measure_rates, one_thread
from mini_engine.simulator import Efficiency, SimulationResult, Simulator
from mini_engine.simulator.calibrate import MeasuredRun, error_of, fit_efficiency, measure_engine, sample, shrink
from mini_engine.workload import Trace, load_trace

TRACE = "synthetic_azure_conv.csv"
SHRINK = 8
PARTS = ("calibration", "second part", "third part")


def latencies(run: MeasuredRun | SimulationResult) -> dict[str, float]:
    """Median and 90th percentile of TTFT and ITL, seconds."""
    times = run.times if isinstance(run, MeasuredRun) else run.times()
    values = {"ttft": [float(each.ttft) for each in times], "itl": [float(gap) for each in times for gap in each.itl]}
    return {f"{name}_p{q}": percentile(of, q) for name, of in values.items() for q in (50, 90)}


def compare(measured: MeasuredRun, simulated: SimulationResult) -> dict[str, dict[str, float]]:
    ours, real = latencies(simulated), latencies(measured)
    return {
        name: {
            "measured": round(real[name], 6),
            "simulated": round(ours[name], 6),
            "error": round(error_of(ours[name], real[name]), 4),
        }
        for name in real
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--requests", type=int, default=30, help="of each part")
    parser.add_argument("--load", type=float, default=0.6, help="share of the time in which the engine is to be busy")
    parser.add_argument("--output", type=Path, default=RESULTS / "simulated_against_measured.json")
    options = parser.parse_args()

    model = load_model(options.model, backend="torch").model
    rates = measure_rates(size=1024, repeats=5)
    machine = GPUSpec(
        name="this machine, one thread",
        memory_bytes=1 << 34,
        memory_bandwidth=round(rates.bandwidth),
        bf16_flops=round(rates.flops),
    )
    longest = model.spec.max_model_len
    whole = shrink(load_trace(TRACE), SHRINK)
    config = EngineConfig(
        num_blocks=2048, max_num_seqs=32, max_num_batched_tokens=128, max_model_len=longest, enable_prefix_caching=False
    )

    def backend(efficiency: Efficiency | None = None) -> SimulatedBackend:
        return SimulatedBackend(model.spec, machine, dtype="fp16", kv_dtype="fp32", efficiency=efficiency)

    cost = backend().cost
    with one_thread():
        # The first few requests, all at once, warm up and say what the machine can bear.
        first = sample(whole, 0, 24)
        crowd = Trace("warm up", tuple(type(r)(0.0, r.num_prompt_tokens, r.num_output_tokens) for r in first))
        warm = measure_engine(crowd, TorchBackend(model), config, cost)
        rate = options.load * len(crowd) / sum(step.seconds for step in warm.steps)
        parts = [sample(whole, 24 + k * options.requests, options.requests).at_rate(rate) for k in range(len(PARTS))]
        measured, wall = [], time.perf_counter()
        for part in parts:
            measured.append(measure_engine(part, TorchBackend(model), config, cost))
        wall = time.perf_counter() - wall
    efficiency = fit_efficiency(measured[0].steps, cost)
    constants = {
        "peak_flops": machine.bf16_flops,
        "peak_bandwidth": machine.memory_bandwidth,
        "flops_efficiency": round(efficiency.flops, 4),
        "bandwidth_efficiency": round(efficiency.bandwidth, 4),
        "step_overhead": round(efficiency.step_overhead, 6),
        "sequence_overhead": round(efficiency.sequence_overhead, 6),
    }
    print(f"{options.model}, {rate:.2f} requests a second; constants from {len(measured[0].steps)} steps: {constants}")
    report: dict[str, Any] = {
        "model": options.model, "trace": TRACE, "lengths_divided_by": SHRINK, "requests": options.requests,
        "rate": round(rate, 4), "constants": constants, "wall_seconds": round(wall, 1), "load_average": os.getloadavg()[0],
        "parts": {},
    }  # fmt: skip
    for name, part, real in zip(PARTS, parts, measured):
        simulated = Simulator(config, backend(efficiency)).run(part)
        steps = [cost_of(step, backend(efficiency).cost) for step in real.steps]
        compared = compare(real, simulated)
        report["parts"][name] = {
            "steps_measured": len(real.steps),
            "steps_simulated": simulated.usage.num_steps,
            "median_step_error": round(percentile([abs(error) for error in steps], 50), 4),
            "latencies": compared,
        }
        print(f"{name}: {len(real.steps)} steps, the median step is {percentile([abs(e) for e in steps], 50):.1%} off")
        for figure, of in compared.items():
            print(
                f"  {figure:9} measured {of['measured']:.4f} s  simulated {of['simulated']:.4f} s  {of['error']:+.1%}"
            )
    store(options.output, report)


def cost_of(step: Any, cost: Any) -> float:
    return error_of(cost.seconds(step.work, step.num_seqs), step.seconds)


if __name__ == "__main__":
    main()
