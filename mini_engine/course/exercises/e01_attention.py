"""Lesson 01, causal attention: what a right answer satisfies, and the wrong ones that people write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mini_engine.attention import causal_attention
from mini_engine.course.exercise import INPUTS_UNCHANGED, Exercise, Mutant, Property
from mini_engine.course.exercises import answers01_attention as answers
from mini_engine.course.exercises.attention_cases import (
    Scored,
    every_digit,
    large_scores,
    mask_holds,
    offset_by_name_and_left_out,
    slow_attention,
    tokens_seen,
)
from mini_engine.course.expect import expect, expect_close

Array = np.ndarray


@dataclass(frozen=True)
class Case:
    """One attention problem, written as the shapes, so that a failure can print it. `spare` keys lie behind the last row's."""

    rows: int
    keys: int
    heads: int = 1
    kv_heads: int = 1
    size: int = 2
    gain: float = 1.0
    spare: int = 0

    @property
    def offset(self) -> int:
        return self.keys - self.spare - self.rows

    def __str__(self) -> str:
        q, kv = (self.rows, self.heads, self.size), (self.keys, self.kv_heads, self.size)
        return f"q {q}, k and v {kv}, offset {self.offset}"

    def tensors(self) -> tuple[Array, Array, Array]:
        rng = np.random.default_rng(self.rows + 10 * self.keys + 100 * self.heads)
        q = rng.normal(size=(self.rows, self.heads, self.size)) * self.gain
        k, v = rng.normal(size=(2, self.keys, self.kv_heads, self.size))
        return q, k, v


def _answer(candidate: Callable[..., Array], case: Case, scale: float, note: str) -> Array:
    """What the candidate returns for the case: an array of the right shape, and of float64."""
    q, k, v = case.tensors()
    with np.errstate(all="ignore"):
        got = candidate(q, k, v, scale, case.offset)
    expect(type(got) is np.ndarray and got.shape == q.shape, f"{case}{note}", expected=f"shape {q.shape}", got=got)
    return got


def _attention_case(candidate: Callable[..., Array], case: Case, scale: float = 1.0, note: str = "") -> None:
    """Right to six digits. The others are `_every_digit`'s business, which says what to look for."""
    want = slow_attention(*case.tensors(), scale, case.offset)
    expect_close(_answer(candidate, case, scale, note), want, f"{case}{note}", rtol=1e-6, same_dtype=False)


def _attention_loops(candidate: Callable[..., Array]) -> None:
    for case in (Case(1, 1, size=1), Case(1, 1), Case(2, 2), Case(3, 3, heads=2, kv_heads=2), Case(5, 5, size=4)):
        _attention_case(candidate, case)
    case = Case(2, 2)
    q, k, v = case.tensors()
    first = candidate(q, k, v, 1.0, 0)
    candidate(q, k, v + 1.0, 1.0, 0)
    note = (
        f"{case}: the first result, looked at again after a second call with other values. Is it a new array each time?"
    )
    expect_close(first, slow_attention(q, k, v, 1.0), note, rtol=1e-6, same_dtype=False)


def _attention_scale(candidate: Callable[..., Array]) -> None:
    for scale in (0.5, 0.125, 3.0):
        _attention_case(candidate, Case(2, 2), scale, f", scale {scale}")


def _who_sees_whom(candidate: Callable[..., Array], case: Case) -> list[list[int]]:
    """Per row, the tokens with which it changes when only that token's key and value do."""

    def attend(token: int | None) -> Array:
        q, k, v = case.tensors()
        if token is not None:
            k[token], v[token] = k[token] + 1.0, v[token] - 9.0
        with np.errstate(all="ignore"):
            return candidate(q, k, v, 1.0, case.offset)

    _answer(candidate, case, 1.0, "")
    return tokens_seen(attend, case.keys, f"{case.keys} tokens, offset 0")


def _attention_future(candidate: Callable[..., Array]) -> None:
    for row, seen in enumerate(_who_sees_whom(candidate, Case(3, 3))):
        words = f"3 tokens, offset 0: row {row} changes with k and v of a later token"
        later = [token for token in seen if token > row]
        expect(not later, words, expected=[], got=later)


def _attention_past(candidate: Callable[..., Array]) -> None:
    for case in (Case(3, 3), Case(12, 12)):
        for row, got in enumerate(_who_sees_whom(candidate, case)):
            want = list(range(case.offset + row + 1))
            tokens = f"{case.keys} tokens, offset 0: the tokens whose k and v change row {row}"
            expect(got == want, tokens, expected=want, got=got)


def _attention_offset(candidate: Callable[..., Array]) -> None:
    for case in (Case(1, 2), Case(1, 4), Case(2, 5), Case(3, 4, heads=2, kv_heads=2)):
        _attention_case(candidate, case)
    for case in (Case(1, 3, spare=1), Case(2, 2 + 5, spare=3), Case(2, 4, spare=2)):
        _attention_case(candidate, case, note=": S is larger than offset + T")
    case = Case(2, 3)
    offset_by_name_and_left_out(candidate, (*case.tensors(), 1.0), str(case))


def _attention_groups(candidate: Callable[..., Array]) -> None:
    for case in (Case(1, 2, 2, 1), Case(1, 2, 4, 2), Case(3, 5, 6, 2), Case(2, 2, 8, 4), Case(2, 24, 12, 6, spare=3)):
        _attention_case(candidate, case)


def _scored(candidate: Callable[..., Array]) -> Scored:
    """The candidate with scores set by hand: key s is the unit vector of place s, so q holds the scores."""

    def attend(scores: Array, values: Array, offset: int) -> Array:
        tokens, heads = len(values), scores.shape[1]
        k = np.repeat(np.eye(tokens)[:, None], heads, axis=1)
        v = np.broadcast_to(values[:, None, None], k.shape).copy()
        with np.errstate(all="ignore"):
            got = candidate(scores, k, v, 1.0, offset)
        expect(type(got) is np.ndarray and got.shape == scores.shape, "scores by hand", expected=scores.shape, got=got)
        return got[..., 0]

    return attend


def _attention_large(candidate: Callable[..., Array]) -> None:
    _attention_case(candidate, Case(2, 2, gain=2000.0), note=", queries 2,000 times larger")
    large_scores(_scored(candidate))


def _mask_holds(candidate: Callable[..., Array]) -> None:
    mask_holds(_scored(candidate))


def _every_digit(candidate: Callable[..., Array]) -> None:
    for case in (Case(3, 5, 6, 2), Case(2, 24, 12, 6, spare=3)):
        want = slow_attention(*case.tensors(), 0.5, case.offset)
        every_digit(_answer(candidate, case, 0.5, ""), want, str(case), 1e-9)


FUTURE = "no row sees a later token"
PAST = "row t sees every token from 0 to t"
LOOPS = "agrees with the three loops"
SCALE = "every score is multiplied by the scale"
OFFSET = "with an offset, row t sees keys 0..offset+t"
GROUPS = "query head h reads K/V head h // (H // K)"
LARGE = "large scores stay finite"
MASK = "the mask holds, however large the scores"
DIGITS = "every digit of float64 is right"

CAUSAL_ATTENTION = Exercise(
    id="01.causal_attention",
    title="Causal attention without loops",
    reference=causal_attention,
    properties=[
        Property(FUTURE, _attention_future),
        Property(PAST, _attention_past),
        Property(LOOPS, _attention_loops),
        Property(SCALE, _attention_scale),
        Property(OFFSET, _attention_offset),
        Property(GROUPS, _attention_groups),
        Property(LARGE, _attention_large),
        Property(MASK, _mask_holds),
        Property(DIGITS, _every_digit),
    ],
    mutants=[
        Mutant("keys in the place of values", answers.keys_for_values, LOOPS, "Cached and full runs agree with each other, so only an independent answer shows it."),
        Mutant("a token cannot see itself", answers.blind_to_itself, PAST, "The mask starts one place too early: row t must see key t."),
        Mutant("masked after the softmax", answers.masked_too_late, FUTURE, "The weights that are left no longer sum to 1: later tokens still took their share."),
        Mutant("no scale", answers.no_scale, SCALE, "Text still comes out; it is only worse."),
        Mutant("no mask", answers.no_mask, FUTURE, "Every row sees the future, and past K and V change with each new token."),
        Mutant("mask forgets the offset", answers.square_mask, OFFSET, "A new token's single row becomes row 0, which sees one key only (a bug reported for gpt-fast, #233)."),
        Mutant("heads dealt round", answers.heads_dealt_round, GROUPS, "np.tile gives h % K. Neighbouring heads share: np.repeat."),
        Mutant("exp without the maximum", answers.overflows, LARGE, "One large score makes infinity, then NaN."),
        Mutant("maximum before the mask", answers.maximum_before_the_mask, MASK, "A hidden score that is 1,000 larger pushes every visible one to exp(-1000), which is 0, and 0 / 0 is NaN."),
        Mutant("subtracts the first score", answers.subtracts_the_first_score, LARGE, "Any number may be subtracted, but only the largest keeps exp from overflowing."),
        Mutant("clips the scores", answers.clips_the_scores, LARGE, "800 and 801 both become 700, and their weights equal."),
        Mutant("-1,000 for minus infinity", answers.mask_of(-1e3), MASK, "Scores below -1,000 exist, and then the hidden key is the largest."),
        Mutant("a window of five", answers.window_of_five, PAST, "Sliding windows exist, in other models. Here every earlier token counts."),
        Mutant("heads dealt round when there are many", answers.many_heads_dealt_round, GROUPS, "Right for the small shapes of a first test, wrong for those of a model."),
        Mutant("float32 when there are many keys", answers.float32_for_many_keys, DIGITS, "A short cut for long inputs costs half the digits."),
        Mutant("no offset", answers.no_offset, OFFSET, "The argument is there and nobody reads it."),
        Mutant("one row sees every key", answers.one_row_unmasked, OFFSET, "A single row needs no mask only if no spare keys lie behind it."),
        Mutant("scale of 1 at most", answers.scale_of_one_at_most, SCALE, "The scale is the caller's affair."),
        Mutant("offset under another name", answers.offset_renamed, OFFSET, "Callers write offset=3; a parameter's name is part of the function."),
        Mutant("one buffer for all results", answers.OneBuffer(), LOOPS, "The second call writes into the array that the first caller still holds."),
        Mutant("multiplies scores by a mask of 0 and 1", answers.mask_of(0.0), FUTURE, "A score of 0 is a score like any other: exp(0) is 1. Hidden means minus infinity."),
        Mutant("-1e4 for minus infinity", answers.mask_of(-1e4), MASK, "Scores below -10,000 exist, and then the hidden key is the largest."),
        Mutant("-1e9 for minus infinity", answers.mask_of(-1e9), MASK, "The same with a larger number: only minus infinity is below every score."),
        Mutant("subtracts 10,000 from hidden scores", answers.adds_to_the_scores, MASK, "A hidden score that is 10,000 above the others still wins."),
        Mutant("offset from the shapes", answers.offset_from_the_shapes, OFFSET, "S - T is the offset only if no spare keys lie behind the last row's. The argument says where the rows stand."),
        Mutant("float32 inside", answers.float32_inside, DIGITS, "Rounded to 24 bits on the way: six or seven digits are right. Too few for an oracle."),
        Mutant("scales q in place", answers.scales_in_place, INPUTS_UNCHANGED, "`q *= scale` writes into the caller's array."),
    ],
    alternatives=[answers.by_rows, answers.by_arrays],
)  # fmt: skip
