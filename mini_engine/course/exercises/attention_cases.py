"""What every kind of causal attention has to do, whatever its cache holds: the properties that lessons 01 and 04 share.

They set the scores by hand. An exercise says how its function is made to score so: `Scored(scores[T, H, S], values[S],
offset) -> [T, H]` attends over tokens whose one-number values are given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mini_engine.course.expect import expect, expect_close, fail

Array = np.ndarray
Scored = Callable[[Array, Array, int], Array]


def slow_softmax(scores: Sequence[float]) -> list[float]:
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


def large_scores(attend: Scored) -> None:
    """Softmax with the maximum of each row of each head, and of nothing more."""
    values = np.array([1.0, 2.0, 5.0])
    alone = ([800, 801, 799], [0, 900, 901], [-900, -902, -901], [5000, 0, 5001], [-800, 0, 800])
    both = ([800, 801, 799], [-900, -902, -901])
    cases = [([[row]], f"one row that scores {row}") for row in alone]
    cases += [([list(both)], f"one row, two heads, which score {both[0]} and {both[1]}")]
    cases += [([[row] for row in both], f"two rows, which score {both[0]} and {both[1]}")]
    for rows, words in cases:
        scores = np.array(rows, dtype=np.float64)
        offset = 3 - len(rows)
        seen = [[head[: offset + t + 1] for head in row] for t, row in enumerate(rows)]
        want = np.array([[np.dot(slow_softmax(head), values[: len(head)]) for head in row] for row in seen])
        case = f"{words}, offset {offset}, values {values.tolist()}"
        expect_close(attend(scores, values, offset), want, case, rtol=1e-6, same_dtype=False)


def mask_holds(attend: Scored) -> None:
    """A hidden score counts for nothing, neither as a score nor as the maximum, even when it is far above all others."""
    for size in (10**5, 10**12):
        scores = np.array([[[-size, size]], [[-size, size]]], dtype=np.float64)
        got = attend(scores, np.array([3.0, 5.0]), 0)
        case = f"2 tokens, offset 0; both rows score {-size:,} with token 0 and {size:,} with token 1, which row 0 may not see"
        expect_close(got, np.array([[3.0], [5.0]]), case, rtol=1e-6, same_dtype=False)


def tokens_seen(attend: Callable[[int | None], Array], tokens: int, case: str) -> list[list[int]]:
    """Per row of the result, the tokens whose change changes it: `attend(s)` has the cache of token s changed, `attend(None)` none."""
    before = attend(None).copy()
    for row, numbers in enumerate(before):
        if not np.isfinite(numbers).all():
            fail(f"{case}: row {row}. Does it see any token at all?", expected="finite numbers", got=numbers)
    after = [attend(token) for token in range(tokens)]
    return [
        [s for s in range(tokens) if not np.allclose(before[row], after[s][row], rtol=0, atol=1e-9)]
        for row in range(len(before))
    ]


def offset_by_name_and_left_out(candidate: Callable[..., Array], arguments: tuple[Any, ...], case: str) -> None:
    """`offset=1` is what 1 in its place is, and without it the offset is 0."""
    for words, more, place in (
        ("called with offset=1, by name", {"offset": 1}, 1),
        ("called without an offset, which then is 0", {}, 0),
    ):
        want = candidate(*arguments, place).copy()
        try:
            got = candidate(*arguments, **more)
        except TypeError as error:
            fail(f"{case}: {words}", expected="the same result as by place", got=f"TypeError: {error}")
        expect_close(got, want, f"{case}: {words}", same_dtype=False)


def every_digit(got: Array, want: Array, case: str, rtol: float) -> None:
    """Float64 on the whole way. A property of its own, so that the others can stay at six digits and name another slip."""
    bound, error = rtol * np.abs(want).max(), np.abs(got - want).max()
    right = got.dtype == np.float64 and bool(error <= bound)
    expect(
        right,
        f"{case}: right to six digits, and not beyond. Is a step done in float32?",
        expected=f"float64, off by {bound:.1e} at most",
        got=f"{got.dtype}, off by {error:.1e}",
    )
