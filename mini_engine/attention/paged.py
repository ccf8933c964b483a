"""Attention over a paged cache, the truth that kernels are tested against: gather by the block table, then attend densely.

Shapes: B sequences, H query heads, K key/value heads, D head size, N blocks in the pool, P tokens a block, M entries of a
block table. Token s of sequence b lies in block block_tables[b, s // P], at slot s % P. Source: Kwon et al. 2023, section 4.1.
"""

from __future__ import annotations

import numpy as np

from mini_engine.attention.dense import decode_attention
from mini_engine.attention.slots import gather


def paged_decode_attention(
    q: np.ndarray,
    k_pool: np.ndarray,
    v_pool: np.ndarray,
    block_tables: np.ndarray,
    context_lens: np.ndarray,
    scale: float,
    window: int | None = None,
) -> np.ndarray:
    """One new token of each sequence attends to that sequence's cache.

    q[B, H, D], k_pool[N, P, K, D], v_pool[N, P, K, Dv], block_tables[B, M], context_lens[B] (the new token included)
    -> [B, H, Dv] in q's dtype. window: only the last `window` tokens are looked at, the new one included.

    A context of 0 gives zeros. Slots outside the context, or before the window, and table entries that no token needs may
    hold anything. Raises ValueError for shapes that do not fit, a context longer than its table, a needed block that the
    pool does not have, and a window below 1.
    """
    if q.ndim != 3 or len(block_tables) != len(q) or len(context_lens) != len(q):
        raise ValueError(
            f"q[B, H, D], block_tables[B, M] and context_lens[B] must agree on B, found {q.shape}, "
            f"{np.shape(block_tables)} and {np.shape(context_lens)}"
        )
    if k_pool.shape[:3] != v_pool.shape[:3]:
        raise ValueError(f"both pools must have the same [N, P, K], found {k_pool.shape} and {v_pool.shape}")
    out = np.zeros((*q.shape[:2], v_pool.shape[-1]), dtype=q.dtype)
    for row, length in enumerate(np.asarray(context_lens).tolist()):
        k, v = (gather(pool, block_tables[row], length, window) for pool in (k_pool, v_pool))
        out[row] = decode_attention(q[row], k, v, scale)
    return out
