"""Quantizers and ways back for lesson 05: the reference, right ones written another way, and wrong ones that people write."""

from __future__ import annotations

import numpy as np

Array = np.ndarray
Coded = tuple[Array, Array]


def quantize(x: Array, axis: int, bits: int = 8) -> Coded:
    """x -> int8 codes of x's shape, and float16 scales: numbers along `axis` share one. x is about codes * scale.

    Codes run from -(2^(bits-1) - 1) to 2^(bits-1) - 1. Source: symmetric ("absmax") quantization, as in llama.cpp's q8_0.
    """
    largest = 2 ** (bits - 1) - 1
    scale = (np.abs(x).max(axis=axis, keepdims=True) / largest).astype(np.float16)
    step = np.where(scale == 0, 1, scale).astype(np.float64)
    codes = np.clip(np.rint(x / step), -largest, largest)
    return codes.astype(np.int8), scale


def dequantize(codes: Array, scale: Array) -> Array:
    """codes * scale, in float32."""
    return codes.astype(np.float32) * scale.astype(np.float32)


# -- right, another way ------------------------------------------------------------------------------------------------


def with_float32(x: Array, axis: int, bits: int = 8) -> Coded:
    largest = 2 ** (bits - 1) - 1
    top = np.max(np.abs(x), axis=axis, keepdims=True).astype(np.float32)
    scale = np.maximum(top / largest, 1e-6).astype(np.float16)
    return np.round(x / scale.astype(np.float32)).clip(-largest, largest).astype(np.int8), scale


def by_lists(x: Array, axis: int, bits: int = 8) -> Coded:
    last = np.moveaxis(x, axis, -1)
    codes, scales = np.zeros(last.shape, dtype=np.int8), np.zeros((*last.shape[:-1], 1), dtype=np.float16)
    for at in np.ndindex(last.shape[:-1]):
        scales[at] = max(abs(number) for number in last[at]) / (2 ** (bits - 1) - 1)
        if scales[at] > 0:
            codes[at] = [round(float(number) / float(scales[at][0])) for number in last[at]]
    return np.moveaxis(codes, -1, axis), np.moveaxis(scales, -1, axis)


def half_up(x: Array, axis: int, bits: int = 8) -> Coded:
    scale = (abs(x).max(axis, keepdims=True) / (2 ** (bits - 1) - 1)).astype("float16")
    scale[scale == 0] = 1
    return np.floor(x / scale.astype(float) + 0.5).astype("int8"), scale


def back_in_float64(codes: Array, scale: Array) -> Array:
    return codes * scale.astype(np.float64)


def back_by_multiply(codes: Array, scale: Array) -> Array:
    return np.multiply(codes, scale, dtype=np.float32)


# -- wrong -------------------------------------------------------------------------------------------------------------


def _scale(x: Array, axis: int, bits: int) -> Array:
    scale = (np.abs(x).max(axis=axis, keepdims=True) / (2 ** (bits - 1) - 1)).astype(np.float16)
    return np.where(scale == 0, np.float16(1), scale)


def cuts(x: Array, axis: int, bits: int = 8) -> Coded:
    scale = _scale(x, axis, bits)
    return (x / scale.astype(np.float64)).astype(np.int8), scale


def floors(x: Array, axis: int, bits: int = 8) -> Coded:
    scale = _scale(x, axis, bits)
    return (x // scale.astype(np.float64)).astype(np.int8), scale


def wraps(x: Array, axis: int, bits: int = 8) -> Coded:
    scale = np.abs(x).max(axis=axis, keepdims=True) / 2 ** (bits - 1)
    scale = np.where(scale == 0, 1, scale).astype(np.float16)
    return np.rint(x / scale.astype(np.float64)).astype(np.int64).astype(np.int8), scale


def largest(x: Array, axis: int, bits: int = 8) -> Coded:
    top = 2 ** (bits - 1) - 1
    scale = (x.max(axis=axis, keepdims=True) / top).astype(np.float16)
    scale = np.where(scale == 0, np.float16(1), scale)
    return np.clip(np.rint(x / scale.astype(np.float64)), -top, top).astype(np.int8), scale


def clips(x: Array, axis: int, bits: int = 8) -> Coded:
    top = 2 ** (bits - 1) - 1
    scale = (np.quantile(np.abs(x), 0.95, axis=axis, keepdims=True) / top).astype(np.float16)
    scale = np.where(scale == 0, np.float16(1), scale)
    return np.clip(np.rint(x / scale.astype(np.float64)), -top, top).astype(np.int8), scale


def unsigned(x: Array, axis: int, bits: int = 8) -> Coded:
    scale = (np.abs(x).max(axis=axis, keepdims=True) / (2**bits - 1)).astype(np.float16)
    scale = np.where(scale == 0, np.float16(1), scale)
    return np.rint(x / scale.astype(np.float64)).astype(np.int64).astype(np.int8), scale


def one_scale(x: Array, axis: int, bits: int = 8) -> Coded:
    scale = _scale(x.ravel(), 0, bits)
    return np.rint(x / scale.astype(np.float64)).astype(np.int8), scale


def one_scale_repeated(x: Array, axis: int, bits: int = 8) -> Coded:
    scale = np.full_like(_scale(x, axis, bits), _scale(x.ravel(), 0, bits)[0])
    return np.rint(x / scale.astype(np.float64)).astype(np.int8), scale


def last_axis(x: Array, axis: int, bits: int = 8) -> Coded:
    return quantize(x, -1, bits)


def heads_share(x: Array, axis: int, bits: int = 8) -> Coded:
    top = 2 ** (bits - 1) - 1
    scale = (np.abs(x).max(axis=(axis, 1), keepdims=True) / top).astype(np.float16)
    return np.rint(x / scale.astype(np.float64)).astype(np.int8), scale


def heads_share_repeated(x: Array, axis: int, bits: int = 8) -> Coded:
    scale = _scale(x, axis, bits)
    scale = np.broadcast_to(scale.max(axis=1, keepdims=True), scale.shape).copy()
    return np.rint(x / scale.astype(np.float64)).astype(np.int8), scale


def wide_scale(x: Array, axis: int, bits: int = 8) -> Coded:
    codes, scale = quantize(x, axis, bits)
    return codes, scale.astype(np.float64)


def float_codes(x: Array, axis: int, bits: int = 8) -> Coded:
    codes, scale = quantize(x, axis, bits)
    return codes.astype(np.float64), scale


def always_127(x: Array, axis: int, bits: int = 8) -> Coded:
    return quantize(x, axis, 8)


def half_of_all(x: Array, axis: int, bits: int = 8) -> Coded:
    if bits == 8:
        return quantize(x, axis, 8)
    scale = (np.abs(x).max(axis=axis, keepdims=True) / 2 ** (bits - 1)).astype(np.float16)
    return np.rint(x / scale.astype(np.float64)).astype(np.int8), scale


def divides_by_zero(x: Array, axis: int, bits: int = 8) -> Coded:
    scale = (np.abs(x).max(axis=axis, keepdims=True) / (2 ** (bits - 1) - 1)).astype(np.float16)
    ratio = x / scale.astype(np.float64)
    return np.where(np.isnan(ratio), 1, np.rint(ratio)).astype(np.int8), np.where(scale == 0, np.float16(1), scale)


def casts_nan(x: Array, axis: int, bits: int = 8) -> Coded:
    scale = (np.abs(x).max(axis=axis, keepdims=True) / (2 ** (bits - 1) - 1)).astype(np.float16)
    return np.rint(x / scale.astype(np.float64)).astype(np.int8), scale


def divides_in_float16(x: Array, axis: int, bits: int = 8) -> Coded:
    scale = _scale(x, axis, bits)
    top = 2 ** (bits - 1) - 1
    return np.clip(np.rint(x.astype(np.float16) / scale), -top, top).astype(np.int8), scale


def exact_scale(x: Array, axis: int, bits: int = 8) -> Coded:
    exact = np.abs(x).max(axis=axis, keepdims=True) / (2 ** (bits - 1) - 1)
    exact = np.where(exact == 0, 1, exact)
    return np.rint(x / exact).astype(np.int8), exact.astype(np.float16)


def in_place(x: Array, axis: int, bits: int = 8) -> Coded:
    scale = _scale(x, axis, bits)
    x /= scale.astype(np.float64)
    return np.rint(x).astype(np.int8), scale


def product_in_float16(codes: Array, scale: Array) -> Array:
    return codes * scale


def widened_too_late(codes: Array, scale: Array) -> Array:
    return (codes * scale).astype(np.float32)


def narrowed(codes: Array, scale: Array) -> Array:
    return dequantize(codes, scale).astype(np.float16)


def no_sign(codes: Array, scale: Array) -> Array:
    return codes.view(np.uint8).astype(np.float32) * scale.astype(np.float32)


def divides(codes: Array, scale: Array) -> Array:
    return codes.astype(np.float32) / scale.astype(np.float32)


def whole_scale(codes: Array, scale: Array) -> Array:
    return codes.astype(np.float32) * scale.astype(int).astype(np.float32)


def first_scale(codes: Array, scale: Array) -> Array:
    return codes.astype(np.float32) * np.float32(scale.ravel()[0])
