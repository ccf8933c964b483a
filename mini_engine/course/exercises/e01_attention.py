"""Lesson 01, causal attention: what a right answer satisfies, and the wrong ones that people write."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mini_engine.attention import causal_attention, softmax
from mini_engine.course.exercise import INPUTS_UNCHANGED, Exercise, Mutant, Property
from mini_engine.course.expect import expect, expect_close

Array = np.ndarray


def slow_softmax(scores: list[float]) -> list[float]:
    """Softmax of one list of finite or -inf scores, number by number: the oracle."""
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    return [power / math.fsum(powers) for power in powers]


def slow_attention(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    """Causal attention as three plain loops, one number at a time: the oracle.

    q [T, H, D]; k, v [S, K, D]; row t sees keys 0..offset+t; query head h reads K/V head h // (H // K). Returns [T, H, D].
    """
    (rows, heads, size), kv_heads = q.shape, k.shape[1]
    out = np.zeros((rows, heads, size))
    for t in range(rows):
        for h in range(heads):
            g = h // (heads // kv_heads)
            seen = range(offset + t + 1)
            weights = slow_softmax([scale * math.fsum(q[t, h, d] * k[s, g, d] for d in range(size)) for s in seen])
            for d in range(size):
                out[t, h, d] = math.fsum(weights[s] * v[s, g, d] for s in seen)
    return out


@dataclass(frozen=True)
class Case:
    """One attention problem. Written as the shapes, so that a failure can print it."""

    rows: int
    keys: int
    heads: int = 1
    kv_heads: int = 1
    size: int = 2
    gain: float = 1.0

    def __str__(self) -> str:
        q, kv = (self.rows, self.heads, self.size), (self.keys, self.kv_heads, self.size)
        return f"q {q}, k and v {kv}, offset {self.keys - self.rows}"

    def tensors(self) -> tuple[Array, Array, Array]:
        rng = np.random.default_rng(self.rows + 10 * self.keys + 100 * self.heads)
        q = rng.normal(size=(self.rows, self.heads, self.size)) * self.gain
        k, v = rng.normal(size=(2, self.keys, self.kv_heads, self.size))
        return q, k, v


def _attention_case(candidate: Callable[..., Array], case: Case, scale: float = 1.0, note: str = "") -> None:
    q, k, v = case.tensors()
    offset = case.keys - case.rows
    with np.errstate(all="ignore"):
        got = candidate(q, k, v, scale, offset)
    expect_close(got, slow_attention(q, k, v, scale, offset), f"{case}{note}")


def _attention_loops(candidate: Callable[..., Array]) -> None:
    for case in (Case(1, 1, size=1), Case(1, 1), Case(2, 2), Case(3, 3, heads=2, kv_heads=2), Case(5, 5, size=4)):
        _attention_case(candidate, case)


def _attention_scale(candidate: Callable[..., Array]) -> None:
    for scale in (0.5, 0.125):
        _attention_case(candidate, Case(2, 2), scale, f", scale {scale}")


def _attention_future(candidate: Callable[..., Array]) -> None:
    q, k, v = Case(3, 3).tensors()
    expected = slow_attention(q, k, v, 1.0)
    k[2], v[2] = 7.0, -9.0
    got = candidate(q, k, v, 1.0, 0)
    expect(type(got) is np.ndarray and got.shape == q.shape, f"expected an array of shape {q.shape}", got=got)
    expect_close(got[:2], expected[:2], "3 tokens; k and v of token 2 were changed: rows 0 and 1 stay as they were")


def _attention_offset(candidate: Callable[..., Array]) -> None:
    for case in (Case(1, 2), Case(1, 4), Case(2, 5), Case(3, 4, heads=2, kv_heads=2)):
        _attention_case(candidate, case)


def _attention_groups(candidate: Callable[..., Array]) -> None:
    for case in (Case(1, 2, 2, 1), Case(1, 2, 4, 2), Case(3, 5, 6, 2), Case(2, 2, 8, 4)):
        _attention_case(candidate, case)


def _attention_large(candidate: Callable[..., Array]) -> None:
    _attention_case(candidate, Case(2, 2, gain=2000.0), note=", queries 2,000 times larger")


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


def _no_scale(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, 1.0, offset)


def _no_mask(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, scale, offset, diagonal=len(k))


def _blind_to_itself(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return np.nan_to_num(by_arrays(q, k, v, scale, offset, diagonal=-1))


def _square_mask(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, scale, offset, mask_offset=False)


def _heads_dealt_round(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, scale, offset, heads=_tile)


def _softmax_overflows(scores: Array) -> Array:
    powers = np.exp(scores)
    return powers / powers.sum(axis=-1, keepdims=True)


def _overflows(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, scale, offset, weights=_softmax_overflows)


def _keys_for_values(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, scale, offset, values=False)


def _masked_too_late(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    return by_arrays(q, k, v, scale, offset, late=True)


def _scales_in_place(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    q *= scale
    return by_arrays(q, k, v, 1.0, offset)


CAUSAL_ATTENTION = Exercise(
    id="01.causal_attention",
    title="Causal attention without loops",
    reference=causal_attention,
    properties=[
        Property("agrees with the three loops", _attention_loops),
        Property("every score is multiplied by the scale", _attention_scale),
        Property("no row sees a later token", _attention_future),
        Property("with an offset, row t sees keys 0..offset+t", _attention_offset),
        Property("query head h reads K/V head h // (H // K)", _attention_groups),
        Property("large scores stay finite", _attention_large),
    ],
    mutants=[
        Mutant(
            "keys in the place of values",
            _keys_for_values,
            "agrees with the three loops",
            "Cached and full runs agree with each other, so only an independent answer shows it.",
        ),
        Mutant(
            "a token cannot see itself",
            _blind_to_itself,
            "agrees with the three loops",
            "The mask starts one place too early: row t must see key t.",
        ),
        Mutant(
            "masked after the softmax",
            _masked_too_late,
            "agrees with the three loops",
            "The weights that are left no longer sum to 1: later tokens still took their share.",
        ),
        Mutant(
            "no scale",
            _no_scale,
            "every score is multiplied by the scale",
            "Text still comes out; it is only worse.",
        ),
        Mutant(
            "no mask",
            _no_mask,
            "no row sees a later token",
            "Every row sees the future, and past K and V change with each new token.",
        ),
        Mutant(
            "mask forgets the offset",
            _square_mask,
            "with an offset, row t sees keys 0..offset+t",
            "A new token's single row becomes row 0, which sees one key only (a bug reported for gpt-fast, #233).",
        ),
        Mutant(
            "heads dealt round",
            _heads_dealt_round,
            "query head h reads K/V head h // (H // K)",
            "np.tile gives h % K. Neighbouring heads share: np.repeat.",
        ),
        Mutant(
            "exp without the maximum",
            _overflows,
            "large scores stay finite",
            "One large score makes infinity, then NaN.",
        ),
        Mutant(
            "scales q in place",
            _scales_in_place,
            INPUTS_UNCHANGED,
            "`q *= scale` writes into the caller's array.",
        ),
    ],
    alternatives=[by_rows, by_arrays],
)
