"""The decoder of every family in NumPy float64: each operation written out, for reading and as the oracle of the lessons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mini_engine.models.checkpoint import Checkpoint
from mini_engine.models.families import family_of
from mini_engine.models.grouped_attention_numpy import NumpyGroupedAttention
from mini_engine.models.latent_attention_numpy import NumpyLatentAttention
from mini_engine.models.layout import EMBED, LM_HEAD, NORM, check_tensors, check_tokens, layer_name
from mini_engine.models.numpy_weights import NumpyWeights, silu
from mini_engine.models.rope import rope_cos_sin, softmax_scale

Attend = Callable[..., np.ndarray]
ATTENTION: dict[str, Callable[..., Any]] = {"grouped": NumpyGroupedAttention, "latent": NumpyLatentAttention}


class NumpyDecoder:
    """A decoder-only transformer in NumPy. Weights keep their Hugging Face names; `attend` owns the cache."""

    def __init__(self, checkpoint: Checkpoint, *, dtype: npt.DTypeLike = np.float64) -> None:
        check_tensors(checkpoint)
        self.spec = spec = checkpoint.spec
        self.dtype = np.dtype(dtype)
        self.weights = NumpyWeights(checkpoint, self.dtype)
        block = ATTENTION[family_of(spec).attention]
        self.attention = [block(self.weights, spec, layer) for layer in range(spec.num_hidden_layers)]

    @property
    def softmax_scale(self) -> float:
        """What `attend` multiplies scores by."""
        return softmax_scale(self.spec)

    def forward(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        attend: Attend,
        logits_rows: Sequence[int] | None = None,
    ) -> np.ndarray:
        """token_ids[T], positions[T] -> logits[R, V] of the rows asked for (None: all T).

        `attend(layer, q[T, H, D], k[T, K, D], v[T, K, D]) -> [T, H, D]` stores k and v and attends; q and k arrive rotated. With
        latent attention it is `attend(layer, q[T, H, Dn + Dr], latent[T, 1, Dc + Dr], up) -> [T, H, Dv]`.
        ValueError for a token outside the vocabulary or a position outside the context.
        """
        ids, places = np.asarray(token_ids, dtype=np.int64), np.asarray(positions, dtype=np.int64)
        check_tokens(self.spec, ids, places)
        rope = rope_cos_sin(self.spec, places, self.dtype)
        norm, linear = self.weights.norm, self.weights.linear

        x = self.weights[EMBED][ids]  # [T, hidden]
        for layer, attention in enumerate(self.attention):
            gate, up, down = (layer_name(layer, f"mlp.{part}_proj") for part in ("gate", "up", "down"))
            x = x + attention(norm(x, layer_name(layer, "input_layernorm")), rope, attend)
            h = norm(x, layer_name(layer, "post_attention_layernorm"))
            x = x + linear(silu(linear(h, gate)) * linear(h, up), down)

        if logits_rows is not None:
            x = x[np.asarray(logits_rows, dtype=np.int64)]
        return linear(norm(x, NORM), LM_HEAD)
