"""A Llama in NumPy float64: every operation written out, for reading and as the oracle of the lessons."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from mini_engine.models.checkpoint import Checkpoint
from mini_engine.models.errors import CorruptModelError
from mini_engine.models.llama_layout import (
    EMBED,
    LM_HEAD,
    NORM,
    check_tensors,
    check_tokens,
    layer_name,
    llama_shapes,
    not_finite,
)
from mini_engine.models.rope import apply_rope, rope_angles

Attend = Callable[[int, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x scaled to root mean square 1, then by weight: x[T, hidden]. Source: Zhang and Sennrich 2019."""
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def silu(x: np.ndarray) -> np.ndarray:
    """x * sigmoid(x), through tanh so that no large |x| overflows."""
    return x * (0.5 + 0.5 * np.tanh(0.5 * x))


class NumpyLlama:
    """Llama in NumPy. Weights keep their Hugging Face names; `attend` owns the cache, the model knows of none."""

    def __init__(self, checkpoint: Checkpoint, *, dtype: npt.DTypeLike = np.float64) -> None:
        check_tensors(checkpoint)
        self.spec = checkpoint.spec
        self.dtype = np.dtype(dtype)
        self.weights = {name: checkpoint.read(name).astype(self.dtype) for name in llama_shapes(self.spec)}
        for name, weight in self.weights.items():
            if not np.isfinite(weight).all():
                raise CorruptModelError(not_finite(checkpoint, name, self.dtype))
        if self.spec.tie_word_embeddings:
            self.weights[LM_HEAD] = self.weights[EMBED]

    def forward(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        attend: Attend,
        logits_rows: Sequence[int] | None = None,
    ) -> np.ndarray:
        """token_ids[T], positions[T] -> logits[R, V] of the rows asked for (None: all T).

        `attend(layer, q[T, H, D], k[T, K, D], v[T, K, D]) -> [T, H, D]` stores k and v and attends; q and k arrive rotated.
        ValueError for a token outside the vocabulary or a position outside the context.
        """
        spec, T = self.spec, len(token_ids)
        ids, places = np.asarray(token_ids, dtype=np.int64), np.asarray(positions, dtype=np.int64)
        check_tokens(spec, ids, places)
        angles = rope_angles(places, spec.head_dim, spec.rope_theta)

        x = self.weights[EMBED][ids]  # [T, hidden]
        for layer in range(spec.num_hidden_layers):

            def linear(x: np.ndarray, part: str, layer: int = layer) -> np.ndarray:
                return x @ self.weights[layer_name(layer, part)].T

            h = rms_norm(x, self.weights[layer_name(layer, "input_layernorm")], spec.rms_norm_eps)
            q = linear(h, "self_attn.q_proj").reshape(T, spec.num_attention_heads, spec.head_dim)
            k = linear(h, "self_attn.k_proj").reshape(T, spec.num_key_value_heads, spec.head_dim)
            v = linear(h, "self_attn.v_proj").reshape(T, spec.num_key_value_heads, spec.head_dim)
            attended = attend(layer, apply_rope(q, angles), apply_rope(k, angles), v)
            x = x + linear(attended.reshape(T, spec.num_attention_heads * spec.head_dim), "self_attn.o_proj")

            h = rms_norm(x, self.weights[layer_name(layer, "post_attention_layernorm")], spec.rms_norm_eps)
            x = x + linear(silu(linear(h, "mlp.gate_proj")) * linear(h, "mlp.up_proj"), "mlp.down_proj")

        if logits_rows is not None:
            x = x[np.asarray(logits_rows, dtype=np.int64)]
        return rms_norm(x, self.weights[NORM], spec.rms_norm_eps) @ self.weights[LM_HEAD].T
