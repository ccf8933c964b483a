"""Rotary position embedding in the half-split layout of Hugging Face (and GPT-NeoX): dimension i turns with i + D/2."""

from __future__ import annotations

from typing import Any

import numpy as np

from mini_engine.catalog import ModelSpec

Rope = tuple[Any, Any]
"""cos and sin of the angles of T tokens, [T, 1, D/2] each, in the arrays of one backend."""


def rope_dim(spec: ModelSpec) -> int:
    """Dimensions of a head that turn: all of them, but with latent attention only the shared rotary part."""
    return spec.qk_rope_head_dim or spec.head_dim


def rope_frequencies(spec: ModelSpec, steps: Any) -> Any:
    """Radians per position of every pair, theta^(-steps / D): [D/2]. Source: Su et al. 2021, section 3.2.2.

    `steps` holds 0, 2, ... D - 2 in an array of NumPy or torch: its precision is that of the result. Models are trained and
    run with float32 frequencies; the NumPy model uses exact ones.
    """
    return 1.0 / spec.rope_theta ** (steps / rope_dim(spec))


def softmax_scale(spec: ModelSpec) -> float:
    """What scores are multiplied by before the softmax: 1 / sqrt of the width of a query head."""
    return spec.head_dim**-0.5


def rope_cos_sin(spec: ModelSpec, positions: np.ndarray, dtype: np.dtype) -> Rope:
    """cos and sin at the given positions, as NumPy arrays [T, 1, D/2] of this dtype, computed in float64."""
    frequencies = rope_frequencies(spec, np.arange(0, rope_dim(spec), 2, dtype=np.float64))
    angles = np.asarray(positions)[:, None, None] * frequencies
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def apply_rope(x: np.ndarray, rope: Rope) -> np.ndarray:
    """Turn each pair (x[i], x[i + D/2]) by its angle: x[T, heads, D], cos and sin [T, 1, D/2] -> [T, heads, D]."""
    cos, sin = rope
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)
