"""Slots of a paged pool: where a token's K/V lies, how it gets there, and how it is read back.

Shapes: N blocks (number 0, the null block, included), P slots a block, K key/value heads, D head size. A
pool is [N, P, K, D]; slot s is offset s % P of block s // P.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def slot_mapping(
    block_table: Sequence[int] | np.ndarray, positions: Sequence[int] | np.ndarray, block_size: int
) -> np.ndarray:
    """The slot of each position of one sequence: int64[T]; -1, which is padding, stays -1.

    IndexError for a position behind the last block of the table. Source: Kwon et al. 2023, section 4.3.
    """
    table, at = (np.asarray(numbers, dtype=np.int64) for numbers in (block_table, positions))
    slots = np.full(at.shape, -1, dtype=np.int64)
    real = at >= 0
    slots[real] = table[at[real] // block_size] * block_size + at[real] % block_size
    return slots


def write_kv(k: np.ndarray, v: np.ndarray, k_pool: np.ndarray, v_pool: np.ndarray, slot_mapping: np.ndarray) -> None:
    """Store k[T, K, D] and v[T, K, D] in the slots given, int64[T]; a slot below 0 is padding and is skipped.

    The pools are [N, P, K, D] and change in place. ValueError, and nothing is stored, when a shape does not fit: NumPy
    would spread it over tokens and heads. IndexError for a slot that the pool does not have.
    """
    for values, pool in ((k, k_pool), (v, v_pool)):
        if values.shape != (len(slot_mapping), *pool.shape[2:]):
            raise ValueError(f"K/V of {len(slot_mapping)} tokens has shape {values.shape}, not {pool.shape[2:]} each")
    written = slot_mapping >= 0
    blocks, offsets = np.divmod(slot_mapping[written], k_pool.shape[1])
    k_pool[blocks, offsets] = k[written]
    v_pool[blocks, offsets] = v[written]


def gather(pool: np.ndarray, block_table: Sequence[int] | np.ndarray, context_len: int) -> np.ndarray:
    """The first context_len tokens of one sequence in order: a copy, [context_len, K, D]."""
    blocks = np.asarray(block_table, dtype=np.int64)[: -(-context_len // pool.shape[1])]
    return pool[blocks].reshape(-1, *pool.shape[2:])[:context_len]
