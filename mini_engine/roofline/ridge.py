"""The ridge of a roofline: how many FLOPs a byte must bring for the arithmetic, not the memory, to be the limit."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from mini_engine.arguments import Real, number
from mini_engine.explain import explained
from mini_engine.units import exact, format_rate


@explained("what a kernel reaches of either peak; take the dense FLOP rate, a data sheet's sparse one is double")
def ridge_point(flops: Real, bw: Real) -> Fraction:
    """Peak FLOP/s over bandwidth in bytes/s, in FLOP per byte. Work of less intensity is bound by memory.

    Formula F10.
    """
    return number("flops", flops, positive=True) / number("bw", bw, positive=True)


@ridge_point.working
def _(ridge: Fraction, flops: Real, bw: Real) -> Iterator[str]:
    yield f"peak / bandwidth = {format_rate(number('flops', flops), 'FLOP/s')} / {format_rate(number('bw', bw))} = {exact(ridge)} FLOP/B"
