"""A sizing as text for a terminal, and as plain values for JSON."""

from __future__ import annotations

import textwrap
from typing import Any

from mini_engine.roofline import DecodeStep
from mini_engine.sizing.result import CacheSizing, Sizing, sequences
from mini_engine.units import format_bytes, format_rate, format_seconds, significant


def as_text(s: CacheSizing, answers: list[tuple[str, str]] | None = None) -> str:
    """The sizing for a terminal: the figures, the assumptions, the worked arithmetic, the answers."""
    lines = [title(s), ""]
    lines += [f"  {label:<28} {value}" for label, value in _figures(s)]
    lines += ["", "Assumed"] + [f"  {line}" for line in _assumptions(s)]
    lines += [f"  note: {note}" for note in s.notes]
    lines += ["", "Worked arithmetic"] + [textwrap.indent(text, "  ") for text in s.working]
    for number, (question, answer) in enumerate(answers or [], 1):
        lines += ["", answer_text(number, question, answer)]
    return "\n".join(lines)


def title(s: CacheSizing) -> str:
    """One line: the model, the cards, the load."""
    cards = s.gpu.name if s.tp == 1 else f"{s.tp} × {s.gpu.name}"
    weights = f", weights in {s.dtype}" if isinstance(s, Sizing) else ""
    return f"{s.model.name or s.model.model_type} on {cards}: {sequences(s.batch)} of {s.context:,} tokens, K/V in {s.kv_dtype}{weights}"


def answer_text(number: int, question: str, answer: str) -> str:
    """One answer of `--why`, wrapped under its question."""
    text = textwrap.fill(answer, 118, initial_indent="   ", subsequent_indent="   ")
    return f"{number}. {question}\n{text}"


def _figures(s: CacheSizing) -> list[tuple[str, str]]:
    figures = [
        ("K/V per token", format_bytes(s.kv_per_token)),
        ("K/V per token, per GPU", format_bytes(s.kv_per_token_per_gpu)),
        ("K/V of the batch, per GPU", format_bytes(s.kv_per_gpu)),
    ]
    if s.tp > 1:
        copies = ", copies included" if s.kv_held > s.kv_total else ""
        figures.append(("  on all GPUs together", f"{format_bytes(s.kv_held)}{copies}"))
    if s.num_windowed_layers:
        windowed = s.kv_per_sequence_per_gpu * s.batch
        figures.append(("  if windows are given back", f"{format_bytes(windowed)} per GPU"))
    return figures + _fit(s) + _speed(s) if isinstance(s, Sizing) else figures


def _fit(s: Sizing) -> list[tuple[str, str]]:
    windows = s.num_windowed_layers
    needs = f"it needs {format_bytes(s.need)} per GPU in whole blocks"
    if windows:
        needs += " with every layer in full" if s.fits else ", with windows given back"
    figures = [
        ("weights, per GPU", format_bytes(s.weights_per_gpu)),
        ("budget for K/V, per GPU", format_bytes(s.budget)),
        ("the weights", s.obstacle.removeprefix("the weights ") or "fit"),
        ("the batch", f"{s.verdict}: {needs}"),
        ("concurrency", f"{sequences(s.concurrency)} of {s.context:,} tokens"),
    ]
    if windows:
        figures.append(("  if windows are given back", sequences(s.concurrency_windowed)))
    each = f" for each of {s.batch:,} sequences" if s.batch > 1 else ""
    return [*figures, ("maximum context", f"{s.max_context:,} tokens{each}")]


def _speed(s: Sizing) -> list[tuple[str, str]]:
    figures = [("decode step, at least", _parts(s.step))]
    if s.reads.expected > s.reads.least:
        figures.append(("  expected, uniform routing", _parts(s.expected_step)))
    return [
        *figures,
        ("tokens per second, at most", f"{significant(s.tokens_per_s)} in all, {significant(s.tokens_per_s / s.batch)} per sequence"),
        ("bound by", _bound(s)),
        ("prefill of one prompt", f"{format_seconds(s.prefill)} at peak"),
    ]  # fmt: skip


def _parts(step: DecodeStep) -> str:
    return (
        f"{format_seconds(step.total)}: weights {format_seconds(step.weights)}, K/V {format_seconds(step.kv)}, compute "
        f"{format_seconds(step.compute)}"
    )


def _bound(s: Sizing) -> str:
    if s.step.bound == "compute":
        return "compute"
    larger = "weights" if s.step.weights >= s.step.kv else "K/V"
    ridge = "no batch is compute bound at this context"
    if s.batch_for_ridge:
        since = "not compute bound before" if s.model.num_experts else "compute bound from"
        ridge = f"{since} a batch of {s.batch_for_ridge:,}"
    return f"memory bandwidth, most of it for {larger}; {ridge}, the ridge is {significant(s.ridge)} FLOP/B"


def _assumptions(s: CacheSizing) -> list[str]:
    card = f"memory of one card {format_bytes(s.memory)}, {float(s.util) * 100:.4g}% of it used; overhead {format_bytes(s.overhead)}; blocks of {s.block} tokens"
    if not isinstance(s, Sizing):
        return [card]
    return [
        card,
        f"bandwidth {format_rate(s.gpu.memory_bandwidth)}, peak {format_rate(s.flops, 'FLOP/s')} dense, both from the data sheet: times are floors, rates are ceilings",
        f"{s.num_params:,} parameters, {s.num_active_params:,} active per token; {least_read(s)}",
    ]


def least_read(s: Sizing) -> str:
    """How many parameters a step reads at least, as a clause."""
    table = "the input embedding table is only looked up"
    if s.model.tie_word_embeddings:
        table = "the embedding table is also the output head, so it is read"
    return f"a step reads at least {s.reads.least:,} of them ({table})"


def as_json(s: CacheSizing, answers: list[tuple[str, str]] | None = None) -> dict[str, Any]:
    """The sizing as plain values: bytes and counts are integers, times are seconds, rates are per second."""
    return (
        _cache_values(s)
        | (_weight_values(s) if isinstance(s, Sizing) else {"num_params": None})
        | {"notes": list(s.notes), "working": list(s.working)}
        | ({"why": [{"question": q, "answer": a} for q, a in answers]} if answers else {})
    )


def _cache_values(s: CacheSizing) -> dict[str, Any]:
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
        "kv_bytes_per_token": s.kv_per_token,
        "kv_bytes_per_token_per_gpu": s.kv_per_token_per_gpu,
        "kv_total_bytes": s.kv_total,
        "kv_bytes_on_all_gpus": s.kv_held,
        "kv_bytes_per_sequence_per_gpu": s.kv_per_sequence_per_gpu,
        "kv_reserved_bytes_per_sequence_per_gpu": s.reserved_per_sequence_per_gpu,
        "kv_full_bytes_per_sequence_per_gpu": s.full_per_sequence_per_gpu,
    }


def _weight_values(s: Sizing) -> dict[str, Any]:
    whole = s.weights_per_gpu.denominator == 1
    return {
        "num_params": s.num_params,
        "num_active_params": s.num_active_params,
        "num_read_params": {"least": s.reads.least, "expected": s.reads.expected, "most": s.reads.most},
        "weight_bytes_per_gpu": int(s.weights_per_gpu) if whole else float(s.weights_per_gpu),
        "kv_budget_bytes": s.budget,
        "weights_fit": s.weights_fit,
        "fits": s.fits,
        "fits_windowed": s.fits_windowed,
        "max_concurrency": s.concurrency,
        "max_concurrency_windowed": s.concurrency_windowed,
        "max_context": s.max_context,
        "step_seconds": _seconds(s.step),
        "expected_step_seconds": _seconds(s.expected_step),
        "bound": s.step.bound,
        "tokens_per_s": float(s.tokens_per_s),
        "throughput_ceiling_tokens_per_s": float(s.throughput_ceiling) if s.throughput_ceiling else None,
        "batch_for_ridge": s.batch_for_ridge,
        "ridge_flop_per_byte": float(s.ridge),
        "prefill_seconds": float(s.prefill),
    }


def _seconds(step: DecodeStep) -> dict[str, float]:
    return {part: float(getattr(step, part)) for part in ("weights", "kv", "compute", "total")}
