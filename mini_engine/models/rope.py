"""Rotary position embedding in the half-split layout of Hugging Face (and GPT-NeoX): dimension i turns with i + D/2."""

from __future__ import annotations

import numpy as np


def rope_angles(positions: np.ndarray, head_dim: int, theta: float) -> np.ndarray:
    """The angle of every pair: position * theta^(-2i / D), [T, D/2] in radians. Source: Su et al. 2021, section 3.2.2."""
    return np.asarray(positions)[:, None] * theta ** (-np.arange(0, head_dim, 2) / head_dim)


def apply_rope(x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Turn each pair (x[i], x[i + D/2]) by its angle: x[T, heads, D], angles[T, D/2] -> [T, heads, D] in x's dtype."""
    cos, sin = np.cos(angles)[:, None].astype(x.dtype), np.sin(angles)[:, None].astype(x.dtype)
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)
