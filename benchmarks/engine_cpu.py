"""How fast the engine serves a real model on one CPU thread, beside other engines, in one run.

    python benchmarks/engine_cpu.py [--workloads W1 W2 W3 W4] [--peers ...] [--repeats 1] [--openvino-python PATH] [--output PATH]

SmolLM2-135M, the same weights (rounded to fp16, computed in fp32), token ids and lengths for all, greedy, everything submitted
at once. Output tokens per second of CPU time over the whole run, prefill included; loading and a warm-up are not. Each run has
a process of its own and one thread; engines take turns, workload by workload. A peer that is not installed is skipped:
`pip install "mini-engine[bench]"` brings them, and OpenVINO may live in an environment of its own. Prints tables and writes
them, with machine, date and command, to benchmarks/results/engine_cpu.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.agreement import compare
from common.limit import least_seconds
from common.report import RESULTS, store, version
from common.weights import write_f16_gguf

from mini_engine.models import load_model
from mini_engine.models.loading import open_checkpoint
from mini_engine.roofline.measure import MachineRates, measure_rates
from tests.oracle import export_hf

HERE = Path(__file__).resolve().parent
WORKLOADS = HERE / "workloads" / "cpu_engine.json"
OURS, MODEL, MIB = "mini_engine", "smollm2-135m", 1 << 20
ALLOWANCE = 300 * MIB  # interpreter, libraries, activations
QUEUE_LIMIT = 100 * MIB


@dataclass(frozen=True)
class Peer:
    title: str
    weights: str  # which form it reads: "own", "hf" or "gguf"
    aims: dict[str, float]  # by workload, how many times its rate ours should be at least
    skips: tuple[str, ...] = ()


PEERS = {
    OURS: Peer("mini_engine", "own", {}),
    "openvino": Peer("OpenVINO GenAI", "gguf", {"W1": 0.8, "W2": 0.7, "W3": 0.7, "W4": 0.9}),
    "transformers_padded": Peer("transformers, padded", "hf", {"W1": 1.0, "W2": 1.0}, skips=("W3", "W4")),
    "transformers_continuous": Peer("transformers, continuous", "hf", {"W1": 1.9, "W2": 1.9, "W3": 1.9, "W4": 1.9}),
}


def write_weights(forms: set[str], source: Path, folder: Path) -> dict[str, Path]:
    """The same weights in every form asked for."""
    paths = {"own": source}
    if "hf" in forms:
        paths["hf"] = export_hf(open_checkpoint(source), folder / "hf")
    if "gguf" in forms:
        paths["gguf"] = write_f16_gguf(source, folder / "f16.gguf")
    return paths


def run_peer(name: str, model: Path, workload: str, python: str, folder: Path) -> dict[str, Any]:
    """What `peers.child` measured, in a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent)}
    result = folder / "result.json"
    command = [python, "-m", "peers.child", name, str(model), str(WORKLOADS), workload, str(result)]
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} failed on {workload}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return json.loads(result.read_text())


def median_run(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The run of median CPU time (of an even number the faster of the two), with every run's rate."""
    ordered = sorted(runs, key=lambda run: run["cpu_seconds"])
    run = dict(ordered[(len(runs) - 1) // 2])
    run["tokens_per_cpu_second"] = round(run["output_tokens"] / run["cpu_seconds"], 1)
    run["tokens_per_wall_second"] = round(run["output_tokens"] / run["wall_seconds"], 1)
    run["all_tokens_per_cpu_second"] = [round(each["output_tokens"] / each["cpu_seconds"], 1) for each in runs]
    for key in ("cpu_seconds", "wall_seconds", "load_average"):
        run[key] = round(run[key], 2)
    run["peak_bytes"] = max(each["peak_bytes"] for each in runs)
    return run


def memory(run: dict[str, Any]) -> dict[str, Any]:
    """Our peak beside what it may be: 1.3 times the weights as held, the pool, and an allowance."""
    held, pool = run["details"]["weight_bytes"], run["details"]["pool_bytes"]
    return {
        "peak_bytes": run["peak_bytes"],
        "limit_bytes": int(1.3 * held) + pool + ALLOWANCE,
        "weight_bytes": held,
        "pool_bytes": pool,
        "bytes_of_1000_queued": run["details"]["bytes_of_1000_queued"],
    }


def summarise(
    workload: str, requests: list[dict], runs: dict[str, list[dict[str, Any]]], model: Any, rates: MachineRates
) -> dict[str, Any]:
    """The rows of one workload, each beside ours, and what the machine would allow."""
    rows = {name: median_run(each) for name, each in runs.items()}
    token_ids = {name: row.pop("token_ids") for name, row in rows.items()}
    seconds = least_seconds(model.spec, requests, rates, model.embed.itemsize)
    limit = sum(request["out"] for request in requests) / seconds
    result: dict[str, Any] = {"limit_tokens_per_cpu_second": round(limit, 1), "peers": rows}
    if OURS in rows:
        ours = rows[OURS]["tokens_per_cpu_second"]
        result["our_share_of_limit"] = round(ours / limit, 3)
        result["memory"] = memory(rows[OURS])
        for name in rows.keys() - {OURS}:
            rows[name]["ours_is"] = round(ours / rows[name]["tokens_per_cpu_second"], 2)
            rows[name]["aim"] = PEERS[name].aims.get(workload)
            rows[name]["agreement"] = compare(model, requests, token_ids[OURS], token_ids[name])
    return result


def print_workload(name: str, requests: list[dict], result: dict[str, Any]) -> None:
    prompt, written = sum(len(request["prompt"]) for request in requests), sum(request["out"] for request in requests)
    print(f"\n{name}: {len(requests)} requests, {prompt:,} prompt tokens, {written:,} output tokens")
    print(
        f"{'':26}{'tok/cpu s':>10}{'tok/s':>8}{'peak MiB':>10}{'load':>6}{'ours is':>10}{'aim':>6}   same text as ours"
    )
    for peer, row in result["peers"].items():
        line = f"{PEERS[peer].title:26}{row['tokens_per_cpu_second']:>10}{row['tokens_per_wall_second']:>8}"
        line += f"{row['peak_bytes'] / MIB:>10.0f}{row['load_average']:>6.1f}"
        if "ours_is" in row:
            agreement = row["agreement"]
            line += f"{row['ours_is']:>9.2f}x{row['aim'] or '':>6}   {agreement['identical']} of {len(requests)}"
            if agreement["differing"]:
                widest = max(each["gap"] for each in agreement["differing"])
                line += f"; {agreement['ties']} part at a tie, the widest gap is {widest:.1e}"
        print(line)
    share = f"   ours reaches {result['our_share_of_limit']:.0%}" if "our_share_of_limit" in result else ""
    print(f"{'limit of this machine':26}{result['limit_tokens_per_cpu_second']:>10}{share}", flush=True)


def print_memory(workload: str, used: dict[str, int]) -> None:
    mib = {name: round(size / MIB, 1) for name, size in used.items()}
    print(
        f"{workload}: peak {mib['peak_bytes']} MiB, allowed {mib['limit_bytes']} (1.3 x {mib['weight_bytes']} of weights"
        f" + {mib['pool_bytes']} of pool + {ALLOWANCE // MIB}); 1,000 queued requests hold {mib['bytes_of_1000_queued']}"
        f" MiB, allowed {QUEUE_LIMIT // MIB}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    workloads = json.loads(WORKLOADS.read_text())
    names = [name for name in workloads if name != "meta"]
    parser.add_argument("--workloads", nargs="+", choices=names, default=names)
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--openvino-python", default=sys.executable, help="an interpreter that has openvino-genai")
    parser.add_argument("--output", type=Path, default=RESULTS / "engine_cpu.json")
    args = parser.parse_args()

    rates = measure_rates(size=1536, repeats=12)
    print(
        f"one thread: {rates.flops / 1e9:.0f} GFLOP/s in fp32 products, {rates.bandwidth / 1e9:.1f} GB/s read from memory"
    )
    loaded = load_model(MODEL)
    peers = [name for name in PEERS if name in args.peers]
    versions = {name: version(name) for name in ("torch", "transformers", "numpy")}
    about = {
        "model": MODEL,
        "threads": 1,
        "flops_per_second": round(rates.flops),
        "bytes_per_second": round(rates.bandwidth),
    }
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        weights = write_weights({PEERS[name].weights for name in peers}, loaded.path, folder)
        for workload in args.workloads:
            runs: dict[str, list[dict[str, Any]]] = {}
            for _ in range(args.repeats):
                for name in list(peers):
                    peer = PEERS[name]
                    if workload in peer.skips:
                        continue
                    python = os.path.abspath(args.openvino_python) if name == "openvino" else sys.executable
                    run = run_peer(name, weights[peer.weights], workload, python, folder)
                    if "missing" in run:
                        print(f"{peer.title} is skipped: the package {run['missing']} is not installed")
                        peers.remove(name)
                        continue
                    versions |= run["details"].pop("versions", {})
                    runs.setdefault(name, []).append(run)
            results[workload] = summarise(workload, workloads[workload], runs, loaded.model, rates)
            print_workload(workload, workloads[workload], results[workload])
            # Stored as it comes: what is done stays if the rest fails.
            store(args.output, about | {"versions": versions, "workloads": results})
    print()
    for workload, result in results.items():
        if "memory" in result:
            print_memory(workload, result["memory"])


if __name__ == "__main__":
    main()
