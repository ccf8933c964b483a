"""A quantized KV cache: fewer bits per element, and the scales that make sense of them."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from mini_engine.arguments import Real, count, number
from mini_engine.catalog import ModelSpec
from mini_engine.explain import explained
from mini_engine.geometry.kv_size import NOT_INCLUDED, kv_elems_per_token
from mini_engine.units import format_bytes, significant


@explained(f"{NOT_INCLUDED}; the loss of accuracy, and tokens that a scheme keeps in full precision")
def kv_bytes_quant(cfg: ModelSpec, bits: Real, group: int, scale_bytes: Real, zero_bytes: Real = 0) -> Fraction:
    """Bytes per token of a cache with `bits` per element and one scale (and zero point) per `group` elements.

    Formula F3.
    """
    bits_ = number("bits", bits, positive=True)
    group = count("group", group)
    overhead = number("scale_bytes", scale_bytes) + number("zero_bytes", zero_bytes)
    elems = kv_elems_per_token(cfg)
    return elems * bits_ / 8 + Fraction(elems, group) * overhead


@kv_bytes_quant.working
def _(size: Fraction, cfg: ModelSpec, bits: Real, group: int, scale_bytes: Real, zero_bytes: Real) -> Iterator[str]:
    elems = kv_elems_per_token(cfg)
    stored = Fraction(elems) * number("bits", bits) / 8
    yield "elements × bits / 8 + elements / group × (scale bytes + zero-point bytes)"
    yield f"= {elems:,} × {bits} / 8 + {elems:,} / {group} × ({scale_bytes} + {zero_bytes})"
    yield f"= {significant(stored, 8)} + {significant(size - stored, 8)} = {format_bytes(size)}"
    yield f"that is {significant(size * 8 / elems)} bits per element, {significant(size / (2 * elems))} of 16-bit"
