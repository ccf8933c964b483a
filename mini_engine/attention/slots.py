"""Slots of a paged pool: where a token's K/V lies, how it gets there, and how it is read back.

Shapes: N blocks (number 0, the null block, included), P slots a block, K key/value heads, D head size. A
pool is [N, P, K, D]; slot s is offset s % P of block s // P. Source: Kwon et al. 2023, section 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mini_engine.arguments import count

Table = Sequence[int] | np.ndarray


def slot_mapping(block_table: Table, positions: Sequence[int] | np.ndarray, block_size: int) -> np.ndarray:
    """The slot of each position of one sequence: int64[T]; -1, which is padding, stays -1.

    IndexError for a position behind the last block of the table, ValueError for one in a block below 0: its slot would
    pass for padding.
    """
    table, at = (np.asarray(numbers, dtype=np.int64) for numbers in (block_table, positions))
    real = at >= 0
    blocks = table[at[real] // block_size]
    if (blocks < 0).any():
        raise ValueError(f"position {at[real][blocks < 0][0]} lies in block {blocks.min()}: blocks begin at 0")
    slots = np.full(at.shape, -1, dtype=np.int64)
    slots[real] = blocks * block_size + at[real] % block_size
    return slots


def write_kv(k: np.ndarray, v: np.ndarray, k_pool: np.ndarray, v_pool: np.ndarray, slots: np.ndarray) -> None:
    """Store k[T, K, D] and v[T, K, D] in the slots given, int64[T]; a slot below 0 is padding and is skipped.

    The pools are [N, P, K, D] and change in place. ValueError, and nothing is stored, when a shape does not fit: NumPy
    would spread it over tokens and heads. IndexError for a slot that the pool does not have.
    """
    store((k, v), (k_pool, v_pool), slots)


def store(new: Sequence[np.ndarray], pools: Sequence[np.ndarray], slots: np.ndarray) -> None:
    """`write_kv` for any number of pools with the same blocks: new[i][T, ...] into pools[i][N, P, ...]."""
    for values, pool in zip(new, pools, strict=True):
        if values.shape != (len(slots), *pool.shape[2:]):
            raise ValueError(f"K/V of {len(slots)} tokens has shape {values.shape}, not {pool.shape[2:]} each")
    written = slots >= 0
    blocks, offsets = np.divmod(slots[written], pools[0].shape[1])
    for values, pool in zip(new, pools):
        pool[blocks, offsets] = values[written]


def gather(pool: np.ndarray, block_table: Table, context_len: int, window: int | None = None) -> np.ndarray:
    """The first context_len tokens of one sequence in order, or the last `window` of them: a copy, [S, K, D].

    ValueError as `used_tokens`.
    """
    return pool[context_slots(block_table, context_len, pool.shape[1], len(pool), window)]


def context_slots(
    block_table: Table, context_len: int, block_size: int, num_blocks: int, window: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Where the tokens of one context lie: (blocks[S], offsets[S]), oldest first; pool[blocks, offsets] gathers them.

    With a window only its tokens, so S = min(context_len, window). ValueError as `used_tokens`.
    """
    used = used_tokens(block_table, context_len, block_size, num_blocks, window)
    index, offsets = np.divmod(np.arange(used.start, used.stop), block_size)
    return np.asarray(block_table, dtype=np.int64)[index], offsets


def used_tokens(
    block_table: Table, context_len: int, block_size: int, num_blocks: int, window: int | None = None
) -> range:
    """The positions that attention looks at: all of the context, or the last `window` of it.

    ValueError for a context longer than its table, a window below 1, and a needed block that the pool does not have.
    Entries that no such position needs may hold anything.
    """
    room = len(block_table) * block_size
    if not 0 <= context_len <= room:
        raise ValueError(f"a context of {context_len} tokens, and its block table has room for {room}")
    first = 0 if window is None else max(0, context_len - count("window", window))
    needed = np.asarray(block_table[first // block_size : -(-context_len // block_size)], dtype=np.int64)
    wrong = np.flatnonzero((needed < 0) | (needed >= num_blocks))  # NumPy would count a negative one from the end
    if wrong.size:
        token = max(first, (first // block_size + int(wrong[0])) * block_size)
        raise ValueError(
            f"token {token} lies in block {needed[wrong[0]]}, and the pool has blocks 0 to {num_blocks - 1}"
        )
    return range(first, context_len)
