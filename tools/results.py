"""Put what benchmarks measured into the pages that quote it: tables made from benchmarks/results/*.json.

python tools/results.py            write the tables, between their marks
python tools/results.py --check    exit 1 and name the pages that are not up to date

A table says what its JSON says, with the command, the machine and the date under it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.marks import between, bring_up_to_date, only_compares  # noqa: E402

PEERS = {
    "mini_engine": "mini_engine",
    "openvino": "OpenVINO GenAI",
    "transformers_continuous": "transformers, continuous",
    "transformers_padded": "transformers, padded",
}
SCHEMES = ("fp32", "fp8", "int8 per token", "int4 KIVI, zero", "int2 KIVI, zero", "window 124 + 4 sinks")
PARTS = {"calibration": "the part it was calibrated on", "second part": "a second part", "third part": "a third part"}


def stored(name: str, root: Path = ROOT) -> Any:
    """A benchmark's report, or what a file beside the benchmarks holds."""
    return json.loads((root / "benchmarks" / name).read_text(encoding="utf-8"))


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; every column but the first is of numbers."""
    head = list(head)
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def origin(report: Mapping[str, Any], *more: str) -> str:
    """The line under a table: command, machine, date, and what else must be known to read it."""
    machine = report["machine"]
    return f"`{report['command']}`, {machine['cores']} cores of {machine['cpu']}, {report['date']}" + "".join(
        f"; {words}" for words in more
    )


def loads(values: Iterable[float]) -> str:
    """In words, how busy the machine was."""
    found = sorted(values)
    between_them = f"{found[0]:.1f}" if len(found) == 1 else f"{found[0]:.1f} to {found[-1]:.1f}"
    return f"others used the machine too, load average {between_them}"


def common_prefix(prompts: Iterable[list[int]]) -> int:
    """How many tokens all prompts begin with."""
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*prompts)))


def engine_cpu(root: Path) -> str:
    """The engine and its peers, by workload."""
    report, workloads = stored("results/engine_cpu.json", root), stored("workloads/cpu_engine.json", root)
    rows = []
    for name, result in report["workloads"].items():
        requests = workloads[name]
        prompts = [request["prompt"] for request in requests]
        shared = common_prefix(prompts) if len(prompts) > 1 else 0
        words = f"{len(requests)} request{'s' * (len(requests) > 1)}, {sum(map(len, prompts)):,} prompt tokens"
        words += f" ({shared} shared by all)" if shared else ""
        rates = (result["peers"].get(peer, {}).get("tokens_per_cpu_second", "-") for peer in PEERS)
        rows.append([f"{words}, {result['peers']['mini_engine']['output_tokens']:,} output tokens", *rates])
    busy = loads(row["load_average"] for result in report["workloads"].values() for row in result["peers"].values())
    title = (
        f"**Against other engines on a CPU.** {report['model']} in float32, one thread, output tokens per CPU second:"
    )
    return f"{title}\n\n{table(['workload', *PEERS.values()], rows)}\n\n{origin(report, busy)}"


def ablation_engine(root: Path) -> str:
    """What each part of the engine is worth, measured; the last row is the prefix cache."""
    report = stored("results/ablation_engine.json", root)
    head, columns = ["parts, one by one"], []
    for name, workload in report["workloads"].items():
        head += [f"{name}: tokens per CPU s", "TTFT p50, s", "tokens computed"]
        columns.append(workload["ladder"])
    rows = [
        [rung[0]["name"]]
        + [cell for row in rung for cell in (row["output_tokens_per_cpu_s"], f"{row['ttft_p50']:.2f}", row["tokens"])]
        for rung in zip(*columns, strict=True)
    ]
    title = f"**What each part is worth here.** {report['model']} on the CPU engine, everybody there from the start:"
    busy = loads([report["load_average_before"]])
    return f"{title}\n\n{table(head, rows)}\n\n{origin(report, busy)}"


def kv_quant(root: Path) -> str:
    """What fewer bits in the cache cost."""
    report = stored("results/kv_quant.json", root)
    model = report["models"]["smollm2-135m"]
    rows = [
        [name, f"{row['bytes_per_token']:,.0f}", f"{row['worse_by']:+.3f} ± {row['standard_error']:.3f}", row["found"]]
        for name, row in ((name, model["schemes"][name]) for name in SCHEMES)
    ]
    head = ["cache", "bytes a token", "loss, against fp32", f"facts found, of {model['facts']}"]
    title = f"**Fewer bits in the cache.** smollm2-135m, {model['predicted_tokens']:,} tokens of a novel in pieces of {report['length']}:"
    return f"{title}\n\n{table(head, rows)}\n\n{origin(report)}"


def simulated_against_measured(root: Path) -> str:
    """How far the simulator is off."""
    report = stored("results/simulated_against_measured.json", root)
    kinds = {"ttft_p50": "TTFT p50", "ttft_p90": "TTFT p90", "itl_p50": "ITL p50", "itl_p90": "ITL p90"}
    rows = [
        [words, f"{part['median_step_error']:.1%}", *(f"{part['latencies'][kind]['error']:+.1%}" for kind in kinds)]
        for words, part in ((words, report["parts"][name]) for name, words in PARTS.items())
    ]
    title = f"**The simulator against the engine.** {report['model']}, {report['requests']} requests a part, error of the simulation:"
    head = [report["trace"].removesuffix(".csv"), "median step", *kinds.values()]
    return f"{title}\n\n{table(head, rows)}\n\n{origin(report, loads([report['load_average']]))}"


def simulate_trace(root: Path) -> str:
    """How long a public trace takes to simulate."""
    report = stored("results/simulate_trace.json", root)
    run = report["trace"]
    summary = run["summary"]
    return (
        f"**A whole trace.** {run['name']}: {summary['num_requests']:,} requests, {run['tokens']:,} tokens and "
        f"{summary['num_steps']:,} steps of {report['model']} on one {report['gpu']} are simulated in "
        f"{run['cpu_seconds']:.0f} CPU seconds. {origin(report)}"
    )


RESULTS = (engine_cpu, ablation_engine, kv_quant, simulated_against_measured, simulate_trace)


def results(root: Path) -> str:
    """All tables of the README."""
    return "\n\n".join(make(root) for make in RESULTS)


def lesson_costs(root: Path) -> str:
    """Memory, CPU and time of a run of every lesson."""
    report = stored("results/lesson_costs.json", root)
    rows = [
        [name[:2], f"{row['peak_bytes'] / 2**20:,.0f}", f"{row['cpu_seconds']:.0f}", f"{row['wall_seconds']:.0f}"]
        for name, row in report["lessons"].items()
    ]
    title = (
        "From top to bottom, unsolved, in a fresh kernel: peak memory of the kernel and all its children, their CPU seconds, "
        "and the time it took."
    )
    busy = loads(row["load_average"] for row in report["lessons"].values())
    lab = f"JupyterLab's server without a page open: {report['jupyterlab_bytes'] / 2**20:.0f} MiB"
    threads = f"OMP_NUM_THREADS={report['threads']}"
    head = ["lesson", "memory, MiB", "CPU s", "seconds"]
    return f"{title}\n\n{table(head, rows)}\n\n{lab}.\n\n{origin(report, threads, busy)}"


PAGES: dict[str, tuple[str, Callable[[Path], str]]] = {
    "README.md": ("results", results),
    "docs/teaching/classroom.md": ("costs", lesson_costs),
}


def pages(root: Path = ROOT) -> dict[Path, str]:
    """Path to content of every page with a table in it."""
    return {
        root / page: between((root / page).read_text(encoding="utf-8"), name, make(root))
        for page, (name, make) in PAGES.items()
    }


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    """Exit status: 0 written or up to date, 1 with --check when a page is not."""
    check = only_compares(argv, __doc__)
    return bring_up_to_date(pages(root), root, check=check)


if __name__ == "__main__":
    sys.exit(main())
