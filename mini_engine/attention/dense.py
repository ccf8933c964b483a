"""Attention over contiguous keys and values, in NumPy.

Shapes: T query tokens, S keys, H query heads, K key/value heads (H is a multiple of K), D head size. Query head h reads
key/value head h // (H // K): with K = H this is multi-head attention, with K = 1 multi-query, between them grouped-query.
Values may have a size Dv of their own, as in latent attention; everywhere else Dv = D.
"""

from __future__ import annotations

import numpy as np


def softmax(scores: np.ndarray, axis: int = -1) -> np.ndarray:
    """exp(scores) divided by its sum along `axis`; same shape and dtype. A row that is all -inf (or empty) gives zeros."""
    if scores.size == 0:
        return np.zeros_like(scores)
    top = scores.max(axis=axis, keepdims=True)
    # Subtracting the maximum leaves the result as it is and keeps exp from overflowing; -inf - -inf would be NaN.
    weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = weights.sum(axis=axis, keepdims=True)
    return weights / np.where(total == 0, 1, total)


def decode_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    """One new token attends to every cached token: q[H, D], k[S, K, D], v[S, K, Dv] -> [H, Dv] in q's dtype.

    S = 0 gives zeros. Raises ValueError when the shapes do not fit together.
    """
    if q.ndim != 2:
        raise ValueError(f"q must have shape [H, D], found {q.shape}")
    if k.shape[0] == 0:
        return np.zeros((q.shape[0], v.shape[-1]), dtype=q.dtype)
    return causal_attention(q[None], k, v, scale, offset=k.shape[0] - 1)[0]


def causal_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, offset: int = 0) -> np.ndarray:
    """Query row t attends to keys 0 .. offset + t: q[T, H, D], k[S, K, D], v[S, K, Dv] -> [T, H, Dv] in q's dtype.

    `offset` is the number of tokens that came before the first query: 0 for a whole prompt, S - 1 for one decoded token.
    Keys past offset + T are not read. Raises ValueError when the shapes do not fit together or S < offset + T.
    Source: Vaswani et al. 2017, section 3.2; grouped heads: Ainslie et al. 2023.
    """
    T, H, D = q.shape
    S, K, _ = k.shape
    if v.shape[:2] != k.shape[:2] or k.shape[2] != D:
        raise ValueError(f"k and v must have shapes [S, K, {D}] and [S, K, Dv], found {k.shape} and {v.shape}")
    if K == 0 or H % K:
        raise ValueError(f"{H} query heads cannot share {K} key/value heads evenly")
    if offset < 0 or offset + T > S:
        raise ValueError(f"{T} queries after {offset} earlier tokens need at least {offset + T} keys, found {S}")

    work = np.result_type(q.dtype, np.float32)  # half precision is too coarse to sum in
    seen = slice(0, offset + T)
    queries = q.astype(work).reshape(T, K, H // K, D).transpose(1, 2, 0, 3)  # [K, G, T, D]
    keys = k[seen].astype(work).transpose(1, 2, 0)[:, None]  # [K, 1, D, S]
    values = v[seen].astype(work).transpose(1, 0, 2)[:, None]  # [K, 1, S, Dv]

    scores = queries @ keys * work.type(scale)  # [K, G, T, S]
    future = np.arange(offset + T) > offset + np.arange(T)[:, None]  # [T, S]
    weights = softmax(np.where(future, -np.inf, scores).astype(work, copy=False))
    return (weights @ values).transpose(2, 0, 1, 3).reshape(T, H, v.shape[2]).astype(q.dtype)


def check_pair(k: np.ndarray, v: np.ndarray) -> None:
    """ValueError unless k and v, about to be cached, are as many tokens of the same heads: [T, K, D] each."""
    if k.ndim != 3 or k.shape != v.shape:
        raise ValueError(f"k and v must have one shape [T, K, D], found {k.shape} and {v.shape}")
