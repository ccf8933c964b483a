"""What deciding costs: microseconds of schedule() and commit() per running sequence and step, at every context length.

    python benchmarks/scheduler.py [--steps 160] [--repeats 5] [--output PATH]

All sequences decode; blocks hold 16 tokens, so every sixteenth step takes new blocks and publishes full ones. Prints a
table and writes it, with machine, date and command, to benchmarks/results/scheduler.json. Times are CPU time of the one
thread; for each repeat the mean over the steps, of the repeats the median. The lengths take turns within one run.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from pathlib import Path

from common.report import RESULTS, store

from mini_engine.cache import KVCacheManager
from mini_engine.config import EngineConfig
from mini_engine.scheduling import Request, SampledToken, Scheduler, StepPlan

BLOCK_SIZE = 16
NUM_RUNNING = (1, 16, 64, 256)
CONTEXTS = (1_000, 10_000, 100_000)
MOST_TOKENS = 2_000_000  # over all sequences: more than this does not fit small machines
Times = dict[str, float]


def decoding(num_running: int, context: int, steps: int) -> Scheduler:
    """A scheduler whose sequences have all computed their prompts."""
    num_blocks = num_running * ((context + steps) // BLOCK_SIZE + 2)
    config = EngineConfig(
        num_blocks=num_blocks, max_num_seqs=num_running, max_num_batched_tokens=num_running * (context + 1)
    )
    scheduler = Scheduler(config, KVCacheManager(num_blocks, BLOCK_SIZE))
    for number in range(num_running):
        scheduler.add_request(Request(f"r{number}", [number, *range(context - 1)], steps + 8))
    for _ in range(2):
        plan = scheduler.schedule()
        scheduler.commit(plan, sampled(plan))
    return scheduler


def sampled(plan: StepPlan) -> dict[tuple[str, int], SampledToken]:
    return {(chunk.request_id, chunk.index): SampledToken(7) for chunk in plan.chunks}


def time_steps(num_running: int, context: int, steps: int) -> Times:
    """Microseconds per running sequence and step."""
    scheduler = decoding(num_running, context, steps)
    gc.collect()
    in_schedule = in_commit = 0
    for _ in range(steps):
        start = time.thread_time_ns()
        plan = scheduler.schedule()
        planned = time.thread_time_ns()
        result = sampled(plan)
        executed = time.thread_time_ns()
        scheduler.commit(plan, result)
        in_commit += time.thread_time_ns() - executed
        in_schedule += planned - start
        assert len(plan.chunks) == num_running
    scale = steps * num_running * 1000
    return {
        "schedule": in_schedule / scale,
        "commit": in_commit / scale,
        "both": (in_schedule + in_commit) / scale,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS / "scheduler.json")
    options = parser.parse_args()

    cases = [(running, context) for running in NUM_RUNNING for context in CONTEXTS if running * context <= MOST_TOKENS]
    runs: dict[tuple[int, int], list[Times]] = {case: [] for case in cases}
    for _ in range(options.repeats):
        for case in cases:
            runs[case].append(time_steps(*case, options.steps))

    rows = []
    print(f"{'running':>8} {'context':>8} {'schedule':>9} {'commit':>7} {'both':>6}   us per running sequence and step")
    for (running, context), times in runs.items():
        median = {name: round(statistics.median(run[name] for run in times), 2) for name in times[0]}
        rows.append({"running": running, "context": context, **median})
        print(f"{running:>8} {context:>8,} {median['schedule']:>9} {median['commit']:>7} {median['both']:>6}")
    by_case = {(row["running"], row["context"]): row["both"] for row in rows}
    shortest, longest = CONTEXTS[0], CONTEXTS[-1]
    growth = {
        running: round(by_case[running, longest] / by_case[running, shortest], 2)
        for running in NUM_RUNNING
        if (running, longest) in by_case
    }
    for running, ratio in growth.items():
        print(f"{running} running: {longest:,} tokens cost {ratio} times what {shortest:,} cost")
    report = {
        "unit": "microseconds of CPU time per running sequence and step",
        "rows": rows,
        "growth": growth,
    }
    store(options.output, report)


if __name__ == "__main__":
    main()
