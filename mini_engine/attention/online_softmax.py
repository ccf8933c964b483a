"""Attention over blocks without gathering them: online softmax, one block at a time.

`paged_decode_attention` of `paged` gathers first and is the simpler truth; this is the way a kernel goes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def paged_attention(
    q: np.ndarray,
    k_pool: np.ndarray,
    v_pool: np.ndarray,
    block_table: Sequence[int] | np.ndarray,
    context_len: int,
    scale: float,
    window: int | None = None,
) -> np.ndarray:
    """One query q[H, D] over the first context_len tokens of a sequence, block by block -> [H, D] in q's dtype.

    Nothing is gathered: after each block only the largest score so far, the sum of the weights and the weighted sum of
    the values are kept (online softmax). `window` keeps the last tokens only. Slots outside the context and table
    entries behind it are never read. Context 0 gives zeros. ValueError when heads cannot be shared evenly.
    Source: Milakov and Gimelshein 2018; Kwon et al. 2023, section 4.1.
    """
    P, K, D = k_pool.shape[1:]
    H = q.shape[0]
    if K == 0 or H % K:
        raise ValueError(f"{H} query heads cannot share {K} key/value heads evenly")
    work = np.result_type(q.dtype, np.float32)  # half precision is too coarse to sum in
    queries = q.astype(work).reshape(K, H // K, D)
    top = np.full((K, H // K, 1), -np.inf, dtype=work)
    total = np.zeros((K, H // K, 1), dtype=work)
    out = np.zeros((K, H // K, v_pool.shape[3]), dtype=work)
    first = 0 if window is None else max(0, context_len - window)
    for i in range(first // P, -(-context_len // P)):
        used = slice(max(first - i * P, 0), min(context_len - i * P, P))
        keys = k_pool[block_table[i], used].astype(work)  # [n, K, D]
        values = v_pool[block_table[i], used].astype(work)
        scores = queries @ keys.transpose(1, 2, 0) * work.type(scale)  # [K, G, n]
        new_top = np.maximum(top, scores.max(axis=-1, keepdims=True))
        shrink, weights = np.exp(top - new_top), np.exp(scores - new_top)
        total = total * shrink + weights.sum(axis=-1, keepdims=True)
        out = out * shrink + weights @ values.transpose(1, 0, 2)
        top = new_top
    return (out / np.where(total == 0, 1, total)).reshape(H, -1).astype(q.dtype)
