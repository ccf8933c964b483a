"""One peer, one workload, one process: `python -m peers.child PEER MODEL WORKLOADS.json NAME RESULT.json`."""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path

WARM_UP = [{"prompt": list(range(20 + i, 60 + i)), "out": 4} for i in range(2)]


def peak_bytes() -> int:
    """The most memory this process has held so far, loading included."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux's getrusage counts the process that started this one, too
        return 1024 * next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(peer: str, model: str, requests: list[dict]) -> dict:
    """Load, warm up, run once; output tokens per second of CPU time and of wall time count the run alone."""
    try:
        module = importlib.import_module(f"peers.{peer}")
    except ModuleNotFoundError as error:
        return {"missing": error.name}
    engine = module.Peer(model, requests)
    engine.run(WARM_UP)
    cpu, wall = time.process_time(), time.perf_counter()
    token_ids = engine.run(requests)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {
        "output_tokens": sum(map(len, token_ids)),
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "peak_bytes": peak_bytes(),
        "load_average": os.getloadavg()[0],
        "token_ids": token_ids,
        "details": engine.details(),
    }


if __name__ == "__main__":
    peer, model, workloads, name, result = sys.argv[1:]
    Path(result).write_text(json.dumps(measure(peer, model, json.loads(Path(workloads).read_text())[name])))
