"""Rotary position embedding in the half-split layout of Hugging Face (and GPT-NeoX): dimension i turns with i + D/2.

A model that was made for longer contexts than it was first trained on turns more slowly. How much more slowly each pair
turns is its RoPE scaling: "linear", "llama3" or "yarn", as `ModelSpec.rope_scaling` has it from the configuration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mini_engine.catalog import ModelSpec

Rope = tuple[Any, Any]
"""cos and sin of the angles of T tokens, [T, 1, D/2] each, in the arrays of one backend."""

SCALINGS = {
    "linear": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
    "yarn": {
        "factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
        "mscale_all_dim", "truncate",
    },
}  # fmt: skip
"""Kinds of scaling, and what a configuration may say about each."""


def rope_dim(spec: ModelSpec) -> int:
    """Dimensions of a head that turn: all of them, but with latent attention only the shared rotary part."""
    return spec.qk_rope_head_dim or spec.head_dim


def rope_frequencies(spec: ModelSpec, steps: Any) -> Any:
    """Radians per position of every pair: [D/2]. Without scaling theta^(-steps / D). Source: Su et al. 2021, section 3.2.2.

    `steps` holds 0, 2, ... D - 2 in an array of NumPy or torch: its precision is that of the result. Models are trained and
    run with float32 frequencies; the NumPy model uses exact ones.
    """
    wavelengths = spec.rope_theta ** (steps / rope_dim(spec))  # over 2 pi
    frequencies = 1.0 / wavelengths
    if spec.rope_scaling is None:
        return frequencies
    kind, scaling = scaling_kind(spec.rope_scaling), spec.rope_scaling
    if kind == "linear":
        return frequencies / scaling["factor"]
    original = scaling.get("original_max_position_embeddings") or spec.max_position_embeddings
    if kind == "llama3":  # pairs that turn often within the original context keep their pace, the slowest are scaled
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        turns = original / (2 * math.pi / frequencies)
        keep = ((turns - low) / (high - low)).clip(0, 1)
        return (1 - keep) * frequencies / scaling["factor"] + keep * frequencies
    # YaRN does the same with bounds on the number of the pair. Source: Peng et al. 2023, section 3.2.
    low, high = _yarn_range(spec, original)
    keep = 1 - ((steps / 2 - low) / (high - low)).clip(0, 1)
    return 1.0 / (scaling["factor"] * wavelengths) * (1 - keep) + frequencies * keep


def _yarn_range(spec: ModelSpec, original: int) -> tuple[float, float]:
    """The numbers of the pairs between which YaRN goes over from the original frequencies to scaled ones."""
    scaling, dim = spec.rope_scaling or {}, rope_dim(spec)

    def pair_that_turns(times: float) -> float:
        return dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(spec.rope_theta))

    low, high = pair_that_turns(scaling.get("beta_fast") or 32), pair_that_turns(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    return low, high + 0.001 if low == high else high


def attention_factor(spec: ModelSpec) -> float:
    """What YaRN multiplies cos and sin by, so that scores keep their spread in a longer context; 1 without YaRN."""
    scaling = spec.rope_scaling
    if scaling is None or scaling_kind(scaling) != "yarn":
        return 1.0
    if scaling.get("attention_factor") is not None:
        return scaling["attention_factor"]
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):  # DeepSeek
        return yarn_mscale(scaling, scaling["mscale"]) / yarn_mscale(scaling, scaling["mscale_all_dim"])
    return yarn_mscale(scaling, 1)


def softmax_scale(spec: ModelSpec) -> float:
    """What scores are multiplied by before the softmax: 1 / sqrt of the width of a query head.

    DeepSeek's models put a part of YaRN's factor here instead of into cos and sin (`mscale_all_dim`).
    """
    scale = spec.head_dim**-0.5
    if spec.is_mla and spec.rope_scaling and spec.rope_scaling.get("mscale_all_dim"):
        scale *= yarn_mscale(spec.rope_scaling, spec.rope_scaling["mscale_all_dim"]) ** 2
    return scale


def yarn_mscale(scaling: Mapping[str, Any], weight: float) -> float:
    """1 + 0.1 weight ln(factor). Source: Peng et al. 2023, equation 22."""
    return 0.1 * weight * math.log(scaling["factor"]) + 1.0


def rope_cos_sin(spec: ModelSpec, positions: np.ndarray, dtype: np.dtype) -> Rope:
    """cos and sin at the given positions, as NumPy arrays [T, 1, D/2] of this dtype, computed in float64."""
    frequencies = rope_frequencies(spec, np.arange(0, rope_dim(spec), 2, dtype=np.float64))
    angles, factor = np.asarray(positions)[:, None, None] * frequencies, attention_factor(spec)
    return (np.cos(angles) * factor).astype(dtype), (np.sin(angles) * factor).astype(dtype)


def apply_rope(x: np.ndarray, rope: Rope) -> np.ndarray:
    """Turn each pair (x[i], x[i + D/2]) by its angle: x[T, heads, D], cos and sin [T, 1, D/2] -> [T, heads, D]."""
    cos, sin = rope
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)


def scaling_kind(scaling: Mapping[str, Any]) -> str:
    """The kind of a scaling; "type" is what older files call "rope_type"."""
    return scaling.get("rope_type") or scaling.get("type") or "default"


def check_scaling(spec: ModelSpec) -> None:
    """ValueError for a scaling whose kind is unknown or whose numbers make no sense."""
    scaling = spec.rope_scaling
    if scaling is None:
        return

    def number(name: str, least: float, default: float | None = None) -> float:
        value = default if scaling.get(name) is None else scaling[name]
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value < math.inf:
            raise ValueError(f"RoPE scaling: {name} must be a finite number of at least {least}, found {value!r}")
        return value

    kind = scaling_kind(scaling)
    if kind not in SCALINGS:
        raise ValueError(f"RoPE scaling: type {kind!r} is none of {', '.join(SCALINGS)}")
    number("factor", 1)
    number("original_max_position_embeddings", 1, 1)
    if kind == "llama3" and number("high_freq_factor", 0) <= number("low_freq_factor", 0):
        raise ValueError(
            f"RoPE scaling: high_freq_factor={scaling['high_freq_factor']} must be more than "
            f"low_freq_factor={scaling['low_freq_factor']}"
        )
    if kind == "yarn":
        if spec.rope_theta <= 1:
            raise ValueError(f"RoPE scaling: YaRN needs rope_theta above 1, found {spec.rope_theta}")
        for name in ("attention_factor", "mscale", "mscale_all_dim"):
            number(name, 0, 1)
        if number("beta_fast", 0, 32) < number("beta_slow", 0, 1):
            raise ValueError(
                f"RoPE scaling: beta_fast={scaling.get('beta_fast')} must be at least beta_slow={scaling.get('beta_slow')}"
            )
        if not isinstance(scaling.get("truncate", True), bool):
            raise ValueError(f"RoPE scaling: truncate must be true or false, found {scaling['truncate']!r}")
