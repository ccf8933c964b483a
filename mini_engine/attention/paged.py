"""Attention over a paged cache in NumPy: the block table says where each token's key and value lie.

Shapes: B sequences, H query heads, K key/value heads, D head size, N blocks in the pool, P tokens a block, M entries of a
block table. Token s of sequence b lies in block block_tables[b, s // P], at slot s % P. Source: Kwon et al. 2023, section 4.1.
"""

from __future__ import annotations

import numpy as np

from mini_engine.arguments import count
from mini_engine.attention.dense import decode_attention


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
        blocks, slots = context_slots(block_tables[row], length, k_pool.shape[1], len(k_pool), window)
        out[row] = decode_attention(q[row], k_pool[blocks, slots], v_pool[blocks, slots], scale)
    return out


def context_slots(
    block_table: np.ndarray, length: int, block_size: int, num_blocks: int, window: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Where the tokens of one context lie: (blocks[S], slots[S]), oldest first; pool[blocks, slots] gathers them.

    With a window only its tokens, so S = min(length, window). ValueError as `paged_decode_attention`.
    """
    size = np.shape(block_table)[0] * block_size
    if not 0 <= length <= size:
        raise ValueError(f"a context of {length} tokens, and its block table has room for {size}")
    first = 0 if window is None else max(0, length - count("window", window))
    tokens = np.arange(first, length)
    blocks = np.asarray(block_table)[tokens // block_size].astype(np.int64)
    wrong = (blocks < 0) | (blocks >= num_blocks)  # NumPy would count a negative one from the end
    if wrong.any():
        raise ValueError(
            f"token {tokens[wrong][0]} lies in block {blocks[wrong][0]}, and the pool has blocks 0 to {num_blocks - 1}"
        )
    return blocks, tokens % block_size
