"""`mini-engine size`: what a model's KV cache takes on a GPU, how many requests fit, how fast a step can be, why."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from mini_engine import arguments
from mini_engine.catalog import ModelSpec, get_gpu, get_model, list_gpus, list_models
from mini_engine.sizing import Sizing, size
from mini_engine.units import DTYPE_BYTES, GB, format_bytes, format_rate, format_seconds, significant


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command. Each is checked as it is read, so that an error names the option."""
    add = parser.add_argument
    add(
        "--model",
        metavar="NAME|PATH",
        help="a model of the table, or the path of any config.json or of its folder",
    )
    add("--gpu", default="h100-sxm", metavar="NAME", help="a GPU of the table (default: %(default)s)")
    add(
        "--tp", type=_count, default=1, metavar="N", help="GPUs that share the model by tensor parallelism (default: 1)"
    )
    add("--context", type=_count, default=8192, metavar="TOKENS", help="tokens per sequence (default: 8192)")
    add("--batch", type=_count, default=1, metavar="N", help="sequences that decode together (default: 1)")
    add(
        "--kv-dtype",
        choices=tuple(DTYPE_BYTES),
        default="bf16",
        metavar="DTYPE",
        help=f"of the cache: {', '.join(DTYPE_BYTES)} (default: bf16)",
    )
    add("--dtype", choices=tuple(DTYPE_BYTES), default="bf16", metavar="DTYPE", help="of the weights (default: bf16)")
    add(
        "--util",
        type=_share,
        default=Fraction(1),
        metavar="SHARE",
        help="of the card's memory the engine may use, such as 0.9 (default: 1)",
    )
    add(
        "--overhead-gb",
        type=_gigabytes,
        default=Fraction(2),
        metavar="GB",
        help="activations and runtime per GPU, in 10^9 bytes (default: 2)",
    )
    add("--block", type=_count, default=16, metavar="TOKENS", help="tokens per cache block (default: 16)")
    add(
        "--memory",
        choices=("nominal", "reported"),
        default="nominal",
        help="the size on the box, or what the driver reports (default: nominal)",
    )
    add(
        "--params",
        type=_parameters,
        metavar="N",
        help="number of parameters, such as 80e9, where the configuration does not tell",
    )
    add("--list", action="store_true", help="print the names of the models and GPUs in the tables, and nothing else")
    add("--json", action="store_true", help="print one JSON object")
    add("--why", action="store_true", help="answer twelve questions with this model's numbers")


def run(args: argparse.Namespace) -> int:
    """Print the sizing. ValueError or FileNotFoundError says what is wrong with an argument."""
    if args.list:
        for what, names in (("models", list_models()), ("GPUs", list_gpus())):
            print(textwrap.fill(f"{what}: {', '.join(names)}", 118, subsequent_indent="  ", break_on_hyphens=False))
        return 0
    if args.model is None:
        raise ValueError("--model is missing: give a name (--list prints them), or the path of a config.json")
    sizing = size(
        find_model(args.model),
        _known(get_gpu, args.gpu),
        tp=args.tp,
        context=args.context,
        batch=args.batch,
        kv_dtype=args.kv_dtype,
        dtype=args.dtype,
        util=args.util,
        overhead=args.overhead_gb * GB,
        block=args.block,
        memory=args.memory,
        num_params=args.params,
    )
    answers: list[tuple[str, str]] = []
    if args.why:
        from mini_engine.sizing.why import answers as twelve

        answers = twelve(sizing)
    if args.json:
        json.dump(as_json(sizing, answers), sys.stdout, indent=1, ensure_ascii=False)
        print()
    else:
        print(as_text(sizing, answers))
    return 0


def find_model(name: str) -> ModelSpec:
    """A model by the path of its config.json or folder, or by its name in the table. ValueError lists near names."""
    if Path(name).exists() or name.endswith(".json") or "/" in name or "\\" in name:
        return ModelSpec.from_hf_config(name)
    return _known(get_model, name)


def _known(find: Callable[[str], Any], name: str) -> Any:
    try:
        return find(name)
    except KeyError as error:
        raise ValueError(error.args[0].replace("list_models()", "--list").replace("list_gpus()", "--list")) from None


def as_text(s: Sizing, answers: list[tuple[str, str]] | None = None) -> str:
    """The sizing for a terminal: the figures, the assumptions, the worked arithmetic, the answers."""
    lines = [_title(s), ""]
    lines += [f"  {label:<28} {value}" for label, value in _figures(s)]
    lines += ["", "Assumed"] + [f"  {line}" for line in _assumptions(s)]
    lines += [f"  note: {note}" for note in s.notes]
    lines += ["", "Worked arithmetic"] + [textwrap.indent(text, "  ") for text in s.working]
    for number, (question, answer) in enumerate(answers or [], 1):
        lines += [
            "",
            f"{number}. {question}",
            textwrap.fill(answer, 118, initial_indent="   ", subsequent_indent="   "),
        ]
    return "\n".join(lines)


def _title(s: Sizing) -> str:
    cards = s.gpu.name if s.tp == 1 else f"{s.tp} × {s.gpu.name}"
    return f"{s.model.name or s.model.model_type} on {cards}: {_sequences(s.batch)} of {s.context:,} tokens, K/V in {s.kv_dtype}, weights in {s.dtype}"


def _figures(s: Sizing) -> list[tuple[str, str]]:
    need = s.reserved_per_sequence_per_gpu * s.batch
    figures = [
        ("K/V per token", format_bytes(s.kv_per_token)),
        ("K/V per token, per GPU", format_bytes(s.kv_per_token_per_gpu)),
        ("K/V of the batch", format_bytes(s.kv_total)),
        ("weights, per GPU", format_bytes(s.weights_per_gpu)),
        ("budget for K/V, per GPU", format_bytes(s.budget)),
        ("the batch", f"{'fits' if s.fits else 'does not fit'}: it needs {format_bytes(need)} per GPU in whole blocks"),
        ("concurrency", f"{_sequences(s.concurrency)} of {s.context:,} tokens"),
    ]
    if s.model.num_windowed_layers:
        figures.append(("  if windows are given back", _sequences(s.concurrency_windowed)))
    figures += [
        ("maximum context", f"{s.max_context:,} tokens for each of {s.batch:,}"),
        ("decode step, at least", f"{format_seconds(s.step.total)}: weights {format_seconds(s.step.weights)}, K/V {format_seconds(s.step.kv)}, compute {format_seconds(s.step.compute)}"),
        ("tokens per second, at most", f"{significant(s.tokens_per_s)} in all, {significant(s.tokens_per_s / s.batch)} per sequence"),
        ("bound by", _bound(s)),
        ("prefill of one prompt", f"{format_seconds(s.prefill)} at peak"),
    ]  # fmt: skip
    return figures


def _sequences(number: int) -> str:
    return f"{number:,} sequence{'' if number == 1 else 's'}"


def _bound(s: Sizing) -> str:
    if s.step.bound == "compute":
        return "compute"
    larger = "weights" if s.step.weights >= s.step.kv else "K/V"
    ridge = (
        f"compute bound from a batch of {s.batch_for_ridge:,}"
        if s.batch_for_ridge
        else "no batch is compute bound at this context"
    )
    return f"memory bandwidth, most of it for {larger}; {ridge}, the ridge is {significant(s.ridge)} FLOP/B"


def _assumptions(s: Sizing) -> list[str]:
    return [
        f"memory of one card {format_bytes(s.memory)}, {float(s.util) * 100:.4g}% of it used; overhead {format_bytes(s.overhead)}; blocks of {s.block} tokens",
        f"bandwidth {format_rate(s.gpu.memory_bandwidth)}, peak {format_rate(s.flops, 'FLOP/s')} dense, both from the data sheet: times are floors, rates are ceilings",
        f"{s.num_params:,} parameters, {s.num_active_params:,} active per token",
    ]


def as_json(s: Sizing, answers: list[tuple[str, str]] | None = None) -> dict[str, Any]:
    """The sizing as plain values: bytes and counts are integers, times are seconds, rates are per second."""
    return {
        "model": s.model.name or s.model.model_type,
        "gpu": s.gpu.name,
        "tp": s.tp,
        "context": s.context,
        "batch": s.batch,
        "kv_dtype": s.kv_dtype,
        "dtype": s.dtype,
        "util": float(s.util),
        "overhead_bytes": s.overhead,
        "block": s.block,
        "memory_bytes": s.memory,
        "num_params": s.num_params,
        "num_active_params": s.num_active_params,
        "kv_bytes_per_token": s.kv_per_token,
        "kv_bytes_per_token_per_gpu": s.kv_per_token_per_gpu,
        "kv_total_bytes": s.kv_total,
        "kv_bytes_per_sequence_per_gpu": s.kv_per_sequence_per_gpu,
        "kv_reserved_bytes_per_sequence_per_gpu": s.reserved_per_sequence_per_gpu,
        "weight_bytes_per_gpu": float(s.weights_per_gpu)
        if s.weights_per_gpu.denominator > 1
        else int(s.weights_per_gpu),
        "kv_budget_bytes": s.budget,
        "fits": s.fits,
        "max_concurrency": s.concurrency,
        "max_concurrency_windowed": s.concurrency_windowed,
        "max_context": s.max_context,
        "step_seconds": {part: float(getattr(s.step, part)) for part in ("weights", "kv", "compute", "total")},
        "bound": s.step.bound,
        "tokens_per_s": float(s.tokens_per_s),
        "throughput_ceiling_tokens_per_s": float(s.throughput_ceiling) if s.throughput_ceiling else None,
        "batch_for_ridge": s.batch_for_ridge,
        "ridge_flop_per_byte": float(s.ridge),
        "prefill_seconds": float(s.prefill),
        "notes": list(s.notes),
        "working": list(s.working),
    } | ({"why": [{"question": q, "answer": a} for q, a in answers]} if answers else {})


def _option(check: Callable[[str], Any]) -> Callable[[str], Any]:
    """A checker as argparse wants it: its message is printed behind the option's name."""

    def parse(text: str) -> Any:
        try:
            return check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error).removeprefix("value=")) from None

    return parse


def _as_integer(text: str) -> Any:
    return int(text) if text.strip().lstrip("+-").isdecimal() and len(text) < 100 else text


_count = _option(lambda text: arguments.count("value", _as_integer(text), limit=10**9))
_share = _option(lambda text: arguments.share("value", text))
_gigabytes = _option(lambda text: arguments.number("value", text, limit=10**9))
_parameters = _option(lambda text: arguments.amount("value", text, minimum=1))
