"""Lesson 11, parts put together by their log-sum-exps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers11_combine as answers
from mini_engine.course.expect import expect_close
from mini_engine.course.kernel_watch import launched, numbers
from mini_engine.kernels import combine as combine_in_triton
from mini_engine.kernels import kernel_device

INFINITY = float("inf")


def combine(parts: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """The engine's kernel: parts[N, B, H, D] and lse[N, B, H] in base 2 -> [B, H, D]."""
    return combine_in_triton(parts.contiguous(), lse.contiguous(), torch.empty_like(parts[0]))


def _expected(parts: np.ndarray, lse: np.ndarray) -> np.ndarray:
    """In Python's own integers and float64: powers of 2 relative to the largest, parts of weight 0 not looked at."""
    N, B, H, D = parts.shape
    out = np.zeros((B, H, D))
    for b in range(B):
        for h in range(H):
            alive = [n for n in range(N) if lse[n, b, h] > -INFINITY]
            most = max((lse[n, b, h] for n in alive), default=0.0)
            total = sum(2.0 ** (lse[n, b, h] - most) for n in alive)
            for n in alive:
                out[b, h] += 2.0 ** (lse[n, b, h] - most) / total * parts[n, b, h]
    return out


def _joins(*cases: tuple[str, Any], rtol: float = 7e-7) -> Callable[[Any], None]:
    """Parts with these log-sum-exps: a number a part, or a table [B, H] a part. What an empty part holds is NaN."""

    def run(candidate: Any) -> None:
        for words, given in cases:
            lse = np.array(given, np.float32)
            lse = lse.reshape(len(lse), *(lse.shape[1:] or (1, 1)))
            parts = np.random.default_rng(lse.size).normal(size=(*lse.shape, 3)).astype(np.float32)
            parts[lse == -INFINITY] = np.nan
            case = f"parts {parts.shape}: {words}"
            device = kernel_device()
            got = launched(candidate, torch.from_numpy(parts).to(device), torch.from_numpy(lse).to(device))
            want = _expected(parts.astype(float), lse.astype(float))
            expect_close(numbers(got, want.shape, case), want, case, rtol=rtol, same_dtype=False)

    return run


HEADS = "lse 3 and 5 in head 0, 6 and 1 in head 1", [[[3.0, 6.0]], [[5.0, 1.0]]]
SEQUENCES = "lse 3 and 5 in sequence 0, 6 and 1 in sequence 1", [[[3.0], [6.0]], [[5.0], [1.0]]]
FAR_APART = "lse 1 and 2 in head 0, 1001 and 1000 in head 1", [[[1.0, 1001.0]], [[2.0, 1000.0]]]
ONE, WEIGHED, OWN, LARGE, EMPTY, NOTHING = (
    "one part comes out as it is",
    "a part counts by 2 to the power of its log-sum-exp",
    "each sequence and head has weights of its own",
    "large log-sum-exps do not overflow, small ones do not vanish",
    "an empty part counts for nothing, whatever it holds",
    "without any token the result is 0",
)

COMBINE = Exercise(
    id="11.combine",
    title="Put the parts together",
    reference=combine,
    seconds=60.0,
    properties=[
        Property(ONE, _joins(("lse 3", [3.0]), ("lse -2", [-2.0]))),
        Property(WEIGHED, _joins(("lse 4 and 4", [4.0, 4.0]), ("lse 3 and 5", [3.0, 5.0]), ("lse -1, 0.5 and 2", [-1.0, 0.5, 2.0]))),
        Property(OWN, _joins(HEADS, SEQUENCES)),
        Property(LARGE, _joins(("lse 2000 and 2001", [2000.0, 2001.0]), ("lse -2000 and -2001", [-2000.0, -2001.0]), FAR_APART, rtol=1e-3)),  # a log-sum-exp of 2000 has 1e-4 of its own
        Property(EMPTY, _joins(("lse 3 and -inf, where the empty part holds NaN", [3.0, -INFINITY]), ("lse -inf, -30 and -31, where the empty part holds NaN", [-INFINITY, -30.0, -31.0]))),
        Property(NOTHING, _joins(("lse -inf and -inf, where both parts hold NaN", [-INFINITY, -INFINITY]))),
    ],
    mutants=[
        Mutant("not divided", answers.not_divided, ONE, "The powers of 2 are weights once they are divided by their sum."),
        Mutant("a little more than the sum", answers.a_little_more, ONE, "The sum is 1 at least, beside the largest: nothing to be afraid of."),
        Mutant("the mean", answers.mean_of_parts, WEIGHED, "A part with larger scores, or with more tokens, counts more: the rescale is missing."),
        Mutant("powers of e", answers.powers_of_e, WEIGHED, "The log-sum-exps are in base 2."),
        Mutant("by the log-sum-exps themselves", answers.linear_weights, WEIGHED, "They are logarithms. 2 to their power is what counts."),
        Mutant("the first head for all", answers.first_head_for_all, OWN, "Each head has scores of its own."),
        Mutant("the first sequence for all", answers.first_sequence_for_all, OWN, "Each sequence has tokens of its own."),
        Mutant("no maximum", answers.no_maximum, LARGE, "2^2000 is infinite, and 2^-2000 is 0."),
        Mutant("one maximum for all", answers.one_maximum, LARGE, "Heads far below the largest become 0 / 0."),
        Mutant("0 times NaN", answers.reads_empty_parts, EMPTY, "Nobody has written the empty part. A weight of 0 does not hide a NaN."),
        Mutant("-20 for minus infinity", answers.twenty_below, EMPTY, "Beside a part with smaller scores that counts."),
        Mutant("0 / 0", answers.nan_without_tokens, NOTHING, "Minus infinity minus minus infinity is NaN."),
    ],
    alternatives=[answers.combine, answers.part_by_part, answers.in_powers_of_e],
)  # fmt: skip
