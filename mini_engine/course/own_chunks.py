"""Prompts in chunks with a learner's mask inside: in the NumPy backend, and over a bare model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mini_engine.attention import softmax
from mini_engine.backends import NumpyBackend

Mask = Callable[[int, int], np.ndarray]


def masked_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, mask: np.ndarray) -> np.ndarray:
    """Attention where mask[t, s] says whether query t sees key s: q[T, H, D], k and v[S, K, D] -> [T, H, D]."""
    T, H, D = q.shape
    K = k.shape[1]
    scores = np.einsum("tkgd,skd->kgts", q.reshape(T, K, H // K, D), k) * scale
    weights = softmax(np.where(mask, scores, -np.inf))
    return np.einsum("kgts,skd->tkgd", weights, v).reshape(T, H, D)


class MaskedBackend(NumpyBackend):
    """The NumPy backend, with chunk_mask(done, num_new) saying what the tokens of a chunk see."""

    def __init__(self, model: Any, chunk_mask: Mask) -> None:
        super().__init__(model)
        self.chunk_mask = chunk_mask

    def _attention(self, q: np.ndarray, context: list[np.ndarray], up: Any, offset: int) -> np.ndarray:
        k, v = context
        return masked_attention(q, k, v, self.model.softmax_scale, self.chunk_mask(offset, len(q)))


def chunked_logits(model: Any, token_ids: Sequence[int], cuts: Sequence[int], chunk_mask: Mask) -> np.ndarray:
    """Logits [T, V] of a prompt that is computed in chunks, cut before the tokens `cuts`, over one growing cache."""
    cache: list[list[np.ndarray]] = [[] for _ in range(model.spec.num_hidden_layers)]
    rows = []
    for start, end in pairwise((0, *cuts, len(token_ids))):

        def attend(layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray, start: int = start) -> np.ndarray:
            cache[layer].append(np.stack([k, v]))
            keys, values = np.concatenate(cache[layer], axis=1)
            return masked_attention(q, keys, values, model.softmax_scale, chunk_mask(start, len(q)))

        rows.append(model.forward(np.asarray(token_ids[start:end]), np.arange(start, end), attend))
    return np.concatenate(rows)
