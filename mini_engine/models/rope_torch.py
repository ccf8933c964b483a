"""Rotary position embedding in torch: a table of all angles, made once."""

from __future__ import annotations

import torch

from mini_engine.catalog import ModelSpec
from mini_engine.models.rope import Rope, attention_factor, rope_dim, rope_frequencies


def rope_table(spec: ModelSpec, device: torch.device, dtype: torch.dtype) -> Rope:
    """cos and sin of every position, [positions, 1, D/2]. Angles are float32, because that is how models are trained."""
    frequencies = rope_frequencies(spec, torch.arange(0, rope_dim(spec), 2).float())
    angles = torch.arange(spec.max_model_len).float()[:, None, None] * frequencies
    factor = attention_factor(spec)
    return (angles.cos() * factor).to(device, dtype), (angles.sin() * factor).to(device, dtype)


def rotate(x: torch.Tensor, rope: Rope) -> torch.Tensor:
    """Turn dimension i with dimension i + D/2: x[T, heads, D], cos and sin [T, 1, D/2]."""
    cos, sin = rope
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
