"""Split-KV attention in NumPy: parts of one context are attended to apart, and their results are put together.

A part gives its normalised output and the logarithm of the sum of its exponentials (log-sum-exp, natural log). Two parts
a and b of a softmax weigh exp(lse_a) and exp(lse_b), so their outputs average with these weights. This is what lets many
processors share one long context. Sources: Dao et al. 2023 (Flash-Decoding); Milakov and Gimelshein 2018 (online softmax).

Shapes: N splits, S keys, H query heads, K key/value heads, D and Dv the sizes of keys and values.
"""

from __future__ import annotations

import numpy as np

from mini_engine.arguments import count
from mini_engine.attention.online_softmax import OnlineSoftmax


def split_kv_partials(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, num_splits: int
) -> tuple[np.ndarray, np.ndarray]:
    """Attend to `num_splits` equal parts of a context: q[H, D], k[S, K, D], v[S, K, Dv] -> out[N, H, Dv], lse[N, H].

    Where S does not divide evenly the last parts are shorter; an empty one has out 0 and lse -inf. At least float32.
    Raises ValueError for shapes that do not fit together and fewer than one split.
    """
    D, (S, K, _) = q.shape[1], k.shape
    if k.shape[2] != D or v.shape[:2] != k.shape[:2]:
        raise ValueError(f"k and v must have shapes [S, K, {D}] and [S, K, Dv], found {k.shape} and {v.shape}")
    states = [OnlineSoftmax(q, K, v.shape[2], scale) for _ in range(count("num_splits", num_splits))]
    size = max(1, -(-S // num_splits))
    for state, begin in zip(states, range(0, S, size)):
        state.add(k[begin : begin + size], v[begin : begin + size])
    return np.stack([state.output for state in states]), np.stack([state.log_sum_exp for state in states])


def combine_partials(out: np.ndarray, lse: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Put the parts of one softmax together: out[N, ..., Dv], lse[N, ...] -> out[..., Dv], lse[...], the parts on axis 0.

    A part whose lse is -inf counts for nothing, whatever its output holds; where all do, the result is 0 and -inf. The
    result is again a part: combining some first and the rest later changes nothing but the rounding.
    Raises ValueError when the shapes do not fit together.
    """
    if out.shape[:-1] != lse.shape:
        raise ValueError(f"lse must have out's shape without its last axis, found {lse.shape} beside {out.shape}")
    top = lse.max(axis=0, initial=-np.inf)
    weights = np.exp(lse - np.where(np.isneginf(top), 0, top))  # -inf - -inf would be NaN
    total = weights.sum(axis=0)
    some = np.where(total == 0, 1, total)
    parts = np.where(weights[..., None] == 0, 0, out)  # 0 * NaN would be NaN: an empty part may never have been written
    summed = (weights[..., None] * parts).sum(axis=0) / some[..., None]
    with np.errstate(divide="ignore"):
        return summed, top + np.log(total)
