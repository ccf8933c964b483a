"""Lesson 11, the number of heads from which MLA decode is compute bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from mini_engine.catalog import get_gpu
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers11_intensity as answers
from mini_engine.course.exercises.whole_numbers import expect_whole
from mini_engine.course.expect import expect_equal
from mini_engine.roofline import mla_decode_intensity, ridge_point


def heads_at_ridge(d_c: int, d_r: int, ridge: Fraction, s_q: int = 1) -> int:
    """The smallest number of heads at which MLA decode in 2-byte numbers reaches `ridge` FLOP/B, contexts being long."""
    return math.ceil(ridge / mla_decode_intensity(1, d_c, d_r, s_q=s_q))


def _finds(*cases: Sequence[Any], same: Callable[[Any, int, str], None] = expect_whole) -> Callable[[Any], None]:
    def run(candidate: Any) -> None:
        for d_c, d_r, ridge, s_q in cases:
            exact = Fraction(ridge)
            words = f"{float(exact):.6g}" if exact.denominator > 9 else str(exact)
            case = (
                f"latents of {d_c}, rope keys of {d_r}, ridge {words}, {s_q} query {'token' if s_q == 1 else 'tokens'}"
            )
            given = (d_c, d_r, exact) if s_q == 1 else (d_c, d_r, exact, s_q)
            same(candidate(*given), answers.by_counting(d_c, d_r, exact, s_q), case)

    return run


RIDGES = [ridge_point(gpu.bf16_flops, gpu.memory_bandwidth) for gpu in map(get_gpu, ("h100-sxm", "h200-sxm"))]
LATENT, ROPE, WHOLE, QUERIES, EXACT = (
    "a latent serves the score and the sum",
    "a rope key serves the score only",
    "heads are whole: rounded up",
    "query tokens share the latents that were loaded",
    "a ridge that is met exactly is reached",
)

INTENSITY = Exercise(
    id="11.intensity",
    title="From how many heads on it is compute bound",
    reference=heads_at_ridge,
    properties=[
        Property(LATENT, _finds((4, 0, 10, 1), (64, 0, 100, 1))),
        Property(ROPE, _finds((4, 4, 6, 1), (512, 64, 17, 1), (512, 64, 170, 1))),
        Property(WHOLE, _finds((4, 4, 7, 1), (2, 2, "3.2", 1), (4, 4, Fraction(1, 9), 1), *((512, 64, r, 1) for r in RIDGES), same=expect_equal)),
        Property(QUERIES, _finds((4, 0, 40, 2), (512, 64, 170, 2), (512, 64, RIDGES[0], 2), (512, 64, RIDGES[0], 4))),
        Property(EXACT, _finds((48, 64, Fraction(330, 7), 3), (48, 64, Fraction(450, 7), 3), (192, 64, Fraction(63, 4), 3))),
    ],
    mutants=[
        Mutant("scores only", answers.scores_only, LATENT, "The latent is the value too: each of its numbers is multiplied once more."),
        Mutant("a latent for each use", answers.a_latent_for_each_use, LATENT, "It is loaded once and used twice."),
        Mutant("4 FLOPs a use", answers.four_flops, LATENT, "A product and a sum are 2 FLOPs, and a number has 2 bytes."),
        Mutant("one head to be safe", answers.one_more, LATENT, "Where the quotient is whole, it is the answer."),
        Mutant("2 for every number", answers.factor_of_two, ROPE, "The rope key is not in the weighted sum."),
        Mutant("rounded down", answers.rounds_down, WHOLE, "The last part of a head is missing then."),
        Mutant("rounded to the nearest", answers.to_the_nearest, WHOLE, "Below half a head is still not there."),
        Mutant("a part of a head", answers.a_quotient, WHOLE, "A head is there or not."),
        Mutant("a whole fraction", answers.a_whole_fraction, WHOLE, "It is the right number, and no int."),
        Mutant("one query token", answers.one_query, QUERIES, "Each query token does its work on the same bytes."),
        Mutant("more heads for more queries", answers.queries_multiply, QUERIES, "More queries are more work for a byte, so fewer heads will do."),
        Mutant("floats", answers.in_floats, EXACT, "A float may lie a little above the whole number that it stands for. Fractions do not."),
    ],
    alternatives=[answers.by_counting, answers.by_division],
)  # fmt: skip
