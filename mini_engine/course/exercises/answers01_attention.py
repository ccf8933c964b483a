"""Answers to lesson 01's causal attention: two right ones, written another way, and the wrong ones that people write."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mini_engine.attention import softmax

Array = np.ndarray


def by_rows(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    """No mask at all: row t is given only the keys that it may see."""
    group = q.shape[1] // k.shape[1]
    out = np.empty(q.shape)
    for t in range(len(q)):
        for h in range(q.shape[1]):
            keys, values = k[: offset + t + 1, h // group], v[: offset + t + 1, h // group]
            out[t, h] = softmax(scale * (keys @ q[t, h])) @ values
    return out


def by_arrays(
    q: Array,
    k: Array,
    v: Array,
    scale: float,
    offset: int = 0,
    *,
    mask_offset: bool = True,
    diagonal: int = 0,
    heads: Callable[..., Array] = np.repeat,
    weights: Callable[[Array], Array] = softmax,
    values: bool = True,
    late: bool = False,
) -> Array:
    """One pass over arrays. The keyword arguments are the places where people go wrong; as given, it is right."""
    group = q.shape[1] // k.shape[1]
    k, v = (heads(x, group, axis=1) for x in (k, v))
    scores = scale * np.einsum("thd,shd->hts", q, k)
    start = diagonal + (offset if mask_offset else 0)
    visible = np.tri(len(q), len(k), start, dtype=bool)
    probabilities = weights(scores) * visible if late else weights(np.where(visible, scores, -np.inf))
    return np.einsum("hts,shd->thd", probabilities, v if values else k)


def _tile(x: Array, group: int, axis: int) -> Array:
    return np.concatenate([x] * group, axis=axis)


def no_scale(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, 1.0, offset)


def no_mask(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, scale, offset, diagonal=len(k))


def blind_to_itself(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return np.nan_to_num(by_arrays(q, k, v, scale, offset, diagonal=-1))


def square_mask(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, scale, offset, mask_offset=False)


def heads_dealt_round(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, scale, offset, heads=_tile)


def _softmax_overflows(scores: Array) -> Array:
    powers = np.exp(scores)
    return powers / powers.sum(axis=-1, keepdims=True)


def overflows(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, scale, offset, weights=_softmax_overflows)


def mask_of(value: float) -> Callable[..., Array]:
    """A finite number in the place of minus infinity."""

    def attention(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
        k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
        scores = scale * np.einsum("thd,shd->hts", q, k)
        weights = softmax(np.where(np.tri(len(q), len(k), offset, dtype=bool), scores, value))
        return np.einsum("hts,shd->thd", weights, v)

    return attention


def adds_to_the_scores(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    hidden = ~np.tri(len(q), len(k), offset, dtype=bool)
    weights = softmax(scale * np.einsum("thd,shd->hts", q, k) - 1e4 * hidden)
    return np.einsum("hts,shd->thd", weights, v)


def offset_from_the_shapes(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, scale, len(k) - len(q))


def float32_inside(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    return by_arrays(q, k, v, scale, offset).astype(np.float64)


def keys_for_values(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, scale, offset, values=False)


def masked_too_late(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, scale, offset, late=True)


def scales_in_place(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    q *= scale
    return by_arrays(q, k, v, 1.0, offset)


def maximum_before_the_mask(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scores = scale * np.einsum("thd,shd->hts", q, k)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True)) * np.tri(len(q), len(k), offset)
    return np.einsum("hts,shd->thd", powers / powers.sum(axis=-1, keepdims=True), v)


def subtracts_the_first_score(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, scale, offset, weights=lambda scores: _softmax_overflows(scores - scores[..., :1]))


def clips_the_scores(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    def weights(scores: Array) -> Array:
        return _softmax_overflows(np.where(np.isneginf(scores), scores, np.clip(scores, -700, 700)))

    return by_arrays(q, k, v, scale, offset, weights=weights)


def window_of_five(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    def weights(scores: Array) -> Array:
        near = ~np.tri(len(q), len(k), offset - 5, dtype=bool)
        return softmax(np.where(near, scores, -np.inf))

    return by_arrays(q, k, v, scale, offset, weights=weights)


def many_heads_dealt_round(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    many = len(k) > 8 or k.shape[1] > 4
    return by_arrays(q, k, v, scale, offset, heads=_tile if many else np.repeat)


def float32_for_many_keys(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return (float32_inside if len(k) > 5 else by_arrays)(q, k, v, scale, offset)


def no_offset(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, scale)


def one_row_unmasked(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, scale, len(k) - 1 if len(q) == 1 else offset)


def scale_of_one_at_most(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, min(scale, 1.0), offset)


def offset_renamed(q: Array, k: Array, v: Array, scale: float, start: int = 0) -> Array:
    return by_arrays(q, k, v, scale, start)


class OneBuffer:
    """Every result of one shape is the same array."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[int, ...], Array] = {}

    def __call__(self, q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
        buffer = self.buffers.setdefault(q.shape, np.empty(q.shape))
        buffer[:] = by_arrays(q, k, v, scale, offset)
        return buffer
