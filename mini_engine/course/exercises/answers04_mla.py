"""Answers to lesson 04's latent attention: right ones, written another way, and the wrong ones that people write."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mini_engine.attention import mla_expanded, softmax

Array = np.ndarray


def absorbed(
    q_nope: Array,
    q_rope: Array,
    latent: Array,
    k_rope: Array,
    w_uk: Array,
    w_uv: Array,
    scale: float,
    offset: int = 0,
    *,
    rope: Callable[[Array], Array] = lambda scores: scores,
    scales: Callable[[Array, Array, float], Array] = lambda content, place, scale: scale * (content + place),
    weights: Callable[[Array], Array] = softmax,
    diagonal: int | None = None,
) -> Array:
    """Scores in two parts, then a sum of latents. The keyword arguments are places where people go wrong."""
    query = np.einsum("qhn,hnc->qhc", q_nope, w_uk)
    content = np.einsum("qhc,sc->hqs", query, latent)
    place = rope(np.einsum("qhr,sr->hqs", q_rope, k_rope))
    seen = np.tri(len(q_nope), len(latent), offset if diagonal is None else diagonal, dtype=bool)
    probabilities = weights(np.where(seen, scales(content, place, scale), -np.inf))
    return np.einsum("qhc,hvc->qhv", np.einsum("hqs,sc->qhc", probabilities, latent), w_uv)


def head_by_head(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
    """One head and one row at a time, plain products."""
    out = np.empty((*q_nope.shape[:2], w_uv.shape[1]))
    for t in range(len(q_nope)):
        seen, turned = latent[: offset + t + 1], k_rope[: offset + t + 1]
        for h in range(q_nope.shape[1]):
            scores = seen @ (w_uk[h].T @ q_nope[t, h]) + turned @ q_rope[t, h]
            out[t, h] = w_uv[h] @ (softmax(scale * scores) @ seen)
    return out


def one_wide_head(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
    """Multi-query attention: one wide key (latent and rope key side by side), whose first part is the value too."""
    queries = np.concatenate([np.einsum("qhn,hnc->qhc", q_nope, w_uk), q_rope], axis=-1)
    key = np.concatenate([latent, k_rope], axis=-1)
    scores = scale * (queries.reshape(-1, key.shape[1]) @ key.T).reshape(*q_nope.shape[:2], len(latent))
    scores = np.where(np.tri(len(q_nope), len(latent), offset, dtype=bool)[:, None], scores, -np.inf)
    return np.einsum("qhc,hvc->qhv", softmax(scores) @ latent, w_uv)


def three_at_once(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
    """One einsum for each side. Slow, as it multiplies all three for each place; but no key and no value is made."""
    scores = np.einsum("qhn,hnc,sc->qhs", q_nope, w_uk, latent) + np.einsum("qhr,sr->qhs", q_rope, k_rope)
    seen = np.tri(len(q_nope), len(latent), offset, dtype=bool)[:, None]
    return np.einsum("qhs,sc,hvc->qhv", softmax(np.where(seen, scale * scores, -np.inf)), latent, w_uv)


def expands_by_head(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
    """Right, by way of the keys and values of one head at a time."""
    seen = np.tri(len(q_nope), len(latent), offset, dtype=bool)
    out = np.empty((*q_nope.shape[:2], w_uv.shape[1]))
    for h in range(q_nope.shape[1]):
        scores = scale * (q_nope[:, h] @ (latent @ w_uk[h].T).T + q_rope[:, h] @ k_rope.T)
        out[:, h] = softmax(np.where(seen, scores, -np.inf)) @ (latent @ w_uv[h].T)
    return out


def one_key_and_value(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
    """Right, by way of one key and one value at a time."""
    out = np.empty((*q_nope.shape[:2], w_uv.shape[1]))
    for t in range(len(q_nope)):
        for h in range(q_nope.shape[1]):
            seen = range(offset + t + 1)
            scores = [q_nope[t, h] @ (w_uk[h] @ latent[s]) + q_rope[t, h] @ k_rope[s] for s in seen]
            weights = softmax(scale * np.array(scores))
            out[t, h] = sum(weights[s] * (w_uv[h] @ latent[s]) for s in seen)
    return out


def expands(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
    """Right, by way of every head's keys and values."""
    return mla_expanded(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset)


def expands_values(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
    """Absorbs on the key side only."""
    content = np.einsum("qhc,sc->hqs", np.einsum("qhn,hnc->qhc", q_nope, w_uk), latent)
    scores = scale * (content + np.einsum("qhr,sr->hqs", q_rope, k_rope))
    seen = np.tri(len(q_nope), len(latent), offset, dtype=bool)
    values = np.einsum("hvc,sc->shv", w_uv, latent, optimize=True)
    return np.einsum("hqs,shv->qhv", softmax(np.where(seen, scores, -np.inf)), values)


def no_rope(*inputs, **more):
    return absorbed(*inputs, **more, rope=np.zeros_like)


def rope_for_one_head(*inputs, **more):
    return absorbed(*inputs, **more, rope=lambda place: place * (np.arange(len(place)) == 0)[:, None, None])


def rope_of_the_mean_query(*inputs, **more):
    return absorbed(*inputs, **more, rope=lambda place: np.broadcast_to(place.mean(axis=0), place.shape))


def rope_not_scaled(*inputs, **more):
    return absorbed(*inputs, **more, scales=lambda content, place, scale: scale * content + place)


def content_not_scaled(*inputs, **more):
    return absorbed(*inputs, **more, scales=lambda content, place, scale: content + scale * place)


def _own_scale(size: Callable[[int, int, int], int]) -> Callable[..., Array]:
    def attention(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
        own = size(q_nope.shape[-1], q_rope.shape[-1], latent.shape[-1]) ** -0.5
        return absorbed(q_nope, q_rope, latent, k_rope, w_uk, w_uv, own, offset)

    return attention


scale_of_the_latent = _own_scale(lambda nope, rope, latent: latent + rope)
scale_of_the_content = _own_scale(lambda nope, rope, latent: nope)


def no_offset(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
    return absorbed(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset, diagonal=0)


def no_mask(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
    return absorbed(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset, diagonal=len(latent))


def blind_to_itself(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
    return absorbed(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset, diagonal=offset - 1)


def offset_renamed(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, start=0):
    return absorbed(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, start)


def content_of_row_zero(q_nope, *others, **more):
    return absorbed(np.broadcast_to(q_nope[:1], q_nope.shape), *others, **more)


def rope_of_the_last_row(q_nope, q_rope, *others, **more):
    return absorbed(q_nope, np.broadcast_to(q_rope[-1:], q_rope.shape), *others, **more)


def latents_for_values(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
    """Forgets W_UV: cuts the summed latent to the size of a value."""
    size = w_uv.shape[1]
    identity = np.broadcast_to(np.eye(size, latent.shape[1]), w_uv.shape)
    return absorbed(q_nope, q_rope, latent, k_rope, w_uk, identity, scale, offset)


def values_of_head_zero(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
    return absorbed(q_nope, q_rope, latent, k_rope, w_uk, np.broadcast_to(w_uv[:1], w_uv.shape), scale, offset)


def matrix_of_head_zero(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
    return absorbed(q_nope, q_rope, latent, k_rope, np.broadcast_to(w_uk[:1], w_uk.shape), w_uv, scale, offset)


def _powers(scores: Array) -> Array:
    powers = np.exp(scores)
    return powers / powers.sum(axis=-1, keepdims=True)


def overflows(*inputs, **more):
    return absorbed(*inputs, **more, weights=_powers)


def global_maximum(*inputs, **more):
    return absorbed(*inputs, **more, weights=lambda scores: _powers(scores - scores.max()))


def mask_of(value: float) -> Callable[..., Array]:
    """A finite number in the place of minus infinity."""

    def attention(*inputs, **more):
        return absorbed(*inputs, **more, weights=lambda s: softmax(np.where(np.isneginf(s), value, s)))

    return attention


def maximum_before_the_mask(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
    """The maximum of all scores, hidden ones too; then a mask of 0 and 1 on the powers."""

    def weights(scores: Array) -> Array:
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True)) * np.tri(len(q_nope), len(latent), offset)
        return powers / powers.sum(axis=-1, keepdims=True)

    inputs = (q_nope, q_rope, latent, k_rope, w_uk, w_uv)
    return absorbed(*inputs, scale, offset, weights=weights, diagonal=len(latent))


def float32_inside(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
    q_nope, q_rope, latent, k_rope, w_uk, w_uv = (
        x.astype(np.float32) for x in (q_nope, q_rope, latent, k_rope, w_uk, w_uv)
    )
    return absorbed(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset).astype(np.float64)
