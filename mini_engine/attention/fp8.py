"""The 8-bit float e4m3 (4 bits of exponent, 3 of mantissa): a cache of half the bytes of bf16 that needs no scales.

Its numbers lie 2^-3 apart between 1 and 2, twice as far in each next octave, up to 448; below 2^-6 they are evenly
2^-9 apart. So the error is relative: at most 1/16 of the number. There is no infinity: what is larger than 448 becomes
448. Source: Micikevicius et al. 2022, table 1; the variant that PyTorch calls float8_e4m3fn.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mini_engine.attention.quantized import Encoded, check_finite

FP8_MAX = 448.0
LEAST_EXPONENT = -6  # below 2^-6 numbers are subnormal and keep the spacing they have there
MANTISSA_BITS = 3
NAN_CODE = 0x7F


def _value(code: int) -> float:
    exponent, mantissa = code >> MANTISSA_BITS, code & 0b111
    if exponent == 0:
        return mantissa * 2.0**-9
    return (1 + mantissa / 8) * 2.0 ** (exponent - 7)


MAGNITUDES = np.array([_value(code) for code in range(NAN_CODE)])  # of codes 0 .. 126; bit 7 is the sign
VALUES = np.concatenate([MAGNITUDES, [np.nan], -MAGNITUDES, [np.nan]])  # of every byte


def fp8_e4m3(x: npt.ArrayLike) -> np.ndarray:
    """x rounded to the nearest e4m3 number, ties to the even mantissa: float64, same shape. Beyond +-448, infinity
    included, it saturates; NaN stays NaN."""
    x = np.asarray(x, dtype=np.float64)
    _, exponent = np.frexp(x)  # |x| = m * 2^exponent with m in [1/2, 1)
    spacing = np.ldexp(1.0, np.maximum(exponent - 1, LEAST_EXPONENT) - MANTISSA_BITS)
    return np.clip(np.rint(x / spacing) * spacing, -FP8_MAX, FP8_MAX)


class Fp8Codec:
    """e4m3 without a scale, one byte a number; what engines call kv_cache_dtype "fp8" with a scale of 1."""

    tokens_per_group = 1

    def encode(self, x: np.ndarray) -> Encoded:
        """x[T, K, D]. ValueError for NaN or infinity."""
        check_finite(x)
        rounded = fp8_e4m3(x)
        codes = np.searchsorted(MAGNITUDES, np.abs(rounded)).astype(np.uint8)  # magnitudes grow with their codes
        return Encoded(codes | (np.signbit(rounded).astype(np.uint8) << np.uint8(7)))

    def decode(self, encoded: Encoded) -> np.ndarray:
        """x[T, K, D] in float32: the value of each code."""
        return VALUES[encoded.codes].astype(np.float32)
