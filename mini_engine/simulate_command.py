"""`mini-engine simulate`: serve a trace on a simulated machine, once, or once for each value of some options."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from mini_engine import arguments, option_types
from mini_engine.config import CHOICES
from mini_engine.sizing.command import find_gpu, find_model
from mini_engine.units import DTYPE_BYTES, GB

NOT_SWEPT = ("help", "json", "sweep", "workers", "dask")
COLUMNS = {
    "TTFT p50": ("ttft", "p50"),
    "p99": ("ttft", "p99"),
    "TPOT p50": ("tpot", "p50"),
    "ITL p99": ("itl", "p99"),
    "tok/s": ("output_tokens_per_s",),
    "goodput": ("goodput", "share"),
    "K/V": ("block_utilization",),
    "hits": ("hit_rate",),
    "preempted": ("num_preemptions",),
    "refused": ("num_rejected",),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command. Each is checked as it is read, so that an error names the option."""
    number, seconds, ms = option_types.count, option_types.a_real(), option_types.a_real(scale=1e-3)
    choose = option_types.one_of

    def add(name: str, kind: Callable[[str], Any], default: Any, metavar: str, text: str) -> None:
        parser.add_argument(name, type=kind, default=default, metavar=metavar, help=text)

    add(
        "--trace",
        str,
        "synthetic_azure_conv.csv",
        "NAME|PATH",
        "an Azure .csv, a Mooncake .jsonl, or a trace of the project (default: %(default)s)",
    )
    add("--requests", number, None, "N", "only the first N requests of the trace")
    add("--rate", option_types.a_real(positive=True), None, "R", "stretch the arrivals to R requests per second")
    add("--model", str, "llama-3-8b", "NAME|PATH", "a model of the table, or a config.json (default: %(default)s)")
    add("--gpu", str, "h100-sxm", "NAME", "a GPU of the table (default: %(default)s)")
    add("--tp", number, 1, "N", "GPUs that share the model by tensor parallelism (default: 1)")
    add("--dtype", option_types.dtype, "bf16", "DTYPE", f"of the weights: {', '.join(DTYPE_BYTES)} (default: bf16)")
    add("--kv-dtype", option_types.dtype, "bf16", "DTYPE", "of the cache (default: bf16)")
    add("--util", option_types.share, Fraction(1), "SHARE", "of the card's memory the engine may use (default: 1)")
    add("--overhead-gb", option_types.gigabytes, 2 * GB, "GB", "activations and runtime per GPU (default: 2)")
    add("--params", _parameters, None, "N", "number of parameters, where the configuration does not tell")
    add("--active-params", _parameters, None, "N", "of them used per token")
    add(
        "--batching",
        choose("chunked", "iteration", "static"),
        "chunked",
        "HOW",
        "chunked (default), iteration: whole prompts, or static: a batch starts and ends together",
    )
    add(
        "--memory",
        choose("paged", "reserved"),
        "paged",
        "HOW",
        "paged (default), or reserved: the most a request can need, from its start",
    )
    add(
        "--reserve",
        number,
        None,
        "TOKENS",
        "what --memory reserved keeps for each request (default: the longest sequence)",
    )
    add("--block", number, 16, "TOKENS", "tokens per cache block (default: 16)")
    add("--num-blocks", number, None, "N", "blocks of the pool (default: as many as fit on the GPU)")
    add("--max-num-seqs", number, 256, "N", "requests that run at once (default: 256)")
    add(
        "--max-num-batched-tokens",
        number,
        None,
        "N",
        "tokens of one step (default: 2048 when chunked, else enough for every prompt)",
    )
    add("--max-model-len", number, None, "TOKENS", "longest sequence (default: the model's)")
    add("--prefix-cache", choose("on", "off"), "on", "on|off", "find computed prefixes by content (default: on)")
    for name, text in (("prefix_index", "structure of the prefix cache"), ("admission", "what must fit before a request starts"), ("policy", "who starts first"), ("preemption", "what making room means")):  # fmt: skip
        allowed = CHOICES[name]
        default = {"admission": "whole_prompt", "policy": "fcfs"}.get(name, allowed[0])
        add(f"--{name.replace('_', '-')}", choose(*allowed), default, "|".join(allowed), f"{text} (default: {default})")
    add("--swap-gb", option_types.gigabytes, 64 * GB, "GB", "host memory per GPU for --preemption swap (default: 64)")
    add(
        "--pcie-gb", option_types.gigabytes, None, "GB/s", "bandwidth to the host, one direction (default: the table's)"
    )
    add(
        "--watermark", option_types.a_real(), 0.0, "SHARE", "of the blocks kept free when a request starts (default: 0)"
    )
    add(
        "--flops-efficiency",
        option_types.a_real(positive=True, limit=1),
        0.5,
        "SHARE",
        "of peak FLOP/s that is reached (default: 0.5)",
    )
    add(
        "--bandwidth-efficiency",
        option_types.a_real(positive=True, limit=1),
        0.8,
        "SHARE",
        "of peak bandwidth that is reached (default: 0.8)",
    )
    add("--step-overhead-ms", ms, 2e-3, "MS", "what every step costs besides (default: 2)")
    add("--sequence-overhead-ms", ms, 0.0, "MS", "and for every sequence in it (default: 0)")
    for name in ("ttft", "tpot", "e2e"):
        add(f"--slo-{name}", seconds, None, "SECONDS", f"count the requests whose {name.upper()} is at most this")
    parser.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="OPTION=V1,V2,...",
        help="simulate once for each value; several make a grid",
    )
    add("--workers", number, None, "N", "processes for --sweep (default: one per core)")
    add("--dask", str, None, "ADDRESS", "run --sweep on a Dask cluster instead")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the figures. ValueError, FileNotFoundError or RuntimeError says what is wrong."""
    axes = _axes(args.sweep)
    if not axes:
        return _run_one(args)
    from tqdm import tqdm

    from mini_engine.simulator.sweep import dask_executor, grid, local_executor, sweep

    values = grid(axes)
    points = [_point(argparse.Namespace(**(vars(args) | _named(each)))) for each in values]
    with (
        local_executor(args.workers) if args.dask is None else dask_executor(args.dask) as executor,
        tqdm(total=len(points), unit="run", disable=None, leave=False) as bar,
    ):
        results = sweep(points, executor, bar.update)
    shown = [{name: text for name, (text, _) in each.items()} for each in values]
    if args.json:
        runs = [{"values": value, **result} for value, result in zip(shown, results)]
        _print_json(
            {
                "options": _options(args),
                "sweep": {name: [text for text, _ in axis] for name, axis in axes.items()},
                "runs": runs,
            }
        )
    else:
        print(_table(shown, results))
    return 1 if all("error" in result for result in results) else 0


def _run_one(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    point = _point(args)
    total = len(point.load())
    with tqdm(total=total, unit="request", disable=None, leave=False) as bar:
        summary = point.run(bar.update)
    if args.json:
        _print_json({"options": _options(args), **summary.to_json()})
    else:
        print(summary)
    return 0


def _point(args: argparse.Namespace) -> Any:
    """The options as one simulation. ValueError for an unknown model or GPU."""
    from mini_engine.simulator import Efficiency
    from mini_engine.simulator.sweep import Point

    efficiency = Efficiency(
        flops=args.flops_efficiency,
        bandwidth=args.bandwidth_efficiency,
        step_overhead=args.step_overhead_ms,
        sequence_overhead=args.sequence_overhead_ms,
    )
    same = (
        "tp", "dtype", "kv_dtype", "util", "batching", "memory", "num_blocks", "max_num_seqs", "max_num_batched_tokens",
        "max_model_len", "prefix_index", "admission", "policy", "preemption", "watermark",
    )  # fmt: skip
    options = {name: getattr(args, name) for name in same} | {
        "model": find_model(args.model),
        "gpu": find_gpu(args.gpu),
        "overhead": args.overhead_gb,
        "num_params": args.params,
        "num_active_params": args.active_params,
        "reserve_tokens": args.reserve,
        "block_size": args.block,
        "prefix_cache": args.prefix_cache == "on",
        "swap_bytes": args.swap_gb,
        "pcie_bandwidth": args.pcie_gb,
        "efficiency": efficiency,
    }
    limits = {name: getattr(args, f"slo_{name}") for name in ("ttft", "tpot", "e2e")}
    return Point(
        trace=args.trace,
        requests=args.requests,
        rate=args.rate,
        options=options,
        limits={name: limit for name, limit in limits.items() if limit is not None},
    )


def _axes(given: Sequence[str]) -> dict[str, list[tuple[str, Any]]]:
    """{option: [(value as written, value)]} of every --sweep. ValueError for an option that is unknown or cannot be swept."""
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    actions = {action.dest: action for action in parser._actions if action.dest not in NOT_SWEPT}
    axes: dict[str, list[tuple[str, Any]]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        action = actions.get(name.lstrip("-").replace("-", "_"))
        if action is None or not equals:
            known = ", ".join(name.replace("_", "-") for name in actions)
            raise ValueError(f"--sweep {arguments.shown(text)}: must be OPTION=V1,V2,... with one of {known}")
        if action.dest in axes:
            raise ValueError(f"--sweep {name} is given twice: put all its values behind one")
        axes[action.dest] = [(value.strip(), _value(action, value.strip())) for value in values.split(",")]
    return axes


def _value(action: argparse.Action, text: str) -> Any:
    try:
        assert callable(action.type)
        if not text:
            raise ValueError("a value is missing")
        return action.type(text)
    except (argparse.ArgumentTypeError, ValueError) as error:
        raise ValueError(f"--sweep {action.dest.replace('_', '-')}: {error}") from None


def _named(values: dict[str, tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, (_, value) in values.items()}


def _options(args: argparse.Namespace) -> dict[str, Any]:
    left_out = ("run", "json", "sweep", "workers", "dask")
    given = {name: value for name, value in vars(args).items() if name not in left_out}
    return {name: str(value) if isinstance(value, Fraction) else value for name, value in given.items()}


def _print_json(value: dict[str, Any]) -> None:
    json.dump(value, sys.stdout, indent=1, ensure_ascii=False, allow_nan=False)
    print()


def _table(values: Sequence[dict[str, str]], results: Sequence[dict[str, Any]]) -> str:
    """A row for each run: what was swept, then what came of it."""
    header = [*(name.replace("_", "-") for name in values[0]), *COLUMNS]
    rows = [header]
    for value, result in zip(values, results):
        if "error" in result:
            rows.append([*value.values(), f"error: {result['error']}"])
        else:
            rows.append([*value.values(), *(_cell(result, path) for path in COLUMNS.values())])
    widths = [max(len(row[i]) for row in rows if len(row) == len(header)) for i in range(len(header))]
    aligned = [" ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows]
    return "\n".join([*aligned, "latencies in seconds; goodput, K/V (blocks in use) and hits as shares"])


def _cell(result: dict[str, Any], path: Sequence[str]) -> str:
    found: Any = result
    for key in path:
        found = None if found is None else found[key]
    if found is None:
        return "-"
    if isinstance(found, int):
        return f"{found:,}"
    return f"{found:,.1f}" if path[-1] == "output_tokens_per_s" else f"{found:.4f}"


def _parse_parameters(text: str) -> int:
    from mini_engine.sizing.sizing import parameters

    return parameters("value", text)


_parameters = option_types.option(_parse_parameters)
