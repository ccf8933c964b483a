"""Answers to lesson 13's mask: right ones, written in several ways, and the wrong ones that people write."""

from __future__ import annotations

import numpy as np


def chunk_mask(done: int, num_new: int) -> np.ndarray:
    """[num_new, done + num_new]: row t is token done + t, which sees all before it and itself."""
    return np.arange(done + num_new) <= done + np.arange(num_new)[:, None]


def slow(done: int, num_new: int) -> np.ndarray:
    """The oracle: one decision for each pair."""
    mask = np.zeros((num_new, done + num_new), dtype=bool)
    for t in range(num_new):
        for s in range(done + num_new):
            mask[t, s] = s <= done + t
    return mask


def by_tri(done: int, num_new: int) -> np.ndarray:
    return np.tri(num_new, done + num_new, done, dtype=bool)


def last_rows(done: int, num_new: int) -> np.ndarray:
    whole = np.tril(np.ones((done + num_new, done + num_new), dtype=bool))
    return whole[done:]


def sees_all(done: int, num_new: int) -> np.ndarray:
    return np.ones((num_new, done + num_new), dtype=bool)


def not_itself(done: int, num_new: int) -> np.ndarray:
    return np.arange(done + num_new) < done + np.arange(num_new)[:, None]


def the_future(done: int, num_new: int) -> np.ndarray:
    return ~chunk_mask(done, num_new)


def of_floats(done: int, num_new: int) -> np.ndarray:
    return np.tri(num_new, done + num_new, done)


def chunk_alone(done: int, num_new: int) -> np.ndarray:
    return np.tri(num_new, dtype=bool)


def no_offset(done: int, num_new: int) -> np.ndarray:
    return np.tri(num_new, done + num_new, dtype=bool)


def prefix_hidden(done: int, num_new: int) -> np.ndarray:
    mask = chunk_mask(done, num_new)
    mask[:, :done] = False
    return mask


def one_short(done: int, num_new: int) -> np.ndarray:
    return np.tri(num_new, done + num_new, max(0, done - 1), dtype=bool)


def no_decodes(done: int, num_new: int) -> np.ndarray:
    return no_offset(done, num_new) if num_new == 1 else chunk_mask(done, num_new)


def up_to_eight(done: int, num_new: int) -> np.ndarray:
    return chunk_mask(done, num_new) if num_new <= 8 else sees_all(done, num_new)


def whole_blocks(done: int, num_new: int) -> np.ndarray:
    """Lets a long prefix end where its last whole block of 16 does."""
    mask = chunk_mask(done, num_new)
    if done > 17:
        mask[:, done // 16 * 16 : done] = False
    return mask
