"""What paging, iteration-level scheduling, chunking and the prefix cache each buy here: simulated, and on the CPU engine.

    [MINI_ENGINE_TRACES=FOLDER] python benchmarks/ablation.py [--part simulated|engine] [--repeats 3] [--workers 1] [--quick]

Simulated: the largest request rate under stated limits, and the figures at one fixed rate, for services on the project's
synthetic traces, and on the public ones where FOLDER holds them. The ladder, the same steps in another order, and each step
alone: what a step gains depends on its place, on the limits and on the trace, so no product of factors is formed.

Measured: SmolLM2-135M on one CPU thread, all requests there from the start, rungs in turns, of the repeats the median. Times
are CPU time. The engine computes no padding: `padding` says what a rectangle would have cost besides. Steps and tokens do not
depend on time, and are those that the simulator plans. For the engine a reserved region is a seat: as many sequences run as
regions fit, their K/V in blocks all the same, as with regions for blocks attention would read them to their ends.

Prints tables and writes them, with machine, date and command, to ablation_simulated.json and ablation_engine.json in
benchmarks/results, or in --folder.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from common.report import RESULTS, store, version

from mini_engine.backends import TorchBackend
from mini_engine.backends.step_cost import Efficiency
from mini_engine.metrics import percentile
from mini_engine.models import load_model
from mini_engine.roofline.measure import one_thread
from mini_engine.simulator import SimulationOptions, Simulator
from mini_engine.simulator.ablation import ORDER, OTHER_ORDER, Row, Rung, Service, measure, rungs, rungs_alone, table
from mini_engine.simulator.calibrate import MeasuredRun, at_once, measure_engine, shrink
from mini_engine.simulator.sweep import Executor, local_executor
from mini_engine.workload import Trace, load_trace, profiles, shared_prefix

CONVERSATION = {"requests": 150, "rate": 4.0}
LONG = {"requests": 100, "rate": 1.0, "model": "llama-3.1-8b", "gpu": "h100-sxm", "ttft": 5.0, "tpot": 0.1}
SERVICES: dict[str, dict[str, Any]] = {
    "chats on one system prompt": {},
    "conversation": {"trace": "synthetic_azure_conv.csv", "ttft": 1.0, **CONVERSATION},
    "conversation, wide limits": {"trace": "synthetic_azure_conv.csv", "ttft": 5.0, "tpot": 0.2, **CONVERSATION},
    "long prompts": {"trace": "synthetic_mooncake_conversation.jsonl", **LONG},
}
PUBLIC: dict[str, dict[str, Any]] = {
    "Azure 2023 conversation": {"trace": "AzureLLMInferenceTrace_conv.csv", "ttft": 1.0, **CONVERSATION},
    "Mooncake conversation": {"trace": "mooncake_conversation_trace.jsonl", **LONG},
}
PROFILES = {"AzureLLMInferenceTrace_conv": "azure_conv", "mooncake_conversation_trace": "mooncake_conversation"}

REGION, REGIONS = 1024, 8  # tokens of a region, regions of the engine's pool
SEATS, BUDGET = 32, 128  # sequences that run at once, tokens of a step in chunks
SHRINK = 8  # a context of 8,192 tokens becomes one region


def simulated(services: dict[str, dict[str, Any]], executor: Executor) -> dict[str, Any]:
    """The three tables of every service."""
    found = {}
    for name, given in services.items():
        service = Service(**given)
        parts = {"ladder": rungs(ORDER), "another order": rungs(OTHER_ORDER), "each alone": rungs_alone()}
        rows = measure([rung for each in parts.values() for rung in each], service, executor)
        trace = load_trace(service.trace) if isinstance(service.trace, str) else service.trace
        about = {"trace": trace.name, "requests": service.requests or len(trace)}
        if not trace.synthetic:
            about["attribution"] = profiles()[PROFILES[trace.name]].attribution
        fields = ("model", "gpu", "ttft", "tpot", "meeting", "rate", "within")
        about |= {field: getattr(service, field) for field in fields}
        print(f"\n{name}: {', '.join(f'{key} {value}' for key, value in about.items())}")
        tables = {}
        for label, listed in parts.items():
            part, rows = rows[: len(listed)], rows[len(listed) :]
            tables[label] = [plain(row) for row in part]
            print(f"{label}\n{table(part)}", flush=True)
        found[name] = about | tables
    return found


def plain(row: Row) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(row).items()}


def measured(model: Any, workloads: dict[str, Trace], repeats: int) -> dict[str, Any]:
    """The ladder on the engine, for every workload."""
    found = {}
    with one_thread():
        for name, trace in workloads.items():
            runs: dict[str, list[MeasuredRun]] = {rung.name: [] for rung in rungs()}
            for _ in range(repeats):
                for rung in rungs():
                    runs[rung.name].append(serve(model, trace, rung))
            rows = [measured_row(model, trace, rung, runs[rung.name]) for rung in rungs()]
            prompt, answer = (sum(getattr(r, f"num_{kind}_tokens") for r in trace) for kind in ("prompt", "output"))
            about = {"trace": trace.name, "requests": len(trace), "prompt_tokens": prompt, "output_tokens": answer}
            print(
                f"\n{name}: {', '.join(f'{key} {value}' for key, value in about.items())}\n{measured_table(rows)}",
                flush=True,
            )
            found[name] = about | {"ladder": rows}
    return found


def options(model: Any, rung: Rung) -> SimulationOptions:
    """What the engine and the simulator are both given. Any GPU will do: nothing that is counted depends on its speed."""
    return SimulationOptions(
        model=model.spec,
        gpu="l4",
        num_blocks=REGION * REGIONS // 16,
        max_model_len=REGION,
        max_num_seqs=SEATS,
        max_num_batched_tokens=BUDGET if rung.options["batching"] == "chunked" else None,
        **rung.options,
    )


def serve(model: Any, trace: Trace, rung: Rung) -> MeasuredRun:
    chosen = options(model, rung)
    if chosen.memory == "reserved":
        chosen = replace(chosen, memory="paged", max_num_seqs=REGIONS)
    virtual = chosen.backend()
    config = chosen.config(virtual)
    return measure_engine(trace, TorchBackend(model), config, virtual.cost, scheduler=chosen.scheduler)


def measured_row(model: Any, trace: Trace, rung: Rung, runs: Sequence[MeasuredRun]) -> dict[str, Any]:
    """Times of the median run; counts, which are the same in all runs and in the simulator's."""
    seconds = [sum(step.seconds for step in run.steps) for run in runs]
    run = runs[seconds.index(statistics.median_low(seconds))]
    chosen = options(model, rung)
    backend = chosen.backend()
    usage = Simulator(chosen.config(backend), backend, scheduler=chosen.scheduler).run(trace).usage
    counted = {(len(each.steps), each.stats.num_prefill_tokens + each.stats.num_decode_tokens) for each in runs}
    assert counted == {(usage.num_steps, usage.num_tokens)}, f"{rung.name}: engine {counted}, simulator {usage}"
    gaps = [float(gap) for each in run.times for gap in each.itl]
    ttft = [float(each.ttft) for each in run.times]
    output = sum(r.num_output_tokens for r in trace)
    return {
        "name": rung.name,
        "cpu_seconds": round(statistics.median_low(seconds), 2),
        "all_cpu_seconds": [round(each, 2) for each in seconds],
        "output_tokens_per_cpu_s": round(output / statistics.median_low(seconds), 1),
        "ttft_p50": round(percentile(ttft, 50), 3),
        "ttft_p90": round(percentile(ttft, 90), 3),
        "itl_p99": round(percentile(gaps, 99), 3),
        "steps": usage.num_steps,
        "tokens": usage.num_tokens,
        "padding": usage.num_padding,
        "hit_tokens": run.stats.num_prefix_hit_tokens,
        "preemptions": run.stats.num_preemptions,
        "sequences_per_step": round(statistics.mean(step.num_seqs for step in run.steps), 2),
    }


def measured_table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        f"{'':18}{'cpu s':>7}{'tok/s':>7}{'TTFT p50':>10}{'p90':>7}{'ITL p99':>9}{'steps':>7}{'tokens':>8}{'padding':>9}"
        f"{'hits':>7}{'at once':>9}"
    ]
    for row in rows:
        line = (
            f"{row['name']:18}{row['cpu_seconds']:>7.1f}{row['output_tokens_per_cpu_s']:>7.0f}{row['ttft_p50']:>10.2f}"
        )
        line += (
            f"{row['ttft_p90']:>7.2f}{row['itl_p99']:>9.3f}{row['steps']:>7,}{row['tokens']:>8,}{row['padding']:>9,}"
        )
        lines.append(line + f"{row['hit_tokens']:>7,}{row['sequences_per_step']:>9.1f}")
    return "\n".join(lines)


def part_simulated(args: argparse.Namespace) -> dict[str, Any]:
    services, folder = dict(SERVICES), Path(os.environ.get("MINI_ENGINE_TRACES", ""))
    for label, given in PUBLIC.items():
        if (folder / given["trace"]).is_file():
            services[label] = given | {"trace": str(folder / given["trace"])}
        else:
            print(f"{label} is skipped: MINI_ENGINE_TRACES names no folder that holds {given['trace']}")
    if args.quick:
        services = {"chats on one system prompt": {"requests": 40, "within": 1.0}}
    with local_executor(args.workers) as executor:
        return {"gpu_constants": asdict(Efficiency()), "services": simulated(services, executor)}


def part_engine(args: argparse.Namespace) -> dict[str, Any]:
    load = os.getloadavg()[0]  # before this script adds to it
    name, conversation, document = ("tiny-gqa", 6, 6) if args.quick else ("smollm2-135m", 40, 32)
    trace = shrink(load_trace("synthetic_azure_conv.csv"), SHRINK).head(conversation)
    workloads = {
        "conversation": at_once(trace),
        "one document": at_once(shared_prefix(document, 256, question_tokens=64, output_tokens=24)),
    }
    return {
        "model": name,
        "threads": 1,
        "repeats": args.repeats,
        "versions": {package: version(package) for package in ("torch", "numpy")},
        "load_average_before": round(load, 2),
        "machine_was_shared": load > 0.5,
        "region_tokens": REGION,
        "regions": REGIONS,
        "max_num_seqs": SEATS,
        "chunk_budget": BUDGET,
        "lengths_divided_by": SHRINK,
        "workloads": measured(load_model(name, backend="torch").model, workloads, args.repeats),
    }


PARTS = {"engine": part_engine, "simulated": part_simulated}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=list(PARTS), help="only this one (default: both)")
    parser.add_argument("--repeats", type=int, default=3, help="of every rung on the engine")
    parser.add_argument("--workers", type=int, default=1, help="processes that simulate")
    parser.add_argument("--quick", action="store_true", help="a tiny model and few requests: a rehearsal, no figures")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.quick and args.folder == RESULTS:
        parser.error("--quick needs a --folder of its own: a rehearsal is no result")
    for name in PARTS if args.part is None else [args.part]:
        store(args.folder / f"ablation_{name}.json", PARTS[name](args))


if __name__ == "__main__":
    main()
