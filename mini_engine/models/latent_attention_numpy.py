"""The attention block of DeepSeek-V2 and V3 in NumPy, every step on its own: the twin of `latent_attention`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mini_engine.catalog import ModelSpec
from mini_engine.models.families import family_of
from mini_engine.models.latent_layout import LATENT_NORM_EPS, latent_sizes
from mini_engine.models.layout import layer_name
from mini_engine.models.numpy_weights import NumpyWeights
from mini_engine.models.rope import Rope, apply_rope


class NumpyUpProjection(NamedTuple):
    """The matrices that make each head's key and value from a latent, as `mini_engine.attention.mla_absorbed` takes them."""

    w_uk: np.ndarray  # [H, Dn, Dc]
    w_uv: np.ndarray  # [H, Dv, Dc]


class NumpyLatentAttention:
    """One layer's projections; `attend` owns the cache. Shapes as in `latent_attention`."""

    def __init__(self, weights: NumpyWeights, spec: ModelSpec, layer: int) -> None:
        self.weights, self.spec, self.layer, self.sizes = weights, spec, layer, latent_sizes(spec)
        self.keeps_pairs = family_of(spec).keeps_pairs
        by_head = weights[self._name("kv_b_proj")].reshape(spec.num_attention_heads, -1, self.sizes.latent)
        self.up = NumpyUpProjection(by_head[:, : self.sizes.key], by_head[:, self.sizes.key :])

    def __call__(self, x: np.ndarray, rope: Rope, attend: Callable[..., np.ndarray]) -> np.ndarray:
        """x[T, hidden] -> [T, hidden], through attend(layer, q[T, H, Dn + Dr], latent[T, 1, Dc + Dr], up) -> [T, H, Dv]."""
        spec, linear = self.spec, self.weights.linear
        if spec.q_lora_rank:
            compressed = self._norm(linear(x, self._name("q_a_proj")), "q_a_layernorm")
            q = linear(compressed, self._name("q_b_proj"))
        else:
            q = linear(x, self._name("q_proj"))
        q_nope, q_rope = np.split(q.reshape(len(x), spec.num_attention_heads, spec.head_dim), [self.sizes.key], axis=-1)
        latent, k_rope = np.split(linear(x, self._name("kv_a_proj_with_mqa")), [self.sizes.latent], axis=-1)
        latent = self._norm(latent, "kv_a_layernorm")

        q = np.concatenate((q_nope, self._rotate(q_rope, rope)), axis=-1)
        cached = np.concatenate((latent[:, None], self._rotate(k_rope[:, None], rope)), axis=-1)
        attended = attend(self.layer, q, cached, self.up)
        return linear(attended.reshape(len(x), attended.shape[1] * attended.shape[2]), self._name("o_proj"))

    def _rotate(self, x: np.ndarray, rope: Rope) -> np.ndarray:
        """x[T, heads, Dr] turned: neighbours with each other where the family's weights have them side by side."""
        if not self.spec.rope_interleave:
            return apply_rope(x, rope)
        turned = apply_rope(np.concatenate((x[..., ::2], x[..., 1::2]), axis=-1), rope)
        if not self.keeps_pairs:
            return turned
        return turned.reshape(*x.shape[:-1], 2, x.shape[-1] // 2).swapaxes(-1, -2).reshape(x.shape)

    def _norm(self, x: np.ndarray, part: str) -> np.ndarray:
        return self.weights.norm(x, self._name(part), LATENT_NORM_EPS)

    def _name(self, part: str) -> str:
        return layer_name(self.layer, f"self_attn.{part}")
