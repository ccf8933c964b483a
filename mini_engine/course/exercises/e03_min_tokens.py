"""Lesson 03, the threshold: how many tokens make a product with a R x C weight compute bound, and when none do."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from mini_engine.course.exercise import Exercise, Mutant, Prediction, Property
from mini_engine.course.exercises import answers03_min_tokens as answers
from mini_engine.course.exercises.answers03_min_tokens import intensity
from mini_engine.course.expect import expect, expect_equal, show
from mini_engine.roofline import min_tokens_compute_bound

MinTokens = Callable[[int, int, Fraction], "int | None"]
H100 = Fraction(19780, 67)  # 989e12 / 3.35e12


def min_tokens(R: int, C: int, ridge: Fraction) -> int | None:
    """`mini_engine.roofline.min_tokens_compute_bound` for 2-byte numbers."""
    return min_tokens_compute_bound(R, C, ridge)


def _say(R: int, C: int, ridge: Fraction) -> str:
    return f"R={R}, C={C}, ridge={ridge if ridge.denominator < 10 else f'{float(ridge):.2f}'}"


def _tokens(candidate: MinTokens, R: int, C: int, ridge: Fraction) -> int:
    got: Any = candidate(R, C, ridge)
    whole = isinstance(got, (int, np.integer)) and not isinstance(got, bool)
    right = min_tokens(R, C, ridge)
    expect(whole, f"{_say(R, C, ridge)}: the number of tokens", expected=f"{right} (an int)", got=_kind(got))
    return int(got)


def _tokens_bring(M: int) -> str:
    return "1 token brings" if M == 1 else f"{M:,} tokens bring"


def _kind(got: Any) -> str:
    return "None" if got is None else f"{show(got)} ({type(got).__name__})"


def _never(candidate: MinTokens) -> None:
    # The limits are 2, 4/3, 8, 256 and 295 FLOP/B.
    for R, C, ridge in ((4, 4, 3), (2, 4, 2), (16, 16, 9), (512, 512, H100), (590, 590, H100), (512, 8192, 500)):
        expect_equal(candidate(R, C, Fraction(ridge)), None, f"{_say(R, C, Fraction(ridge))}, however many tokens")


def _limit_itself(candidate: MinTokens) -> None:
    for R, C in ((4, 4), (16, 16), (21, 24)):
        ridge = Fraction(R * C, R + C)
        words = f"{_say(R, C, ridge)}: the intensity comes close to {ridge} and stays below"
        expect_equal(candidate(R, C, ridge), None, words)


SQUARE = [(8, 8, Fraction(2)), (64, 64, Fraction(10)), (4096, 4096, H100), (8192, 8192, H100), (600, 600, H100)]
# The quotient is whole, or nearly: floats come out one too many, or one too few.
DELICATE = [
    (24, 24, Fraction(3)),
    (3, 3, Fraction(10, 7)),
    (2, 4, Fraction(9, 7)),
    (2, 4, Fraction(8, 7)),
    (192, 192, Fraction(24)),
    (7, 9, Fraction(63, 17)),
    (26, 32, Fraction(43, 3)),
    (4, 12, Fraction(18, 7)),
]
FLAT = [(4, 12, Fraction(2)), (8192, 28672, H100), (28672, 8192, H100), (8192, 10240, H100), (8192, 1024, H100)]


def _an_int(candidate: MinTokens) -> None:
    for case in SQUARE[:2]:
        _tokens(candidate, *case)


def _reaches(cases: list[tuple[int, int, Fraction]]) -> Callable[[MinTokens], None]:
    def run(candidate: MinTokens) -> None:
        for R, C, ridge in cases:
            M = _tokens(candidate, R, C, ridge)
            expect(M >= 1, f"{_say(R, C, ridge)}: the number of tokens", expected="1 or more", got=show(M))
            reached = intensity(M, R, C)
            words = f"{_say(R, C, ridge)}: {_tokens_bring(M)} {float(reached):.3f} FLOP/B"
            expect(reached >= ridge, words, expected=f"{float(ridge):.3f} or more", got=f"{float(reached):.3f}")

    return run


def _smallest(candidate: MinTokens) -> None:
    for R, C, ridge in SQUARE + FLAT:
        M = _tokens(candidate, R, C, ridge)
        if M > 1:
            reached = intensity(M - 1, R, C)
            words = f"{_say(R, C, ridge)}, answer {M}: one token fewer brings {float(reached):.3f} FLOP/B"
            expect(reached < ridge, words, expected=f"below {float(ridge):.3f}", got=f"{float(reached):.3f}")


def _exact(candidate: MinTokens) -> None:
    for R, C, ridge in DELICATE:
        got, right = _tokens(candidate, R, C, ridge), min_tokens(R, C, ridge)
        words = f"{_say(R, C, ridge)}: {_tokens_bring(got)} {float(intensity(max(got, 0), R, C)):.6f} FLOP/B, the ridge is {float(ridge):.6f}"
        expect_equal(got, right, words)


NEVER, EDGE, INT = "small weights never get there", "the limit is never reached", "the result is an int"
EXACT = "whole quotients come out exactly"
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
        Property(EXACT, _exact),
    ],
    mutants=[
        Mutant("the ridge itself", answers.the_limit, REACHES, "The rows and the result are read and written too, so 296 are too few."),
        Mutant("rounded down", answers.rounds_down, REACHES, "Half a token short is short: round up."),
        Mutant("one more to be safe", answers.one_more, SMALLEST, "Where the quotient is whole, it is the answer."),
        Mutant("square weights only", answers.square_only, ANY_SHAPE, "Both R and C count."),
        Mutant("always some number", answers.always_some, NEVER, "A narrow weight moves rows and results faster than it computes."),
        Mutant("forgets the result", answers.forgets_output, REACHES, "The result is written: M C more numbers."),
        Mutant("limit d for d / 2", answers.limit_is_d, NEVER, "Rows and results both count, so the limit is d / 2."),
        Mutant("reaches its limit", answers.limit_included, EDGE, "No number of tokens gives the limit itself."),
        Mutant("a float", answers.a_float, INT, "Tokens are whole."),
        Mutant("floats, by reciprocals", answers.float_reciprocals, EXACT, "1 / R is a float, so all of it is. Fraction(1, R) is exact."),
        Mutant("floats, by a quotient", answers.float_quotient, EXACT, "A float a little above a whole number is rounded up."),
        Mutant("floats, and a little off", answers.float_and_a_little_off, EXACT, "A small correction is right for small quotients only."),
        Mutant("the ridge as a float", answers.float_ridge, EXACT, "float(ridge) may lie a little above what it stands for."),
        Mutant("the limit in floats", answers.float_limit, EDGE, "float(ridge) may lie a little below the limit that it equals."),
        Mutant("a loop over floats", answers.float_loop, EXACT, "An int over an int is a float, which may lie below the ridge that it should equal."),
    ],
    alternatives=[answers.by_counting, answers.by_reciprocals],
)  # fmt: skip

THRESHOLD = Prediction(
    "03.threshold",
    "A weight is 8,192 x 8,192 in bf16, the ridge is 295.2. From how many tokens on is the product compute bound?",
    min_tokens(8192, 8192, H100) or 0,
    "tokens",
    mistakes=[
        (0, "There is such a number: with many tokens the intensity nears d / 2 = 4,096, far above the ridge."),
        (295, "That is the limit for an endlessly large weight. At 295 tokens this one brings 275.2 FLOP/B."),
        (296, "That takes the limit, one FLOP per byte and token. Rows and results are bytes too."),
        (320, "One too many. 318.16 is where the curve meets the ridge, and 319 is the first whole number above."),
        (318, "Close. 318.16 is where the curve meets the ridge, and tokens are whole."),
        (591, "That is the smallest width that can be compute bound at all, not the number of tokens."),
        (8192, "A square product of that size is far above the ridge. Fewer tokens will do."),
        (4096, "That is the limit d / 2 of the intensity, not a number of tokens."),
    ],
    because="M d / (2 M + d) = 295.2 gives M = 318.16, so 319.",
    rtol=0,
)
