"""Answers to lesson 04's grouped attention: right ones, written another way, and the wrong ones that people write."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mini_engine.attention import softmax

Array = np.ndarray


def head_by_head(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    """A loop over query heads; each reads its K/V head where it lies."""
    group = q.shape[1] // k.shape[1]
    hidden = np.where(np.tri(len(q), len(k), offset, dtype=bool), 0.0, -np.inf)
    out = np.empty((*q.shape[:2], v.shape[-1]))
    for h in range(q.shape[1]):
        scores = scale * (q[:, h] @ k[:, h // group].T) + hidden
        out[:, h] = softmax(scores) @ v[:, h // group]
    return out


def in_groups(
    q: Array,
    k: Array,
    v: Array,
    scale: float,
    offset: int = 0,
    *,
    neighbours: bool = True,
    weights: Callable[[Array], Array] = softmax,
    visible: Array | None = None,
) -> Array:
    """Queries in groups, one product per K/V head. The keyword arguments are places where people go wrong."""
    (T, H, D), K = q.shape, k.shape[1]
    grouped = q.reshape(T, K, H // K, D) if neighbours else q.reshape(T, H // K, K, D).transpose(0, 2, 1, 3)
    scores = scale * np.einsum("tkgd,skd->kgts", grouped, k)
    seen = np.tri(T, len(k), offset, dtype=bool) if visible is None else visible
    out = np.einsum("kgts,skd->tkgd", weights(np.where(seen, scores, -np.inf)), v)
    return (out if neighbours else out.transpose(0, 2, 1, 3)).reshape(T, H, v.shape[-1])


def by_matmul(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    """The same with `@`: all rows of a group in one matrix, K/V heads first."""
    (T, H, D), (S, K, _) = q.shape, k.shape
    rows = q.reshape(T, K, H // K, D).transpose(1, 2, 0, 3).reshape(K, -1, D)
    scores = (scale * rows @ k.transpose(1, 2, 0)).reshape(K, H // K, T, S)
    scores[..., ~np.tri(T, S, offset, dtype=bool)] = -np.inf
    out = softmax(scores).reshape(K, -1, S) @ v.transpose(1, 0, 2)
    return out.reshape(K, H // K, T, -1).transpose(2, 0, 1, 3).reshape(T, H, -1)


def _repeated(k: Array, v: Array, heads: int, how: Callable[..., Array] = np.repeat) -> tuple[Array, Array]:
    return how(k, heads // k.shape[1], axis=1), how(v, heads // k.shape[1], axis=1)


def repeats(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    """Lesson 01's own answer: right, and it makes H heads of K and V first."""
    return in_groups(q, *_repeated(k, v, q.shape[1]), scale, offset)


def repeats_keys(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    keys, _ = _repeated(k, v, q.shape[1])
    group = q.shape[1] // k.shape[1]
    scores = scale * np.einsum("thd,shd->hts", q, keys)
    weights = softmax(np.where(np.tri(len(q), len(k), offset, dtype=bool), scores, -np.inf))
    return np.stack([weights[h] @ v[:, h // group] for h in range(q.shape[1])], axis=1)


def product_by_broadcasting(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    """Multiplies every query with every key number by number, and only then adds up."""
    (T, H, D), (S, K, _) = q.shape, k.shape
    products = q.reshape(T, 1, K, H // K, D) * k[:, :, None]  # [T, S, K, G, D]
    scores = scale * products.sum(-1).transpose(2, 3, 0, 1)
    weights = softmax(np.where(np.tri(T, S, offset, dtype=bool), scores, -np.inf))
    return np.einsum("kgts,skd->tkgd", weights, v).reshape(T, H, -1)


def repeats_by_group(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    """The copies of one group at a time."""
    group = q.shape[1] // k.shape[1]
    parts = []
    for g in range(k.shape[1]):
        keys, values = _repeated(k[:, g : g + 1], v[:, g : g + 1], group)
        parts.append(in_groups(q[:, g * group : (g + 1) * group], keys, values, scale, offset))
    return np.concatenate(parts, axis=1)


def on_sorted_copies(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    """One copy of K and V with the heads in front, not one for each query head: allowed."""
    keys, values = (np.ascontiguousarray(x.transpose(1, 0, 2)) for x in (k, v))
    return in_groups(q, keys.transpose(1, 0, 2), values.transpose(1, 0, 2), scale, offset)


def dealt_round(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return in_groups(q, k, v, scale, offset, neighbours=False)


def mean_query(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    """One query for each group: the mean of its heads."""
    (T, H, D), K = q.shape, k.shape[1]
    mean = q.reshape(T, K, H // K, D).mean(axis=2)
    return np.repeat(in_groups(mean, k, v, scale, offset), H // K, axis=1)


def groups_first(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    """Right numbers in the wrong order: the result is put together with the group's axis outside."""
    (T, H, _), K = q.shape, k.shape[1]
    out = in_groups(q, k, v, scale, offset).reshape(T, K, H // K, -1)
    return out.transpose(0, 2, 1, 3).reshape(T, H, -1)


def mean_of_keys(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    """One K/V head for all: the mean of those there are."""
    return in_groups(q, k.mean(axis=1, keepdims=True), v.mean(axis=1, keepdims=True), scale, offset)


def softmax_over_heads(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return in_groups(
        q, k, v, scale, offset, weights=lambda scores: softmax(np.nan_to_num(scores, neginf=-1e30), axis=1)
    )


def square_mask(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return in_groups(q, k, v, scale, offset, visible=np.tri(len(q), len(k), dtype=bool))


def no_mask(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return in_groups(q, k, v, scale, offset, visible=np.ones((len(q), len(k)), dtype=bool))


def blind_to_itself(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return in_groups(q, k, v, scale, offset, visible=np.tri(len(q), len(k), offset - 1, dtype=bool))


def offset_renamed(q: Array, k: Array, v: Array, scale: float, start: int = 0) -> Array:
    return in_groups(q, k, v, scale, start)


def queries_of_row_zero(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return in_groups(np.broadcast_to(q[:1], q.shape), k, v, scale, offset)


def many_dealt_round(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return in_groups(q, k, v, scale, offset, neighbours=k.shape[1] < 5)


def no_scale(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return in_groups(q, k, v, 1.0, offset)


def own_scale(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return in_groups(q, k, v, q.shape[-1] ** -0.5, offset)


def scale_per_group(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return in_groups(q, k, v, scale / (q.shape[1] // k.shape[1]), offset)


def _powers(scores: Array) -> Array:
    powers = np.exp(scores)
    return powers / powers.sum(axis=-1, keepdims=True)


def overflows(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return in_groups(q, k, v, scale, offset, weights=_powers)


def global_maximum(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return in_groups(q, k, v, scale, offset, weights=lambda scores: _powers(scores - scores.max()))


def maximum_over_heads(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    def weights(scores: Array) -> Array:
        return _powers(scores - scores.max(axis=(0, 1, 3), keepdims=True))

    return in_groups(q, k, v, scale, offset, weights=weights)


def mask_of(value: float) -> Callable[..., Array]:
    """A finite number in the place of minus infinity."""

    def attention(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
        return in_groups(q, k, v, scale, offset, weights=lambda s: softmax(np.where(np.isneginf(s), value, s)))

    return attention


def maximum_before_the_mask(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    """The maximum of all scores, hidden ones too; then a mask of 0 and 1 on the powers."""

    def weights(scores: Array) -> Array:
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True)) * np.tri(len(q), len(k), offset)
        return powers / powers.sum(axis=-1, keepdims=True)

    return in_groups(q, k, v, scale, offset, visible=np.ones((len(q), len(k)), dtype=bool), weights=weights)


def float32_inside(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    return in_groups(q, k, v, scale, offset).astype(np.float64)
