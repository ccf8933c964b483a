"""Units: decimal and binary bytes, element sizes, and how numbers are printed. GB is 10^9 bytes, GiB is 2^30 bytes."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from mini_engine.arguments import choice, number

KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12
KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
TERA = 10**12
"""TFLOPS and TB/s are decimal."""

DTYPE_BYTES = {
    "fp32": 4,
    "float32": 4,
    "bf16": 2,
    "bfloat16": 2,
    "fp16": 2,
    "float16": 2,
    "fp8": 1,
    "int8": 1,
}


def dtype_bytes(name: str, dtype: str) -> int:
    """Bytes per element of `dtype`; ValueError naming the argument `name` and the dtypes there are."""
    return DTYPE_BYTES[choice(name, dtype, tuple(DTYPE_BYTES))]


def significant(value: int | float | Fraction, digits: int = 4) -> str:
    """A number with `digits` significant digits and thousands separators: 42.95, 2,496, 0.0003052.

    Whole numbers keep at least 6. ValueError for what is no finite number.
    """
    value = _finite("value", value)
    if value == int(value) and abs(value) < 10 ** max(6, digits):
        return f"{int(value):,}"
    x = float(value)
    if abs(x) < 1e-6:
        return f"{x:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(x))))
    text = f"{x:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def exact(value: int | Fraction) -> str:
    """An integer with thousands separators, or a fraction followed by its decimal: 163,840 or 437/464 = 0.9418."""
    value = _finite("value", value)
    if value == int(value):
        return f"{int(value):,}"
    ratio = f"{value.numerator:,}/{value.denominator:,}"
    return f"{ratio} = {significant(value)}" if len(ratio) <= 24 else significant(value, 6)


def format_bytes(size: int | Fraction) -> str:
    """Bytes in every unit a reader may think in: '327,680 B = 0.0003277 GB = 0.0003052 GiB (320 KiB)'."""
    size = _finite("size", size)
    whole = f"{int(size):,}" if size == int(size) else significant(size, 8)
    text = f"{whole} B = {significant(Fraction(size) / GB)} GB = {significant(Fraction(size) / GIB)} GiB"
    for unit, label in ((GIB, None), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return text if label is None else f"{text} ({significant(Fraction(size) / unit, 5)} {label})"
    return text


def format_seconds(seconds: int | float | Fraction) -> str:
    """Seconds with four digits or more, in the unit that reads best: '20.8955 ms', '1.626 s'."""
    exact_seconds = _finite("seconds", seconds)
    for unit, label in ((1, "s"), (Fraction(1, 10**3), "ms"), (Fraction(1, 10**6), "us")):
        if abs(exact_seconds) >= unit:
            return f"{significant(exact_seconds / unit, 6)} {label}"
    return f"{significant(exact_seconds * 10**9, 6)} ns"


def format_rate(per_second: int | float | Fraction, what: str = "B/s") -> str:
    """A rate with its decimal prefix: '3.35 TB/s', '989 TFLOP/s'."""
    rate = _finite("per_second", per_second)
    for unit, prefix in ((10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if abs(rate) >= unit:
            return f"{significant(rate / unit)} {prefix}{what}"
    return f"{significant(rate)} {what}"


def _finite(name: str, value: Any) -> Fraction:
    """A number to print, exactly; ValueError for nan, inf and what is no number."""
    return number(name, value, minimum=-PRINT_LIMIT, limit=PRINT_LIMIT)


PRINT_LIMIT = 10**300
"""Beyond any result of a calculator, and still a float."""
