"""Why latent attention carries its positions in a part of their own: a rotation between two factors cannot be absorbed.

Rotary embedding turns query and key by their positions. Put on the key k = W_UK c, the score of query i and token j is

    (R_i q) . (R_j W_UK c_j)  =  q^T R_(j - i) W_UK c_j

and the matrix between q and c_j now depends on the distance j - i: there is no single query that meets all cached latents.
Without a rotation it is W_UK for every pair, so it is multiplied into the query once. The functions below compute the scores
of each arrangement; `rotate(x[N, heads, D], positions[N])` is the rotation.

Source: DeepSeek-V2 (2024), section 2.1.3.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mini_engine.attention.mla import absorb

Rotate = Callable[[np.ndarray, np.ndarray], np.ndarray]


def scores_rotated(q: np.ndarray, latent: np.ndarray, w_uk: np.ndarray, rotate: Rotate) -> np.ndarray:
    """Positions on the expanded key: q[T, H, Dn], latent[S, Dc], w_uk[H, Dn, Dc] -> [T, H, S]. The queries are the last T tokens."""
    keys = np.einsum("hnc,sc->shn", w_uk, latent)
    return np.einsum("qhn,shn->qhs", rotate(q, _last(q, latent)), rotate(keys, np.arange(len(latent))))


def scores_rotated_absorbed(q: np.ndarray, latent: np.ndarray, w_uk: np.ndarray, rotate: Rotate) -> np.ndarray:
    """What absorption makes of the same arrangement, and it is wrong: the key's own rotation finds no place.

    Queries are rotated and absorbed, so each token counts as if it stood at position 0.
    """
    return np.einsum("qhc,sc->qhs", absorb(rotate(q, _last(q, latent)), w_uk), latent)


def scores_decoupled(
    q_nope: np.ndarray, q_rope: np.ndarray, latent: np.ndarray, k_rope: np.ndarray, w_uk: np.ndarray, rotate: Rotate
) -> np.ndarray:
    """Positions on a part of their own, q_rope[T, H, Dr] and k_rope[S, Dr], with the latent part expanded: [T, H, S]."""
    keys = np.einsum("hnc,sc->shn", w_uk, latent)
    return np.einsum("qhn,shn->qhs", q_nope, keys) + _rotary(q_rope, k_rope, rotate)


def scores_decoupled_absorbed(
    q_nope: np.ndarray, q_rope: np.ndarray, latent: np.ndarray, k_rope: np.ndarray, w_uk: np.ndarray, rotate: Rotate
) -> np.ndarray:
    """The same with the latent part absorbed: equal, because no rotation touches it."""
    return np.einsum("qhc,sc->qhs", absorb(q_nope, w_uk), latent) + _rotary(q_rope, k_rope, rotate)


def _rotary(q_rope: np.ndarray, k_rope: np.ndarray, rotate: Rotate) -> np.ndarray:
    keys = rotate(k_rope[:, None], np.arange(len(k_rope)))[:, 0]  # one key for all heads
    return np.einsum("qhr,sr->qhs", rotate(q_rope, _last(q_rope, k_rope)), keys)


def _last(q: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """The positions of the last len(q) tokens."""
    return np.arange(len(tokens) - len(q), len(tokens))
