"""How long `mini-engine size` takes to answer, and how much of that is its own arithmetic.

    python benchmarks/size_command.py [--repeats 15] [--output PATH]

Runs the whole command in processes of its own, plain and with `--why`, and the function behind panels in this one.
Writes medians, with machine, date and command, to benchmarks/results/size_command.json. CPU time leaves out other work on the machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from common.report import RESULTS, store

from mini_engine import get_gpu, get_model
from mini_engine.sizing import size

OPTIONS = ["--model", "llama-3-70b", "--gpu", "h100-sxm", "--tp", "2", "--context", "8192", "--batch", "16"]


def command(*more: str) -> Callable[[], tuple[float, float]]:
    """Runs the command once; gives (wall, CPU) seconds of the process."""

    def run() -> tuple[float, float]:
        before, began = os.times(), time.perf_counter()
        line = [sys.executable, "-m", "mini_engine", "size", *OPTIONS, *more]
        subprocess.run(line, stdout=subprocess.DEVNULL, check=True)
        wall, after = time.perf_counter() - began, os.times()
        return wall, after.children_user + after.children_system - before.children_user - before.children_system

    return run


def function() -> tuple[float, float]:
    """Sizes 50 deployments in this process; gives (wall, CPU) seconds of one."""
    model, gpu = get_model("llama-3-70b"), get_gpu("h100-sxm")
    began, cpu = time.perf_counter(), time.process_time()
    for batch in range(1, 51):
        size(model, gpu, tp=2, context=8192, batch=batch)
    return (time.perf_counter() - began) / 50, (time.process_time() - cpu) / 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--output", type=Path, default=RESULTS / "size_command.json")
    args = parser.parse_args()
    cases = {"command": command(), "command --why": command("--why"), "size()": function}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for _ in range(args.repeats):  # in turns, so that a busy moment hits all alike
        for name, run in cases.items():
            times[name].append(run())
    rows = {}
    for name, pairs in times.items():
        wall, cpu = ([pair[i] for pair in pairs] for i in (0, 1))
        rows[name] = {
            "wall_ms": round(statistics.median(wall) * 1e3, 2),
            "wall_ms_best": round(min(wall) * 1e3, 2),
            "cpu_ms": round(statistics.median(cpu) * 1e3, 2),
        }
        print(
            f"{name:14} wall {rows[name]['wall_ms']:8.2f} ms (best {rows[name]['wall_ms_best']:.2f})   CPU {rows[name]['cpu_ms']:8.2f} ms"
        )
    store(args.output, {"results": rows})


if __name__ == "__main__":
    main()
