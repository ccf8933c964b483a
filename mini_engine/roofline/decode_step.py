"""The least time a decode step can take: the weights and the K/V must be read, the products computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from mini_engine.arguments import Real, count, number
from mini_engine.explain import explained
from mini_engine.units import format_bytes, format_rate, format_seconds, significant

NOT_INCLUDED = (
    "kernel launches, communication between GPUs, sampling, scheduling; peaks are data-sheet peaks, so this is a floor"
)


@dataclass(frozen=True)
class DecodeStep:
    """Seconds of one decode step. Reading and computing overlap, so `total` is a maximum, not a sum."""

    weights: Fraction
    kv: Fraction
    compute: Fraction
    total: Fraction
    """max(weights + kv, compute)"""
    bound: str
    """"memory" or "compute": which of the two is the total."""


@explained(NOT_INCLUDED)
def decode_step_time(
    weight_bytes: Real,
    kv_per_token: Real,
    S: int,
    B: int,
    bw: Real,
    n_params: Real,
    flops: Real,
    n_layers: int,
    n_q: int,
    head_dim: int,
    tp: int = 1,
) -> DecodeStep:
    """Least seconds of a decode step of B sequences with S cached tokens each.

    Per GPU: weight_bytes, kv_per_token (bytes), bw (bytes/s), flops (peak FLOP/s). Of the whole model: n_params,
    n_layers, n_q, head_dim. max((weight_bytes + kv S B) / bw, (2 n_params B + 4 n_layers n_q head_dim S B) / (flops
    tp)). Formula F15.
    """
    S, B, tp = count("S", S, minimum=0), count("B", B), count("tp", tp)
    bandwidth = number("bw", bw, positive=True)
    weights = number("weight_bytes", weight_bytes) / bandwidth
    kv = number("kv_per_token", kv_per_token) * S * B / bandwidth
    attention = 4 * count("n_layers", n_layers) * count("n_q", n_q) * count("head_dim", head_dim) * S * B
    work = 2 * number("n_params", n_params) * B + attention
    compute = work / (number("flops", flops, positive=True) * tp)
    return DecodeStep(
        weights, kv, compute, max(weights + kv, compute), "compute" if compute > weights + kv else "memory"
    )


@decode_step_time.working
def _(
    step: DecodeStep,
    weight_bytes: Real,
    kv_per_token: Real,
    S: int,
    B: int,
    bw: Real,
    n_params: Real,
    flops: Real,
    n_layers: int,
    n_q: int,
    head_dim: int,
    tp: int,
) -> Iterator[str]:
    rate = format_rate(number("bw", bw))
    cache = number("kv_per_token", kv_per_token) * S * B
    yield f"weights: {format_bytes(number('weight_bytes', weight_bytes))} / {rate} = {format_seconds(step.weights)}"
    yield f"K/V: {significant(number('kv_per_token', kv_per_token), 9)} × {S:,} × {B:,} = {format_bytes(cache)}, / {rate} = {format_seconds(step.kv)}"
    work = 2 * number("n_params", n_params) * B, 4 * n_layers * n_q * head_dim * S * B
    yield (
        f"compute: (2 × {significant(number('n_params', n_params), 12)} × {B:,} + 4 × {n_layers} × {n_q} × "
        f"{head_dim} × {S:,} × {B:,}) FLOP "
        f"/ ({format_rate(number('flops', flops), 'FLOP/s')} × {tp}) = {significant(sum(work))} FLOP / "
        f"{format_rate(number('flops', flops) * tp, 'FLOP/s')} = {format_seconds(step.compute)}"
    )
    yield f"max(weights + K/V = {format_seconds(step.weights + step.kv)}, compute = {format_seconds(step.compute)}) = {format_seconds(step.total)}"
    yield f"bound by {step.bound}"


@dataclass(frozen=True)
class AdditiveStep:
    """Seconds of one decode step where attention and the matrix products take turns: total = kv + matmul."""

    kv: Fraction
    weights: Fraction
    compute: Fraction

    @property
    def matmul(self) -> Fraction:
        """The matrix products overlap with reading their weights."""
        return max(self.weights, self.compute)

    @property
    def total(self) -> Fraction:
        """Seconds of the step: both parts, one after the other."""
        return self.kv + self.matmul


@explained(NOT_INCLUDED)
def decode_step_time_additive(
    B: int, kv_bytes_per_seq: Real, weight_bytes: Real, bw: Real, n_params: Real, flops: Real, chips: int
) -> AdditiveStep:
    """Seconds of a decode step when attention and the matrix products take turns.

    This is how "How to Scale Your Model" counts: attention is always bound by memory and overlaps with nothing.

    B kv / (chips bw) + max(weights / (chips bw), 2 B n_params / (chips flops)). Sizes are of the whole model, rates
    of one chip. Formula F15.
    """
    B, chips = count("B", B), count("chips", chips)
    bandwidth = chips * number("bw", bw, positive=True)
    return AdditiveStep(
        kv=B * number("kv_bytes_per_seq", kv_bytes_per_seq) / bandwidth,
        weights=number("weight_bytes", weight_bytes) / bandwidth,
        compute=2 * B * number("n_params", n_params) / (chips * number("flops", flops, positive=True)),
    )


@decode_step_time_additive.working
def _(
    step: AdditiveStep,
    B: int,
    kv_bytes_per_seq: Real,
    weight_bytes: Real,
    bw: Real,
    n_params: Real,
    flops: Real,
    chips: int,
) -> Iterator[str]:
    rate = f"({chips} × {format_rate(number('bw', bw))})"
    yield f"K/V: {B:,} × {format_bytes(number('kv_bytes_per_seq', kv_bytes_per_seq))} / {rate} = {format_seconds(step.kv)}"
    yield f"weights: {format_bytes(number('weight_bytes', weight_bytes))} / {rate} = {format_seconds(step.weights)}"
    yield (
        f"compute: 2 × {B:,} × {significant(number('n_params', n_params), 12)} FLOP "
        f"/ ({chips} × {format_rate(number('flops', flops), 'FLOP/s')}) = {format_seconds(step.compute)}"
    )
    yield f"K/V + max(weights, compute) = {format_seconds(step.kv)} + {format_seconds(step.matmul)} = {format_seconds(step.total)}"
