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

from common.report import RESULTS, store

from mini_engine.models import load_model
from mini_engine.simulator.against_measured import simulated_against_measured
from mini_engine.workload import load_trace

TRACE = "synthetic_azure_conv.csv"
SHRINK = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--requests", type=int, default=30, help="of each part")
    parser.add_argument("--load", type=float, default=0.6, help="share of the time in which the engine is to be busy")
    parser.add_argument("--output", type=Path, default=RESULTS / "simulated_against_measured.json")
    options = parser.parse_args()

    model, started = load_model(options.model, backend="torch").model, time.perf_counter()
    found = simulated_against_measured(
        model,
        load_trace(TRACE),
        name=options.model,
        requests=options.requests,
        load=options.load,
        lengths_divided_by=SHRINK,
    )
    print(found)
    about = {"trace": TRACE, "lengths_divided_by": SHRINK, "requests": options.requests}
    about |= {"wall_seconds": round(time.perf_counter() - started, 1), "load_average": os.getloadavg()[0]}
    store(options.output, found.to_json() | about)


if __name__ == "__main__":
    main()
