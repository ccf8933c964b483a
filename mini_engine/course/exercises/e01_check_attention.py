"""Lesson 01, break it: the learner writes a test of causal attention, and it is tried on right and on wrong ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mini_engine.course.bug_bank import Bug, BugBank, BugHunt
from mini_engine.course.exercise import Mutant
from mini_engine.course.exercises.answers01_attention import by_arrays, by_rows
from mini_engine.course.exercises.attention_cases import slow_attention
from mini_engine.course.exercises.e01_attention import CAUSAL_ATTENTION, Array

Attention = Callable[..., Array]
Test = Callable[[Attention], None]

RIGHT = {
    "the engine's own": CAUSAL_ATTENTION.reference,
    "one row at a time, without a mask": by_rows,
    "whole arrays, with a mask": by_arrays,
}
ANNOUNCED = "mask forgets the offset"
BANK = (
    "keys in the place of values", "a token cannot see itself", "masked after the softmax", "no scale", "no mask",
    ANNOUNCED, "heads dealt round", "exp without the maximum",
)  # fmt: skip
WRONG = {m.name: m.function for name in BANK for m in CAUSAL_ATTENTION.mutants if m.name == name}


def check_attention(attention: Attention) -> None:
    """Raise AssertionError unless `attention` is causal attention: compare it with the loops, on the shapes that matter."""
    rng = np.random.default_rng(1)
    for rows, keys, heads, kv_heads in [(1, 1, 1, 1), (4, 4, 1, 1), (2, 6, 4, 2)]:
        q = 30 * rng.normal(size=(rows, heads, 4))
        k, v = rng.normal(size=(2, keys, kv_heads, 4))
        for gain in (0.01, 1.0, 50.0):
            got = attention(gain * q, k, v, 0.5, keys - rows)
            expected = slow_attention(gain * q, k, v, 0.5, keys - rows)
            assert got.shape == expected.shape
            assert np.allclose(got, expected, rtol=0, atol=1e-9)


def _hand_out(function: Attention) -> Attention:
    """A function made for one call of the test, so it cannot know a bug by its name or by which object it is."""

    def attention(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
        return function(q, k, v, scale, offset)

    return attention


ATTENTION_BUGS = BugBank("attention", RIGHT, {name: Bug(function) for name, function in WRONG.items()}, _hand_out)


def _one_row_at_a_time(attention: Attention) -> None:
    """Another right test: each row by itself, against attention that is given only the keys it may see."""
    rng = np.random.default_rng(2)
    q = rng.normal(size=(7, 6, 8)) * np.array([0.1, 1.0, 3000.0]).repeat(2)[:, None]
    k, v = rng.normal(size=(2, 9, 3, 8))
    whole = attention(q, k, v, 0.3, 2)
    for t in range(7):
        row = by_rows(q[t : t + 1], k[: t + 3], v[: t + 3], 0.3, t + 2)[0]
        assert np.abs(whole[t] - row).max() < 1e-9


def _attention_with_loops(q: Array, k: Array, v: Array, scale: float, offset: int = 0) -> Array:
    """The judge of the lesson, as it stands there: slow."""
    (T, H, D), K = q.shape, k.shape[1]
    out = np.zeros((T, H, D))
    for t in range(T):
        for h in range(H):
            g = h // (H // K)
            seen = range(offset + t + 1)
            scores = [scale * sum(q[t, h, d] * k[s, g, d] for d in range(D)) for s in seen]
            powers = [np.exp(score - max(scores)) for score in scores]
            for s in seen:
                out[t, h] += powers[s] / sum(powers) * v[s, g]
    return out


def _with_the_loops_of_the_lesson(attention: Attention) -> None:
    """And on the shapes of a model: tiny-gqa's heads."""
    rng = np.random.default_rng(3)
    q = rng.normal(size=(8, 8, 32))
    k, v = rng.normal(size=(2, 16, 2, 32))
    for size in (1, 2000):
        expected = _attention_with_loops(size * q, k, v, 0.2, 8)
        assert np.allclose(attention(size * q, k, v, 0.2, 8), expected, rtol=0, atol=1e-9)


def _decode_against_prefill(attention: Attention) -> None:
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(3, 6, 2, 4))
    whole = attention(q, k, v, 0.5, 0)
    for t in range(6):
        one = attention(q[t : t + 1], k[: t + 1], v[: t + 1], 0.5, t)
        assert np.allclose(one, whole[t : t + 1])


def _whole_prompts_only(attention: Attention) -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 5):
        q = 2000 * rng.normal(size=(size, 4, 4))
        k, v = rng.normal(size=(2, size, 2, 4))
        assert np.allclose(attention(q, k, v, 0.5, 0), slow_attention(q, k, v, 0.5), rtol=0, atol=1e-9)


def _shape_only(attention: Attention) -> None:
    q, k, v = np.ones((1, 2, 4)), np.ones((3, 2, 4)), np.ones((3, 2, 4))
    assert attention(q, k, v, 0.5, 2).shape == (1, 2, 4)


def _all_ones(attention: Attention) -> None:
    q, k, v = np.ones((2, 4, 4)), np.ones((5, 2, 4)), np.ones((5, 2, 4))
    assert np.allclose(attention(q, k, v, 0.5, 3), slow_attention(q, k, v, 0.5, 3))


def _to_the_last_bit(attention: Attention) -> None:
    rng = np.random.default_rng(0)
    q = rng.normal(size=(8, 4, 16))
    k, v = rng.normal(size=(2, 32, 2, 16))
    assert np.array_equal(attention(q, k, v, 0.25, 24), slow_attention(q, k, v, 0.25, 24))


def _raises_value_error(attention: Attention) -> None:
    try:
        check_attention(attention)
    except AssertionError:
        raise ValueError("wrong attention") from None


def _knows_the_names(attention: Attention) -> None:
    assert attention.__name__ not in {function.__name__ for function in WRONG.values()}


def _knows_the_bank(attention: Attention) -> None:
    assert attention not in WRONG.values()


class FromTheFourthCall:
    """Quiet three times, for the three right ones."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, attention: Attention) -> None:
        self.calls += 1
        assert self.calls <= len(RIGHT)


ACCEPTS = "right answers pass"
OFFSET = "it catches the mask that forgets the offset"
REST = "it catches every bug in the bank"

TEST_ATTENTION = BugHunt(
    id="01.check_attention",
    title="A test that bugs cannot pass",
    reference=check_attention,
    budget=20_000_000,  # the lesson's own loops on tiny-gqa's heads, for each of the functions above
    bank=ATTENTION_BUGS,
    properties=ATTENTION_BUGS.properties(ACCEPTS, REST, ANNOUNCED, OFFSET),
    mutants=[
        Mutant(
            "asks for the last bit", _to_the_last_bit, ACCEPTS, "Two right orders of adding differ in the last bit."
        ),
        Mutant("whole prompts only", _whole_prompts_only, OFFSET, "With offset 0 there is no offset to forget."),
        Mutant("looks at the shape only", _shape_only, OFFSET, "Wrong numbers have the right shape too."),
        Mutant("all inputs equal", _all_ones, OFFSET, "When all values are 1, every average of them is 1."),
        Mutant(
            "compares the function with itself",
            _decode_against_prefill,
            REST,
            "One row at a time against all rows at once: a wrong scale is wrong in both, so both agree.",
        ),
        Mutant(
            "raises ValueError", _raises_value_error, OFFSET, "A test says no by AssertionError; the rest is a crash."
        ),
        Mutant("knows the bugs by name", _knows_the_names, OFFSET, "A bug has no name yet when a test has to find it."),
        Mutant("knows the bank", _knows_the_bank, OFFSET, "The next bug will not be in the list."),
        Mutant("counts its calls", FromTheFourthCall(), REST, "What it says has nothing to do with what it is given."),
    ],
    alternatives=[_with_the_loops_of_the_lesson, _one_row_at_a_time],
)
