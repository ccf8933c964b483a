"""Intensity of a matrix product, which is what a layer's projections and MLP are: M tokens times a K × N weight."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from mini_engine.arguments import Real, ceil_div, count, number
from mini_engine.explain import explained
from mini_engine.units import exact, significant


@explained("reading an operand twice because it does not fit on the chip")
def gemm_intensity(M: int, K: int, N: int, b: Real = 2) -> Fraction:
    """FLOPs over bytes of an [M, K] × [K, N] product of b-byte elements.

    Each operand is read once and the result written once:

    2 M K N / (b (M K + K N + M N)). For M far below K and N it is about 2 M / b; it never reaches 2 / b × min(M, K,
    N). Formula F11.
    """
    M, K, N = count("M", M), count("K", K), count("N", N)
    return 2 * M * K * N / (number("b", b, positive=True) * (M * K + K * N + M * N))


@gemm_intensity.working
def _(intensity: Fraction, M: int, K: int, N: int, b: Real) -> Iterator[str]:
    flops, elements = 2 * M * K * N, M * K + K * N + M * N
    yield "2 M K N / (b (M K + K N + M N))"
    yield f"= 2 × {M:,} × {K:,} × {N:,} / ({b} × ({M * K:,} + {K * N:,} + {M * N:,}))"
    yield f"= {flops:,} FLOP / {significant(number('b', b) * elements, 12)} B = {exact(intensity)} FLOP/B"


@explained("what a kernel reaches of either peak")
def min_tokens_compute_bound(K: int, N: int, ridge: Real, b: Real = 2) -> int | None:
    """The smallest M whose product with a K × N weight reaches the ridge; None when no M does.

    However many tokens, the intensity stays below 2 K N / (b (K + N)). Formula F11.
    """
    K, N = count("K", K), count("N", N)
    needed = number("ridge", ridge, positive=True) * number("b", b, positive=True)  # intensity × b
    gain = 2 * K * N - needed * (K + N)
    return ceil_div(needed * K * N, gain) if gain > 0 else None


@min_tokens_compute_bound.working
def _(tokens: int | None, K: int, N: int, ridge: Real, b: Real) -> Iterator[str]:
    ridge_, b_ = number("ridge", ridge), number("b", b)
    limit = 2 * K * N / (b_ * (K + N))
    yield f"limit for M to infinity: 2 K N / (b (K + N)) = {exact(limit)} FLOP/B, ridge {significant(ridge_)}"
    if tokens is None:
        yield "the limit is not above the ridge: never compute bound"
        return
    yield "M = ceil(ridge b K N / (2 K N - ridge b (K + N)))"
    before = ridge_ * b_ * K * N / (2 * K * N - ridge_ * b_ * (K + N))
    yield f"= ceil({significant(before, 6)}) = {tokens:,} tokens, at {significant(gemm_intensity(tokens, K, N, b))} FLOP/B"
