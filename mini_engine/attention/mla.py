"""Multi-head latent attention (MLA) in NumPy, in its two forms: expanded and absorbed.

The cache holds one latent vector c per token, from which every head makes its own key and value: k = W_UK c, v = W_UV c.
Expanded attention does just that. Absorbed attention never makes them: since q . (W_UK c) = (W_UK^T q) . c, the query
moves into the space of the latent, and since sum_s p_s (W_UV c_s) = W_UV (sum_s p_s c_s), the value's matrix can wait
until the weighted sum is done. What is left is multi-query attention whose one key/value head is the latent itself.

A position cannot be rotated into k: between q and c would stand another matrix R_(j - i) W_UK for every distance j - i. So a
second, small part of every query and one key that all heads share carry it.

Shapes: T query tokens, S cached tokens, H heads, Dn size of a head's own key part, Dr size of the rotary part, Dv size of a
value head, Dc size of the latent. Source: DeepSeek-V2 (2024), section 2.1.
"""

from __future__ import annotations

import numpy as np

from mini_engine.attention.dense import causal_attention


def mla_expanded(
    q_nope: np.ndarray,
    q_rope: np.ndarray,
    latent: np.ndarray,
    k_rope: np.ndarray,
    w_uk: np.ndarray,
    w_uv: np.ndarray,
    scale: float,
    offset: int = 0,
) -> np.ndarray:
    """Make every head's keys and values, then attend: the form for many queries at once (prefill).

    q_nope[T, H, Dn], q_rope[T, H, Dr], latent[S, Dc], k_rope[S, Dr], w_uk[H, Dn, Dc], w_uv[H, Dv, Dc] -> [T, H, Dv]
    in q_nope's dtype.
    Query row t sees tokens 0 .. offset + t. The scale is (Dn + Dr)^-0.5: a query's size, not the latent's.
    Raises ValueError when the shapes do not fit together.
    """
    check_shapes(q_nope, q_rope, latent, k_rope, w_uk, w_uv)
    k, v = expand(latent, k_rope, *_wide(w_uk, w_uv))
    return causal_attention(np.concatenate((q_nope, q_rope), axis=-1), k, v, scale, offset).astype(q_nope.dtype)


def mla_absorbed(
    q_nope: np.ndarray,
    q_rope: np.ndarray,
    latent: np.ndarray,
    k_rope: np.ndarray,
    w_uk: np.ndarray,
    w_uv: np.ndarray,
    scale: float,
    offset: int = 0,
) -> np.ndarray:
    """The same result, attending to the latents as they are: the form for one query over a long context (decode).

    Shapes, scale and errors as `mla_expanded`.
    """
    check_shapes(q_nope, q_rope, latent, k_rope, w_uk, w_uv)
    w_uk, w_uv = _wide(w_uk, w_uv)
    q = np.concatenate((absorb(q_nope, w_uk), q_rope), axis=-1)  # [T, H, Dc + Dr]
    k = np.concatenate((latent, k_rope), axis=-1)[:, None]  # [S, 1, Dc + Dr]: one head, shared by all
    return values(causal_attention(q, k, latent[:, None], scale, offset), w_uv).astype(q_nope.dtype)


def _wide(*weights: np.ndarray) -> list[np.ndarray]:
    """Half precision is too coarse to sum in: what is multiplied with these is then summed in float32 at least."""
    return [w.astype(np.result_type(w.dtype, np.float32), copy=False) for w in weights]


def expand(latent: np.ndarray, k_rope: np.ndarray, w_uk: np.ndarray, w_uv: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every head's keys and values: latent[S, Dc], k_rope[S, Dr] -> k[S, H, Dn + Dr], v[S, H, Dv]."""
    k_nope = np.einsum("hnc,sc->shn", w_uk, latent, optimize=True)
    shared = np.broadcast_to(k_rope[:, None], (*k_nope.shape[:2], k_rope.shape[-1]))
    return np.concatenate((k_nope, shared), axis=-1), np.einsum("hvc,sc->shv", w_uv, latent, optimize=True)


def absorb(q_nope: np.ndarray, w_uk: np.ndarray) -> np.ndarray:
    """Move queries into the space of the latent: q_nope[T, H, Dn] -> [T, H, Dc].

    At run time, and not once into the query's own weights: their product would be Dc wide where the factors meet in the
    narrow Dn, three times the weights to store and read in DeepSeek-V2.
    """
    return np.einsum("qhn,hnc->qhc", q_nope, w_uk, optimize=True)


def values(summed: np.ndarray, w_uv: np.ndarray) -> np.ndarray:
    """Turn weighted sums of latents into sums of values: summed[T, H, Dc] -> [T, H, Dv]."""
    return np.einsum("qhc,hvc->qhv", summed, w_uv, optimize=True)


def check_shapes(
    q_nope: np.ndarray, q_rope: np.ndarray, latent: np.ndarray, k_rope: np.ndarray, w_uk: np.ndarray, w_uv: np.ndarray
) -> None:
    """Raise ValueError naming the first array whose shape does not go with those before it."""
    T, H, Dn = q_nope.shape
    S, Dc = latent.shape
    expected = {
        "q_rope": (q_rope, (T, H, q_rope.shape[-1])),
        "k_rope": (k_rope, (S, q_rope.shape[-1])),
        "w_uk": (w_uk, (H, Dn, Dc)),
        "w_uv": (w_uv, (H, w_uv.shape[-2], Dc)),
    }
    for name, (array, shape) in expected.items():
        if array.shape != shape:
            raise ValueError(
                f"{name} has shape {array.shape}, expected {shape} beside q_nope {q_nope.shape}, latent {latent.shape}"
            )
