"""Lesson 04, latent attention absorbed: what a right answer satisfies, and the wrong ones that people write."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mini_engine.attention import mla_absorbed
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers04_mla as answers
from mini_engine.course.exercises.attention_cases import (
    every_digit,
    large_scores,
    mask_holds,
    offset_by_name_and_left_out,
    slow_softmax,
    tokens_seen,
)
from mini_engine.course.expect import expect, expect_close, expect_equal

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


def random_inputs(T: int = 1, S: int = 3, H: int = 2, N: int = 3, R: int = 2, C: int = 5, V: int = 4) -> Inputs:
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
        _case(candidate, _without("k_rope", random_inputs(**shape)), 1.0, shape["S"] - 1, "; k_rope is all zero")


def _places(candidate: Attention) -> None:
    for shape in ({"S": 2, "H": 1}, {"S": 3, "H": 3}):
        _case(candidate, _without("w_uk", random_inputs(**shape)), 1.0, shape["S"] - 1, "; w_uk is all zero")


def _values(candidate: Attention) -> None:
    for V, C in ((1, 5), (4, 5), (6, 4)):
        inputs = random_inputs(S=2, V=V, C=C)
        _case(candidate, _without("w_uk", _without("k_rope", inputs)), 1.0, 1, "; all scores are 0")


def _scale(candidate: Attention) -> None:
    for scale, H in ((1.0, 1), (0.25, 2)):
        inputs = random_inputs(H=H)
        doubled = (2 * inputs[0], 2 * inputs[1], *inputs[2:])
        want = _answer(candidate, inputs, scale, 2).copy()
        words = f"{_words(inputs, 2)}: queries twice as long with scale {scale / 2} must give what scale {scale} gave"
        expect_close(_answer(candidate, doubled, scale / 2, 2), want, words, rtol=1e-6, same_dtype=False)


def _tokens_seen(candidate: Attention, inputs: Inputs, offset: int, words: str) -> list[list[int]]:
    def attend(token: int | None) -> Array:
        changed = [x.copy() for x in inputs]
        if token is not None:
            changed[2][token] -= 3.0
            changed[3][token] += 1.0
        return _answer(candidate, tuple(changed), 0.5, offset)

    return tokens_seen(attend, len(inputs[2]), words)


def _sees(candidate: Attention) -> None:
    for T, S, offset in ((3, 3, 0), (1, 4, 3), (2, 5, 3), (2, 5, 1), (12, 14, 0)):
        words = f"{T} {'row' if T == 1 else 'rows'}, {S} tokens, offset {offset}"
        for row, got in enumerate(_tokens_seen(candidate, random_inputs(T=T, S=S), offset, words)):
            expect_equal(got, list(range(offset + row + 1)), f"{words}: the tokens whose latent changes row {row}")
    offset_by_name_and_left_out(candidate, (*random_inputs(T=2, S=4), 0.5), "2 rows, 4 tokens")


def _own_queries(candidate: Attention) -> None:
    for T, S, H in ((2, 2, 1), (3, 5, 2), (4, 20, 3)):
        _case(candidate, random_inputs(T=T, S=S, H=H), 0.5, S - T)


def _by_hand(candidate: Attention, scores: Array, values: Array, offset: int) -> Array:
    """Scores set by hand: the rope key of token s is the unit vector of place s, its latent is its value."""
    rows, heads, tokens = scores.shape
    inputs = (np.zeros((rows, heads, 1)), scores, values[:, None], np.eye(tokens), *np.ones((2, heads, 1, 1)))
    return _answer(candidate, inputs, 1.0, offset)[..., 0]


def _large(candidate: Attention) -> None:
    for gain in (300.0, 3000.0):
        inputs = tuple(gain * x if name == "q_nope" else x for name, x in zip(NAMES, random_inputs(S=4)))
        _case(candidate, inputs, 1.0, 3, f"; queries {gain:,.0f} times larger")
    large_scores(lambda *given: _by_hand(candidate, *given))


def _mask_holds(candidate: Attention) -> None:
    mask_holds(lambda *given: _by_hand(candidate, *given))


def _every_digit(candidate: Attention) -> None:
    inputs = random_inputs(T=2, S=6, H=3)
    every_digit(_answer(candidate, inputs, 0.4, 4), ORACLE(*inputs, 0.4, 4), _words(inputs, 4), 1e-12)


def _nothing_made(candidate: Attention) -> None:
    """Brackets can be told apart, as in exercise 4.2: a key, then a value, is infinite and the result is not."""
    q_rope, k_rope = np.array([[[1.0], [2.0]]]), np.array([[0.5], [-0.5], [0.0]])
    latent, ones = np.array([[3.0, 1.0], [1.0, 2.0], [2.0, 5.0]]), np.ones((2, 1, 2))
    keys = (np.zeros((1, 2, 1)), q_rope, 1e200 * latent, k_rope, 1e200 * ones, 1e-200 * ones)
    _brackets(candidate, keys, "W_UK c, a key, is infinite; q_nope W_UK is 0. Was W_UK multiplied with latents first?")
    weights = np.array([[0.0], [-25.0], [-50.0]])  # of the order of 1, 1e-11 and 1e-22
    large = latent * np.array([[1.0], [1e150], [1e150]])
    values = (np.zeros((1, 2, 1)), np.ones((1, 2, 1)), large, weights, 0.0 * ones, 1e160 * ones)
    _brackets(candidate, values, "W_UV c, a value, is infinite; the weighted sum of latents is not. Was W_UV multiplied with latents first?")  # fmt: skip


def _brackets(candidate: Attention, inputs: Inputs, words: str) -> None:
    """All scores come from the rope part; the latents are summed first."""
    _, q_rope, latent, k_rope, _, w_uv = inputs
    summed = [np.array(slow_softmax(list(k_rope @ q))) @ latent for q in q_rope[0]]
    want = np.array([[matrix @ c for matrix, c in zip(w_uv, summed)]])
    case = f"{_words(inputs, 2)}, with numbers up to 1e200. {words}"
    expect_close(_answer(candidate, inputs, 1.0, 2), want, case, rtol=1e-6, same_dtype=False)


CONTENT = "a head's key and value are its own W_UK c and W_UV c"
PLACES = "every head's q_rope meets the one shared k_rope"
VALUES = "the result has the size of a value, W_UV's rows"
SCALE = "the given scale multiplies the sum of both parts"
ROWS = "each row asks with its own q_nope and q_rope"
MASK = "the mask holds, however large the scores"
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
        Property(ROWS, _own_queries),
        Property(LARGE, _large),
        Property(MASK, _mask_holds),
        Property(DIGITS, _every_digit),
        Property(NOTHING_MADE, _nothing_made),
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
        Mutant("sees no token but earlier ones", answers.blind_to_itself, SEES, "The mask starts one place too early: row 0 sees nothing, and 0 / 0 is NaN."),
        Mutant("offset under another name", answers.offset_renamed, SEES, "Callers write offset=3; a parameter's name is part of the function."),
        Mutant("the first row's q_nope", answers.content_of_row_zero, ROWS, "A prompt's rows ask different questions."),
        Mutant("the last row's q_rope", answers.rope_of_the_last_row, ROWS, "Each row stands at a place of its own."),
        Mutant("one maximum for all", answers.global_maximum, LARGE, "Rows and heads far below the largest score become 0 / 0."),
        Mutant("maximum before the mask", answers.maximum_before_the_mask, MASK, "A hidden score far above the visible ones pushes them all to exp(-1000), which is 0."),
        Mutant("-1e4 for minus infinity", answers.mask_of(-1e4), MASK, "Scores below -10,000 exist, and then the hidden token is the largest."),
        Mutant("-1e9 for minus infinity", answers.mask_of(-1e9), MASK, "Only minus infinity is below every score."),
        Mutant("exp without the maximum", answers.overflows, LARGE, "One large score makes infinity, then NaN."),
        Mutant("expands first", answers.expands, NOTHING_MADE, "Right, and it makes 16 keys and 16 values of every token, at every step."),
        Mutant("absorbs the keys only", answers.expands_values, NOTHING_MADE, "The value side moves out of the sum in the same way."),
        Mutant("expands head by head", answers.expands_by_head, NOTHING_MADE, "Less memory at once, and all the work of making every key and value."),
        Mutant("makes one key and value at a time", answers.one_key_and_value, NOTHING_MADE, "Less memory still, and the same work."),
        Mutant("float32 inside", answers.float32_inside, DIGITS, "Rounded to 24 bits on the way: six or seven digits are right."),
    ],
    alternatives=[answers.absorbed, answers.head_by_head, answers.one_wide_head, answers.three_at_once],
)  # fmt: skip
