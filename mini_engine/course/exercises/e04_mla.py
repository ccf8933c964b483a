"""Lesson 04, latent attention absorbed: what a right answer satisfies, and the wrong ones that people write."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mini_engine.attention import mla_absorbed
from mini_engine.course.exercise import Exercise, Mutant, Prediction, Property
from mini_engine.course.exercises import answers04_mla as answers
from mini_engine.course.exercises.e01_attention import slow_softmax
from mini_engine.course.exercises.memory04 import expect_frugal
from mini_engine.course.expect import expect, expect_close, expect_equal, fail

Array = np.ndarray
Attention = Callable[..., Array]
Inputs = tuple[Array, ...]
"""In the order of NAMES."""
NAMES = ("q_nope", "q_rope", "latent", "k_rope", "w_uk", "w_uv")


def slow_mla(
    q_nope: Array, q_rope: Array, latent: Array, k_rope: Array, w_uk: Array, w_uv: Array, scale: float, offset: int = 0
) -> Array:
    """Every head's keys and values made one number at a time, then attention by loops: the oracle."""
    (T, H, N), C, V = q_nope.shape, latent.shape[1], w_uv.shape[1]
    out = np.zeros((T, H, V))
    for t in range(T):
        for h in range(H):
            scores, values = [], []
            for s in range(offset + t + 1):
                key = [math.fsum(w_uk[h, n, c] * latent[s, c] for c in range(C)) for n in range(N)]
                content = math.fsum(q_nope[t, h, n] * key[n] for n in range(N))
                place = math.fsum(q_rope[t, h, r] * k_rope[s, r] for r in range(k_rope.shape[1]))
                scores.append(scale * (content + place))
                values.append([math.fsum(w_uv[h, v, c] * latent[s, c] for c in range(C)) for v in range(V)])
            weights = slow_softmax(scores)
            out[t, h] = [math.fsum(w * value[v] for w, value in zip(weights, values)) for v in range(V)]
    return out


ORACLE: Attention = slow_mla


def _inputs(T: int = 1, S: int = 3, H: int = 2, N: int = 3, R: int = 2, C: int = 5, V: int = 4) -> Inputs:
    rng = np.random.default_rng(T + 10 * S + 100 * H + 1000 * N)
    shapes = ((T, H, N), (T, H, R), (S, C), (S, R), (H, N, C), (H, V, C))
    return tuple(rng.normal(size=shape) for shape in shapes)


def _words(inputs: Inputs, offset: int) -> str:
    return ", ".join(f"{name} {x.shape}" for name, x in zip(NAMES, inputs)) + f", offset {offset}"


def _answer(candidate: Attention, inputs: Inputs, scale: float, offset: int) -> Array:
    with np.errstate(all="ignore"):
        got = candidate(*inputs, scale, offset)
    shape = (*inputs[0].shape[:2], inputs[5].shape[1])
    expect(type(got) is np.ndarray and got.shape == shape, _words(inputs, offset), expected=f"shape {shape}", got=got)
    return got


def _case(candidate: Attention, inputs: Inputs, scale: float, offset: int, note: str = "") -> None:
    """Right to six digits. The others are `_every_digit`'s business, which says what to look for."""
    words = f"{_words(inputs, offset)}, scale {scale}{note}"
    want = ORACLE(*inputs, scale, offset)
    expect_close(_answer(candidate, inputs, scale, offset), want, words, rtol=1e-6, same_dtype=False)


def _without(name: str, inputs: Inputs) -> Inputs:
    return tuple(np.zeros_like(x) if n == name else x for n, x in zip(NAMES, inputs))


def _content(candidate: Attention) -> None:
    for shape in ({"S": 1, "H": 1}, {"S": 3, "H": 1}, {"S": 3, "H": 3}):
        _case(candidate, _without("k_rope", _inputs(**shape)), 1.0, shape["S"] - 1, "; k_rope is all zero")


def _places(candidate: Attention) -> None:
    for shape in ({"S": 2, "H": 1}, {"S": 3, "H": 3}):
        _case(candidate, _without("w_uk", _inputs(**shape)), 1.0, shape["S"] - 1, "; w_uk is all zero")


def _values(candidate: Attention) -> None:
    for V, C in ((1, 5), (4, 5), (6, 4)):
        inputs = _inputs(S=2, V=V, C=C)
        _case(candidate, _without("w_uk", _without("k_rope", inputs)), 1.0, 1, "; all scores are 0")


def _scale(candidate: Attention) -> None:
    for scale, H in ((1.0, 1), (0.25, 2)):
        inputs = _inputs(H=H)
        doubled = (2 * inputs[0], 2 * inputs[1], *inputs[2:])
        want = _answer(candidate, inputs, scale, 2).copy()
        words = f"{_words(inputs, 2)}: queries twice as long with scale {scale / 2} must give what scale {scale} gave"
        expect_close(_answer(candidate, doubled, scale / 2, 2), want, words, rtol=1e-6, same_dtype=False)


def _sees(candidate: Attention) -> None:
    for T, S, offset in ((3, 3, 0), (1, 4, 3), (2, 5, 3), (2, 5, 1)):
        inputs = _inputs(T=T, S=S)
        before = _answer(candidate, inputs, 0.5, offset).copy()
        seen = np.zeros((T, S), dtype=bool)
        for token in range(S):
            changed = [x.copy() for x in inputs]
            changed[2][token] -= 3.0
            changed[3][token] += 1.0
            after = _answer(candidate, tuple(changed), 0.5, offset)
            seen[:, token] = [not np.allclose(a, b, rtol=0, atol=1e-9) for a, b in zip(before, after)]
        for row in range(T):
            got, want = [int(s) for s in np.flatnonzero(seen[row])], list(range(offset + row + 1))
            expect_equal(got, want, f"{T} rows, {S} tokens, offset {offset}: the tokens whose latent changes row {row}")


def _large(candidate: Attention) -> None:
    for gain in (300.0, 3000.0):
        inputs = tuple(gain * x if name == "q_nope" else x for name, x in zip(NAMES, _inputs(S=4)))
        _case(candidate, inputs, 1.0, 3, f"; queries {gain:,.0f} times larger")


def _nothing_made(candidate: Attention) -> None:
    inputs = _inputs(1, 128, 16, 16, 8, 16, 16)
    keys = 128 * 16 * 16 * 8
    words = f"{_words(inputs, 127)}: memory that the call takes, besides its inputs"
    meaning = "the keys of all heads alone would take as many"
    expect_frugal(candidate, (*inputs, 0.15, 127), keys, words, meaning)


def _every_digit(candidate: Attention) -> None:
    inputs = _inputs(T=2, S=6, H=3)
    want, got = ORACLE(*inputs, 0.4, 4), _answer(candidate, inputs, 0.4, 4)
    bound, error = 1e-12 * np.abs(want).max(), np.abs(got - want).max()
    if got.dtype != np.float64 or not error <= bound:
        fail(
            f"{_words(inputs, 4)}: right to six digits, and not beyond. Is a step done in float32?",
            expected=f"float64, off by {bound:.1e} at most",
            got=f"{got.dtype}, off by {error:.1e}",
        )


CONTENT = "a head's key and value are its own W_UK c and W_UV c"
PLACES = "every head's q_rope meets the one shared k_rope"
VALUES = "the result has the size of a value, W_UV's rows"
SCALE = "the given scale multiplies the sum of both parts"
SEES = "row t sees tokens 0 to offset + t"
LARGE = "large scores stay finite"
NOTHING_MADE = "no key and no value of a cached token is made"
DIGITS = "every digit of float64 is right"

MLA_ABSORBED = Exercise(
    id="04.mla_absorbed",
    title="Attend to the latents",
    reference=mla_absorbed,
    budget=20_000_000,  # plain loops are right too
    properties=[
        Property(SEES, _sees),
        Property(VALUES, _values),
        Property(SCALE, _scale),
        Property(CONTENT, _content),
        Property(PLACES, _places),
        Property(LARGE, _large),
        Property(NOTHING_MADE, _nothing_made),
        Property(DIGITS, _every_digit),
    ],
    mutants=[
        Mutant("latents for values", answers.latents_for_values, VALUES, "The weighted sum of latents still has to go through W_UV."),
        Mutant("values of the first head", answers.values_of_head_zero, VALUES, "The latent is shared, W_UV is not."),
        Mutant("keys of the first head", answers.matrix_of_head_zero, CONTENT, "The latent is shared, W_UK is not."),
        Mutant("no rope part", answers.no_rope, PLACES, "Without it, the order of the words is lost."),
        Mutant("rope part for one head", answers.rope_for_one_head, PLACES, "One key, and every head's query meets it."),
        Mutant("one mean rope query", answers.rope_of_the_mean_query, PLACES, "The rope key is shared. Each head's rope query is its own."),
        Mutant("rope part not scaled", answers.rope_not_scaled, SCALE, "A score is one product of Dn + Dr numbers: one scale for both parts."),
        Mutant("content not scaled", answers.content_not_scaled, SCALE, "A score is one product of Dn + Dr numbers: one scale for both parts."),
        Mutant("scale of the latent", answers.scale_of_the_latent, SCALE, "The absorbed query is Dc + Dr long, but the score is the same number as before."),
        Mutant("scale of the content part", answers.scale_of_the_content, SCALE, "The scale is the caller's affair, and it counts the rope part too."),
        Mutant("no offset", answers.no_offset, SEES, "With a cache, new rows are not at the start."),
        Mutant("no mask", answers.no_mask, SEES, "A prompt's rows must not look ahead."),
        Mutant("exp without the maximum", answers.overflows, LARGE, "One large score makes infinity, then NaN."),
        Mutant("expands first", answers.expands, NOTHING_MADE, "Right, and it makes 16 keys and 16 values of every token, at every step."),
        Mutant("absorbs the keys only", answers.expands_values, NOTHING_MADE, "The value side moves out of the sum in the same way."),
        Mutant("float32 inside", answers.float32_inside, DIGITS, "Rounded to 24 bits on the way: six or seven digits are right."),
    ],
    alternatives=[answers.absorbed, answers.head_by_head, answers.one_wide_head],
)  # fmt: skip

SCALE_ROOT = Prediction(
    "04.scale_root",
    "tiny-mla: a head's key has 32 numbers from the latent and 16 that carry the position. The latent has 64. The scale is 1 / sqrt(n). n = ?",
    32 + 16,
    mistakes=[
        (32, "Half of the story: the part with the position is multiplied and added too."),
        (16, "That is the part with the position only. The other 32 are in the same sum."),
        (64 + 16, "So long are the vectors after absorption. But the score is the same number as before it."),
        (64, "The latent is what is kept. A score is the product of a query and a key."),
        (32 + 16 + 64, "The latent and the key made from it are not both in the product."),
        (256, "That is the width of the model."),
    ],
    because="A score is a sum of 32 + 16 products, however it is computed.",
    rtol=0,
)  # fmt: skip


def inputs_by_name(**shape: int) -> dict[str, Any]:
    """Random arrays under the names of the arguments, for tests."""
    return dict(zip(NAMES, _inputs(**shape)))
