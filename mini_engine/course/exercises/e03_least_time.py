"""Lesson 03, two clocks: the least time of a piece of work, and how much of it the arithmetic units are busy."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from mini_engine.course.exercise import Exercise, Mutant, Prediction, Property
from mini_engine.course.expect import expect, expect_close, show
from mini_engine.roofline import ridge_point

LeastTime = Callable[[float, float, float, float], tuple[float, float]]


def least_time(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> tuple[float, float]:
    """The least seconds, and the share of them in which the arithmetic units are busy."""
    computing, reading = flops / peak, bytes_moved / bandwidth
    seconds = max(computing, reading)
    return seconds, computing / seconds


def _answer(candidate: LeastTime, case: tuple[int, int, int, int]) -> tuple[Any, Any, str]:
    """The two numbers as floats, and the case in words. Fractions and lists are right answers too."""
    flops, bytes_moved, peak, bandwidth = case
    words = f"{flops} FLOPs, {bytes_moved} bytes, peak {peak} FLOP/s, bandwidth {bandwidth} bytes/s"
    got = candidate(flops, bytes_moved, peak, bandwidth)
    expect(
        isinstance(got, (tuple, list, np.ndarray)) and len(got) == 2,
        words,
        expected="two numbers: seconds, busy",
        got=show(got),
    )
    seconds, busy = (float(x) if isinstance(x, Fraction) else x for x in got)
    return seconds, busy, words


# (flops, bytes, peak, bandwidth) -> seconds, busy. Whole seconds first, then parts of a second: real steps take milliseconds.
Cases = dict[tuple[int, int, int, int], tuple[float, float]]
MEMORY: Cases = {(4, 8, 4, 1): (8, 1 / 8), (6, 40, 2, 4): (10, 3 / 10), (0, 12, 5, 3): (4, 0)}
COMPUTE: Cases = {(32, 2, 4, 1): (8, 1), (90, 8, 3, 2): (30, 1), (7, 0, 1, 5): (7, 1)}
TIE: Cases = {(12, 12, 4, 4): (3, 1)}
PARTS: Cases = {
    (3, 9, 8, 4): (9 / 4, 1 / 6),
    (9, 3, 4, 8): (9 / 4, 1),
    (7 * 10**10, 7 * 10**10, 989 * 10**12, 335 * 10**10): (7 / 335, 335 / 98900),
}


def _seconds(cases: Cases) -> Callable[[LeastTime], None]:
    def run(candidate: LeastTime) -> None:
        for case, (want, _) in cases.items():
            seconds, _, words = _answer(candidate, case)
            expect_close(seconds, want, f"{words}: seconds")

    return run


def _busy(cases: Cases) -> Callable[[LeastTime], None]:
    def run(candidate: LeastTime) -> None:
        for case, (_, want) in cases.items():
            _, busy, words = _answer(candidate, case)
            expect_close(busy, want, f"{words}: busy")

    return run


def _by_intensity(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> tuple[float, float]:
    if bytes_moved == 0 or flops / bytes_moved >= peak / bandwidth:
        return flops / peak, 1.0
    return bytes_moved / bandwidth, flops / bytes_moved / (peak / bandwidth)


def _in_fractions(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> Any:
    clocks = Fraction(flops) / Fraction(peak), Fraction(bytes_moved) / Fraction(bandwidth)
    return [max(clocks), clocks[0] / max(clocks)]


def _adds(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> tuple[float, float]:
    seconds = flops / peak + bytes_moved / bandwidth
    return seconds, flops / peak / seconds


def _faster(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> tuple[float, float]:
    return min(flops / peak, bytes_moved / bandwidth), least_time(flops, bytes_moved, peak, bandwidth)[1]


def _compute_only(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> tuple[float, float]:
    return flops / peak, 1.0


def _memory_only(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> tuple[float, float]:
    seconds = bytes_moved / bandwidth
    return seconds, min(1.0, flops / peak / seconds) if seconds else 1.0


def _swaps_rates(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> tuple[float, float]:
    return least_time(flops, bytes_moved, bandwidth, peak)


def _above_one(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> tuple[float, float]:
    reading = bytes_moved / bandwidth
    return least_time(flops, bytes_moved, peak, bandwidth)[0], flops / peak / reading if reading else 1.0


def _idle(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> tuple[float, float]:
    seconds, busy = least_time(flops, bytes_moved, peak, bandwidth)
    return seconds, 1 - busy


def _percent(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> tuple[float, float]:
    seconds, busy = least_time(flops, bytes_moved, peak, bandwidth)
    return seconds, 100 * busy


def _whole_seconds(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> tuple[float, float]:
    return max(flops // peak, bytes_moved // bandwidth), least_time(flops, bytes_moved, peak, bandwidth)[1]


def _rounded(digits: int) -> LeastTime:
    def rounded(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> tuple[float, float]:
        seconds, busy = least_time(flops, bytes_moved, peak, bandwidth)
        return round(seconds, digits), busy

    return rounded


def _busy_rounded(flops: float, bytes_moved: float, peak: float, bandwidth: float) -> tuple[float, float]:
    seconds, busy = least_time(flops, bytes_moved, peak, bandwidth)
    return seconds, round(busy, 3)


READ, COMPUTED, BOTH = "long reads set the time", "long computing sets the time", "equal clocks run side by side"
PART = "parts of a second are kept"
SHARE, FULL = "busy is the share of the time that computing takes", "busy is 1 when computing takes longest"

LEAST_TIME = Exercise(
    id="03.least_time",
    title="Two clocks",
    reference=least_time,
    properties=[
        Property(BOTH, _seconds(TIE)),
        Property(READ, _seconds(MEMORY)),
        Property(COMPUTED, _seconds(COMPUTE)),
        Property(PART, _seconds(PARTS)),
        Property(SHARE, _busy(MEMORY | {k: v for k, v in PARTS.items() if v[1] < 1})),
        Property(FULL, _busy(COMPUTE | TIE)),
    ],
    mutants=[
        Mutant("adds the clocks", _adds, BOTH, "Reading and computing overlap: the longer one is the time."),
        Mutant("takes the shorter clock", _faster, READ, "Both have to be done, so the longer one is the time."),
        Mutant("computing only", _compute_only, READ, "What has to be read takes time too."),
        Mutant("reading only", _memory_only, COMPUTED, "What has to be computed takes time too."),
        Mutant("rates swapped", _swaps_rates, READ, "FLOPs over the peak, bytes over the bandwidth."),
        Mutant("busy above 1", _above_one, FULL, "Nothing is busy for longer than the time itself."),
        Mutant("idle for busy", _idle, SHARE, "That is the other share: the time it waits."),
        Mutant(
            "whole seconds", _whole_seconds, PART, "`//` drops the part of a second, and a step takes milliseconds."
        ),
        Mutant("rounded seconds", _rounded(0), PART, "A step takes milliseconds."),
        Mutant("milliseconds at the least", _rounded(3), PART, "Leave rounding to what prints."),
        Mutant("busy to three decimals", _busy_rounded, SHARE, "A share of 0.34% is not 0.3%."),
        Mutant("percent for a share", _percent, SHARE, "A share lies between 0 and 1."),
    ],
    alternatives=[_by_intensity, _in_fractions],
)

H100_RIDGE = ridge_point(989e12, 3.35e12)

STEP_MS = Prediction(
    "03.step_ms",
    "A GPU holds 70e9 bytes of weights and reads 3.35e12 bytes a second. How many ms does a decode step take at least?",
    70 / 3.35,
    "ms",
    mistakes=[
        (140 / 3.35, "Those are both GPUs' weights. Each GPU reads its own half, at the same time."),
        (35 / 3.35, "That halves once too often: 70e9 bytes is one GPU's half already."),
        (70 / 989, "989e12 is the peak in FLOP/s. Bytes are read at 3.35e12 a second."),
        (140 / 989, "That is the time to compute 1.4e11 FLOPs on one GPU. Reading takes longer."),
        (0.07 / 3.35, "Those are seconds. A second has 1,000 ms."),
        (3350 / 70, "Those are steps in a second. The question is for one step."),
    ],
    because="70e9 / 3.35e12 = 0.0209 s = 20.9 ms, so 47.9 tokens a second at most.",
)

RIDGE = Prediction(
    "03.ridge",
    "An H100 computes 989e12 FLOP/s in dense bf16 and reads 3.35e12 bytes/s. How many FLOPs could it do per byte?",
    float(H100_RIDGE),
    "FLOP/B",
    mistakes=[
        (1979 / 3.35, "1,979 TFLOP/s is the sparse figure: half of the numbers would have to be zeros. Dense is 989."),
        (3.35 / 989, "That is bytes per FLOP, the other way round."),
        (989 / 3350, "The units differ: 989e12 FLOP/s, 3,350e9 bytes/s. It is 1,000 times more."),
        (989 / 2 / 3.35, "A multiply-add is two FLOPs, but the peak counts both already."),
        (989 / 4.8, "That is an H200: it has the same peak and reads 4.8e12 bytes/s."),
    ],
    because="989e12 / 3.35e12 = 19780/67 = 295.2.",
)
