"""Tokens per second, and the batch sizes at which something changes."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from mini_engine.arguments import Real, ceil_div, count, number
from mini_engine.explain import explained
from mini_engine.units import exact, format_rate, format_seconds, significant


@explained("prefill, and requests that finish at different times")
def tokens_per_s(B: int, step_time: Real) -> Fraction:
    """Output tokens per second of B sequences that each get one token in `step_time` seconds. Formula F16."""
    return count("B", B) / number("step_time", step_time, positive=True)


@tokens_per_s.working
def _(rate: Fraction, B: int, step_time: Real) -> Iterator[str]:
    yield f"sequences / step time = {B:,} / {format_seconds(number('step_time', step_time))} = {significant(rate, 6)} tok/s"


@explained("weights and compute: this is the limit for an infinite batch, which does not fit")
def throughput_ceiling(bw: Real, kv_per_token: Real, S: int) -> Fraction:
    """Tokens per second that no batch size exceeds: every token's own K/V must be read, bw / (kv S). Formula F16."""
    return number("bw", bw, positive=True) / (number("kv_per_token", kv_per_token, positive=True) * count("S", S))


@throughput_ceiling.working
def _(rate: Fraction, bw: Real, kv_per_token: Real, S: int) -> Iterator[str]:
    per_token = number("kv_per_token", kv_per_token)
    yield f"bandwidth / (bytes per token × tokens) = {format_rate(number('bw', bw))} / ({significant(per_token, 9)} B × {S:,}) = {significant(rate, 6)} tok/s"


@explained("whether that batch fits")
def batch_kv_equals_weights(weight_bytes: Real, kv_per_token: Real, S: int) -> int:
    """The batch from which a step reads at least as many bytes of K/V as of weights: ceil(weights / (kv S)).

    Formula F17.
    """
    per_sequence = number("kv_per_token", kv_per_token, positive=True) * count("S", S)
    return ceil_div(number("weight_bytes", weight_bytes, positive=True), per_sequence)


@batch_kv_equals_weights.working
def _(batch: int, weight_bytes: Real, kv_per_token: Real, S: int) -> Iterator[str]:
    weights, per_token = number("weight_bytes", weight_bytes), number("kv_per_token", kv_per_token)
    yield "ceil(weights / (bytes per token × tokens))"
    yield f"= ceil({significant(weights, 12)} / ({significant(per_token, 9)} × {S:,})) = ceil({significant(weights / (per_token * S), 6)}) = {batch:,}"


@explained("whether that batch fits")
def batch_for_ridge(weight_bytes: Real, kv_per_token: Real, S: int, flops_per_seq: Real, ridge: Real) -> int | None:
    """The smallest batch at which a whole decode step reaches the ridge; None when K/V reads keep every batch below it.

    flops_per_seq: FLOPs of one sequence's step on one GPU, f = 2 N / tp + 4 L (n_q / tp) d S. ceil(W ridge / (f -
    ridge kv S)). Formula F18.
    """
    S = count("S", S, minimum=0)
    ridge_ = number("ridge", ridge, positive=True)
    gain = number("flops_per_seq", flops_per_seq, positive=True) - ridge_ * number("kv_per_token", kv_per_token) * S
    weights = number("weight_bytes", weight_bytes, positive=True)
    return ceil_div(weights * ridge_, gain) if gain > 0 else None


@batch_for_ridge.working
def _(
    batch: int | None, weight_bytes: Real, kv_per_token: Real, S: int, flops_per_seq: Real, ridge: Real
) -> Iterator[str]:
    flops, ridge_ = number("flops_per_seq", flops_per_seq), number("ridge", ridge)
    needed = ridge_ * number("kv_per_token", kv_per_token) * S
    yield f"each sequence brings {significant(flops, 6)} FLOP, and its K/V needs ridge × kv × S = {exact(ridge_)} × {kv_per_token} × {S:,} = {significant(needed, 6)} FLOP to pay for"
    if batch is None:
        yield "it brings no more than it needs: no batch reaches the ridge"
        return
    before = number("weight_bytes", weight_bytes) * ridge_ / (flops - needed)
    yield "ceil(weights × ridge / (f - ridge kv S))"
    yield f"= ceil({significant(number('weight_bytes', weight_bytes), 12)} × {significant(ridge_)} / {significant(flops - needed, 6)}) = ceil({significant(before, 6)}) = {batch:,}"
