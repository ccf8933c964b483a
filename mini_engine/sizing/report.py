"""A sizing as text for a terminal, and as plain values for JSON."""

from __future__ import annotations

import textwrap
from typing import Any

from mini_engine.sizing.result import Sizing, sequences
from mini_engine.units import format_bytes, format_rate, format_seconds, significant


def as_text(s: Sizing, answers: list[tuple[str, str]] | None = None, first: int = 1) -> str:
    """The sizing for a terminal: the figures, the assumptions, the worked arithmetic, the answers from number `first`."""
    lines = [_title(s), ""]
    lines += [f"  {label:<28} {value}" for label, value in _figures(s)]
    lines += ["", "Assumed"] + [f"  {line}" for line in _assumptions(s)]
    lines += [f"  note: {note}" for note in s.notes]
    lines += ["", "Worked arithmetic"] + [textwrap.indent(text, "  ") for text in s.working]
    for number, (question, answer) in enumerate(answers or [], first):
        lines += [
            "",
            f"{number}. {question}",
            textwrap.fill(answer, 118, initial_indent="   ", subsequent_indent="   "),
        ]
    return "\n".join(lines)


def _title(s: Sizing) -> str:
    cards = s.gpu.name if s.tp == 1 else f"{s.tp} × {s.gpu.name}"
    return f"{s.model.name or s.model.model_type} on {cards}: {sequences(s.batch)} of {s.context:,} tokens, K/V in {s.kv_dtype}, weights in {s.dtype}"


def _figures(s: Sizing) -> list[tuple[str, str]]:
    need = s.reserved_per_sequence_per_gpu * s.batch
    figures = [
        ("K/V per token", format_bytes(s.kv_per_token)),
        ("K/V per token, per GPU", format_bytes(s.kv_per_token_per_gpu)),
        ("K/V of the batch", format_bytes(s.kv_total)),
        ("weights, per GPU", format_bytes(s.weights_per_gpu)),
        ("budget for K/V, per GPU", format_bytes(s.budget)),
        ("the weights", "fit" if s.weights_fit else f"do not fit on {'this GPU' if s.tp == 1 else 'these GPUs'}"),
        ("the batch", f"{'fits' if s.fits else 'does not fit'}: it needs {format_bytes(need)} per GPU in whole blocks"),
        ("concurrency", f"{sequences(s.concurrency)} of {s.context:,} tokens"),
    ]
    if s.model.num_windowed_layers:
        figures.append(("  if windows are given back", sequences(s.concurrency_windowed)))
    figures += [
        ("maximum context", f"{s.max_context:,} tokens for each of {s.batch:,}"),
        ("decode step, at least", f"{format_seconds(s.step.total)}: weights {format_seconds(s.step.weights)}, K/V {format_seconds(s.step.kv)}, compute {format_seconds(s.step.compute)}"),
        ("tokens per second, at most", f"{significant(s.tokens_per_s)} in all, {significant(s.tokens_per_s / s.batch)} per sequence"),
        ("bound by", _bound(s)),
        ("prefill of one prompt", f"{format_seconds(s.prefill)} at peak"),
    ]  # fmt: skip
    return figures


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
        "weights_fit": s.weights_fit,
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
