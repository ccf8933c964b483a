"""Lesson 03, the threshold: how many tokens make a product with a K x N weight compute bound, and when none do."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from mini_engine.course.exercise import Exercise, Mutant, Prediction, Property
from mini_engine.course.expect import expect, expect_equal, show
from mini_engine.roofline import min_tokens_compute_bound

MinTokens = Callable[[int, int, Fraction], "int | None"]
H100 = Fraction(19780, 67)  # 989e12 / 3.35e12


def min_tokens(K: int, N: int, ridge: Fraction) -> int | None:
    """`mini_engine.roofline.min_tokens_compute_bound` for 2-byte numbers."""
    return min_tokens_compute_bound(K, N, ridge)


def intensity(M: int, K: int, N: int) -> Fraction:
    """FLOP per byte, counted from the definition: the oracle."""
    return Fraction(2 * M * K * N, 2 * (M * K) + 2 * (K * N) + 2 * (M * N))


def _say(K: int, N: int, ridge: Fraction) -> str:
    return f"K={K}, N={N}, ridge={ridge if ridge.denominator < 10 else f'{float(ridge):.2f}'}"


def _tokens(candidate: MinTokens, K: int, N: int, ridge: Fraction) -> int:
    got: Any = candidate(K, N, ridge)
    whole = isinstance(got, (int, np.integer)) and not isinstance(got, bool)
    expect(whole, f"{_say(K, N, ridge)}: the type of the result", expected="int", got=_kind(got))
    return int(got)


def _kind(got: Any) -> str:
    return f"{type(got).__name__}: {show(got)}"


def _never(candidate: MinTokens) -> None:
    # The limits are 2, 4/3, 8, 256 and 295 FLOP/B.
    for K, N, ridge in ((4, 4, 3), (2, 4, 2), (16, 16, 9), (512, 512, H100), (590, 590, H100), (512, 8192, 500)):
        expect_equal(candidate(K, N, Fraction(ridge)), None, f"{_say(K, N, Fraction(ridge))}, however many tokens")


def _limit_itself(candidate: MinTokens) -> None:
    for K, ridge in ((4, 2), (16, 8)):
        words = f"{_say(K, K, Fraction(ridge))}: the intensity comes close to {ridge} and stays below"
        expect_equal(candidate(K, K, Fraction(ridge)), None, words)


SQUARE = [(8, 8, Fraction(2)), (64, 64, Fraction(10)), (4096, 4096, H100), (8192, 8192, H100), (600, 600, H100)]
FLAT = [(4, 12, Fraction(2)), (8192, 28672, H100), (28672, 8192, H100), (8192, 10240, H100), (8192, 1024, H100)]


def _an_int(candidate: MinTokens) -> None:
    for case in SQUARE[:2]:
        _tokens(candidate, *case)


def _reaches(cases: list[tuple[int, int, Fraction]]) -> Callable[[MinTokens], None]:
    def run(candidate: MinTokens) -> None:
        for K, N, ridge in cases:
            M = _tokens(candidate, K, N, ridge)
            expect(M >= 1, f"{_say(K, N, ridge)}: the number of tokens", expected="1 or more", got=show(M))
            reached = intensity(M, K, N)
            words = f"{_say(K, N, ridge)}: {M} tokens bring {float(reached):.3f} FLOP/B"
            expect(reached >= ridge, words, expected=f"{float(ridge):.3f} or more", got=f"{float(reached):.3f}")

    return run


def _smallest(candidate: MinTokens) -> None:
    for K, N, ridge in SQUARE + FLAT:
        M = _tokens(candidate, K, N, ridge)
        if M > 1:
            reached = intensity(M - 1, K, N)
            words = f"{_say(K, N, ridge)}, answer {M}: one token fewer brings {float(reached):.3f} FLOP/B"
            expect(reached < ridge, words, expected=f"below {float(ridge):.3f}", got=f"{float(reached):.3f}")


def _can(K: int, N: int, ridge: Fraction) -> bool:
    return Fraction(K * N, K + N) > ridge


def _by_counting(K: int, N: int, ridge: Fraction) -> int | None:
    if not _can(K, N, ridge):
        return None
    M = 1
    while intensity(M, K, N) < ridge:
        M += 1
    return M


def _by_formula(K: int, N: int, ridge: Fraction) -> int | None:
    room = 1 - float(ridge) * (1 / K + 1 / N)
    return math.ceil(float(ridge) / room - 1e-9) if room > 1e-12 else None


def _the_limit(K: int, N: int, ridge: Fraction) -> int | None:
    return math.ceil(ridge) if _can(K, N, ridge) else None


def _rounds_down(K: int, N: int, ridge: Fraction) -> int | None:
    gain = K * N - ridge * (K + N)
    return max(1, math.floor(ridge * K * N / gain)) if gain > 0 else None


def _one_more(K: int, N: int, ridge: Fraction) -> int | None:
    gain = K * N - ridge * (K + N)
    return math.floor(ridge * K * N / gain) + 1 if gain > 0 else None


def _square_only(K: int, N: int, ridge: Fraction) -> int | None:
    if not _can(K, N, ridge):
        return None
    side = max(K, N)
    return math.ceil(ridge * side / (side - 2 * ridge))


def _always_some(K: int, N: int, ridge: Fraction) -> int:
    gain = K * N - ridge * (K + N)
    return math.ceil(ridge * K * N / abs(gain)) if gain else 10**9


def _forgets_output(K: int, N: int, ridge: Fraction) -> int | None:
    return math.ceil(ridge * K * N / (K * N - ridge * K)) if _can(K, N, ridge) else None


def _limit_is_d(K: int, N: int, ridge: Fraction) -> int | None:
    if min(K, N) <= ridge:
        return None
    gain = K * N - ridge * (K + N)
    return math.ceil(ridge * K * N / gain) if gain > 0 else 0


def _limit_included(K: int, N: int, ridge: Fraction) -> int | None:
    gain = K * N - ridge * (K + N)
    if gain < 0:
        return None
    return math.ceil(ridge * K * N / gain) if gain else 10**12


def _a_float(K: int, N: int, ridge: Fraction) -> float | None:
    gain = K * N - ridge * (K + N)
    return float(ridge * K * N / gain) if gain > 0 else None


NEVER, EDGE, INT = "small weights never get there", "the limit is never reached", "the result is an int"
REACHES, ANY_SHAPE, SMALLEST = (
    "that many tokens reach the ridge",
    "weights that are not square reach it too",
    "one token fewer does not",
)

MIN_TOKENS = Exercise(
    id="03.min_tokens",
    title="Where a product becomes compute bound",
    reference=min_tokens,
    properties=[
        Property(NEVER, _never),
        Property(EDGE, _limit_itself),
        Property(INT, _an_int),
        Property(REACHES, _reaches(SQUARE)),
        Property(ANY_SHAPE, _reaches(FLAT)),
        Property(SMALLEST, _smallest),
    ],
    mutants=[
        Mutant("the ridge itself", _the_limit, REACHES, "The rows and the result are read and written too, so 296 are too few."),
        Mutant("rounded down", _rounds_down, REACHES, "Half a token short is short: round up."),
        Mutant("one more to be safe", _one_more, SMALLEST, "Where the quotient is whole, it is the answer."),
        Mutant("square weights only", _square_only, ANY_SHAPE, "Both K and N count."),
        Mutant("always some number", _always_some, NEVER, "A narrow weight moves rows and results faster than it computes."),
        Mutant("forgets the result", _forgets_output, REACHES, "The result is written: M N more numbers."),
        Mutant("limit d for d / 2", _limit_is_d, NEVER, "Rows and results both count, so the limit is d / 2."),
        Mutant("reaches its limit", _limit_included, EDGE, "No number of tokens gives the limit itself."),
        Mutant("a float", _a_float, INT, "Tokens are whole."),
    ],
    alternatives=[_by_counting, _by_formula],
)  # fmt: skip

THRESHOLD = Prediction(
    "03.threshold",
    "A weight is 8,192 x 8,192 in bf16, the ridge is 295.2. From how many tokens on is the product compute bound?",
    min_tokens(8192, 8192, H100) or 0,
    "tokens",
    mistakes=[
        (295, "That is the limit for an endlessly large weight. At 295 tokens this one brings 275.2 FLOP/B."),
        (296, "That takes the limit, one FLOP per byte and token. Rows and results are bytes too."),
        (318, "Close. 318.16 is where the curve meets the ridge, and tokens are whole."),
        (591, "That is the smallest width that can be compute bound at all, not the number of tokens."),
        (8192, "A square product of that size is far above the ridge. Fewer tokens will do."),
        (4096, "That is the limit d / 2 of the intensity, not a number of tokens."),
    ],
    because="M d / (2 M + d) = 295.2 gives M = 318.16, so 319.",
    rtol=0,
)
