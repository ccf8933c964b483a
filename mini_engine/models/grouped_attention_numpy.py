"""The attention block of most models in NumPy, every projection on its own: the twin of `grouped_attention`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mini_engine.catalog import ModelSpec
from mini_engine.models.families import family_of
from mini_engine.models.layout import layer_name
from mini_engine.models.numpy_weights import NumpyWeights
from mini_engine.models.rope import Rope, apply_rope


class NumpyGroupedAttention:
    """One layer's projections; `attend` owns the cache."""

    def __init__(self, weights: NumpyWeights, spec: ModelSpec, layer: int) -> None:
        self.weights, self.spec, self.layer = weights, spec, layer

    def __call__(self, x: np.ndarray, rope: Rope, attend: Callable[..., np.ndarray]) -> np.ndarray:
        """x[T, hidden] -> [T, hidden], through attend(layer, q[T, H, D], k[T, K, D], v[T, K, D]) -> [T, H, D]."""
        q = self._heads(x, "q_proj", self.spec.num_attention_heads)
        k = self._heads(x, "k_proj", self.spec.num_key_value_heads)
        v = self._heads(x, "v_proj", self.spec.num_key_value_heads)
        if family_of(self.spec).qk_norm:
            q = self.weights.norm(q, layer_name(self.layer, "self_attn.q_norm"))
            k = self.weights.norm(k, layer_name(self.layer, "self_attn.k_norm"))
        attended = attend(self.layer, apply_rope(q, rope), apply_rope(k, rope), v)
        return self.weights.linear(
            attended.reshape(len(x), self.spec.num_attention_heads * self.spec.head_dim),
            layer_name(self.layer, "self_attn.o_proj"),
        )

    def _heads(self, x: np.ndarray, projection: str, heads: int) -> np.ndarray:
        """A projection of x, [T, heads, D]."""
        projected = self.weights.linear(x, layer_name(self.layer, f"self_attn.{projection}"))
        return projected.reshape(len(x), heads, self.spec.head_dim)
