"""What simulating costs: the whole Azure conversation trace, Llama-3-8B on one H100, on one core.

    MINI_ENGINE_TRACES=FOLDER python benchmarks/simulate_trace.py [--trace NAME] [--repeats 3] [--output PATH]

FOLDER holds the public traces, which are no part of the project; --trace takes any other trace, a synthetic one of the
project too. Each repeat is a process of its own. Prints and writes, with machine, date and command, to
benchmarks/results/simulate_trace.json: CPU and wall seconds of the run (loading the trace not counted); bytes by which the
process grows per request; microseconds of CPU time per step and per sequence and step, for every tenth of the requests.

How many sequences run differs from tenth to tenth, so a second trace plays its first tenth over and over, ten times: there
every tenth has the same work, and what a step costs may not depend on how many requests have finished before. Seconds and bytes
are medians over the repeats; the tenths are put together from hundredths, each of the repeat in which it was quickest.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from common.report import RESULTS, store

from mini_engine.simulator import SimulationOptions, Simulator, summarize
from mini_engine.workload import Trace, TraceRequest, load_trace

AZURE = "AzureLLMInferenceTrace_conv.csv"
PARTS = 10
MARKS = 10  # in each part: the times between two marks are taken from the repeat that was disturbed least


def over_and_over(trace: Trace) -> Trace:
    """The first tenth of a trace, PARTS times, one after the other with a pause in which everything ends."""
    head = trace.head(max(1, len(trace) // PARTS)).requests
    period = head[-1].arrival + 120.0
    copies = (
        TraceRequest(k * period + r.arrival, r.num_prompt_tokens, r.num_output_tokens)
        for k in range(PARTS)
        for r in head
    )
    return Trace(f"{trace.name}, its first tenth {PARTS} times", tuple(copies))


def resident_bytes() -> int:
    """Memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(name: str, repeated: bool) -> dict[str, Any]:
    """One run, with marks at every tenth of the requests."""
    trace = load_trace(name)
    trace = over_and_over(trace) if repeated else trace
    options = SimulationOptions(model="llama-3-8b", gpu="h100-sxm")
    backend = options.backend()
    simulator = Simulator(options.config(backend), backend)
    marks: list[tuple[float, int, int, int]] = []
    ended = 0

    def mark(number: int) -> None:
        nonlocal ended
        before, ended = ended, ended + number
        if before * PARTS * MARKS // len(trace) < ended * PARTS * MARKS // len(trace):
            counters, usage = simulator.scheduler.counters, simulator.result.usage
            marks.append((time.process_time(), usage.num_steps, counters.num_decode_tokens, resident_bytes()))

    gc.collect()
    first = (time.process_time(), 0, 0, resident_bytes())
    wall = time.perf_counter()
    result = simulator.run(trace, mark)
    wall = time.perf_counter() - wall
    between = [(t1 - t0, s1 - s0, d1 - d0) for (t0, s0, d0, _), (t1, s1, d1, _) in zip([first, *marks], marks)]
    assert len(between) == PARTS * MARKS, "more requests ended in one step than lie between two marks"
    return {
        "cpu_seconds": marks[-1][0] - first[0],
        "wall_seconds": wall,
        "bytes_per_request": (marks[-1][3] - first[3]) / len(trace),
        "bytes_per_request_after_first_tenth": (marks[-1][3] - marks[MARKS - 1][3])
        / (len(trace) * (PARTS - 1) / PARTS),
        "between": between,  # seconds, steps, decodes of sequences (a prompt's few chunks are not counted)
        "summary": summarize(result, ttft=1.0, tpot=0.05).to_json(),
        "tokens": sum(r.num_prompt_tokens + r.num_output_tokens for r in trace),
        "peak_bytes": resident_bytes(),
    }


def over_repeats(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the repeats; the times of the tenths from the least disturbed, as other work on the machine only adds."""
    figures = ("cpu_seconds", "wall_seconds", "bytes_per_request", "bytes_per_request_after_first_tenth", "peak_bytes")
    found: dict[str, Any] = {name: round(statistics.median(run[name] for run in runs), 2) for name in figures}
    seconds = [min(run["between"][k][0] for run in runs) for k in range(PARTS * MARKS)]
    for at, name in ((1, "us_per_step"), (2, "us_per_sequence_and_step")):
        number = [each[at] for each in runs[0]["between"]]
        tenths = [
            round(1e6 * sum(seconds[k : k + MARKS]) / sum(number[k : k + MARKS]), 2)
            for k in range(0, PARTS * MARKS, MARKS)
        ]
        found[name] = {"tenths": tenths, "last_to_first": round(tenths[-1] / tenths[0], 3)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", help=f"default: {AZURE} in $MINI_ENGINE_TRACES")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS / "simulate_trace.json")
    options = parser.parse_args()
    folder = os.environ.get("MINI_ENGINE_TRACES")
    if options.trace is None and not (folder and (Path(folder) / AZURE).exists()):
        print(f"skipped: set MINI_ENGINE_TRACES to the folder that holds {AZURE}, or give --trace", file=sys.stderr)
        raise SystemExit(2)
    name = options.trace or str(Path(folder or "") / AZURE)

    report: dict[str, Any] = {
        "model": "llama-3-8b",
        "gpu": "h100-sxm",
        "repeats": options.repeats,
        "load_average": os.getloadavg()[0],
    }
    for label, repeated in (("trace", False), ("repeated", True)):
        runs = []
        for _ in range(options.repeats):
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
                runs.append(process.submit(measure, name, repeated).result())
        summary = runs[0]["summary"]
        assert all(run["summary"] == summary for run in runs), "the same trace gave different figures"
        report[label] = {
            "name": summary["trace"],
            "tokens": runs[0]["tokens"],
            **over_repeats(runs),
            "summary": summary,
        }
        of = report[label]
        print(
            f"{of['name']}: {summary['num_requests']:,} requests, {of['tokens']:,} tokens, {summary['num_steps']:,} steps"
        )
        print(f"  {of['cpu_seconds']} s of CPU time, {of['wall_seconds']} s on the clock")
        print(f"  {of['bytes_per_request']:,.0f} bytes per request, peak {of['peak_bytes'] / 1e6:,.0f} MB")
        for figure in ("us_per_step", "us_per_sequence_and_step"):
            print(f"  {figure}: tenths {of[figure]['tenths']}, last to first {of[figure]['last_to_first']}")
    store(options.output, report)


if __name__ == "__main__":
    main()
