"""Lesson 12, exercise 2: TTFT, ITL, TPOT, throughput and goodput from the times of tokens."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers12_numbers as answers
from mini_engine.course.expect import expect, expect_close, expect_equal, show

Metrics = Callable[[list, float, float], dict[str, Any]]
Run = Sequence[tuple[float, Sequence[float]]]

ANN: tuple[float, list[float]] = (1.0, [1.5, 1.75, 2.25])
BOB: tuple[float, list[float]] = (2.0, [4.0, 4.5])
CAT: tuple[float, list[float]] = (2.5, [3.0])
NAMES = ("ttft", "itl", "tpot", "throughput", "goodput")


def _asked(metrics: Metrics, run: Run, name: str, want: Any, ttft: float = 1.0, tpot: float = 0.5) -> None:
    got = metrics([(arrival, list(times)) for arrival, times in run], ttft, tpot)
    told = ", ".join(f"arrival {arrival}, tokens at {list(times)}" for arrival, times in run)
    case = f"{name} of {told}; limits {ttft} s and {tpot} s"
    expect(
        isinstance(got, dict) and name in got,
        case,
        expected=f"a dict with {', '.join(map(repr, NAMES))}",
        got=show(got),
    )
    value = got[name]
    if not isinstance(want, list):
        expect_close(value, float(want), case, same_dtype=False)
        return
    expect(isinstance(value, list), case, expected=show(want), got=show(value))
    expect_equal(len(value), len(want), f"{case}: how many")
    for number, (mine, right) in enumerate(zip(value, want)):
        if right is None or mine is None:
            expect_equal(mine, right, f"{case}, number {number}")
        else:
            expect_close(mine, float(right), f"{case}, number {number}", same_dtype=False)


def _ttft(metrics: Metrics) -> None:
    _asked(metrics, [ANN], "ttft", [0.5])
    _asked(metrics, [ANN, BOB, CAT], "ttft", [0.5, 2.0, 0.5])


def _itl(metrics: Metrics) -> None:
    _asked(metrics, [ANN], "itl", [0.25, 0.5])
    _asked(metrics, [ANN, BOB, CAT], "itl", [0.25, 0.5, 0.5])


def _tpot(metrics: Metrics) -> None:
    _asked(metrics, [ANN], "tpot", [0.375])
    _asked(metrics, [ANN, BOB, CAT], "tpot", [0.375, 0.5, None])


def _throughput(metrics: Metrics) -> None:
    _asked(metrics, [ANN], "throughput", 3 / 1.25)
    _asked(metrics, [ANN, BOB, CAT], "throughput", 6 / 3.5)
    _asked(metrics, [BOB, ANN], "throughput", 5 / 3.5)


def _goodput(metrics: Metrics) -> None:
    _asked(metrics, [ANN], "goodput", 1 / 1.25)
    _asked(metrics, [ANN, CAT, BOB], "goodput", 2 / 3.5)
    _asked(metrics, [ANN, CAT, BOB], "goodput", 1 / 3.5, tpot=0.25)
    _asked(metrics, [ANN], "goodput", 1 / 1.25, tpot=0.4)
    _asked(metrics, [BOB], "goodput", 1 / 2.5, ttft=2.0, tpot=0.75)
    _asked(metrics, [BOB], "goodput", 1 / 2.5, ttft=2.5, tpot=0.5)


def _long_run(metrics: Metrics) -> None:
    draw = random.Random(2)
    run = []
    for _ in range(12):
        arrival = draw.randrange(64) / 8
        times = [arrival + draw.randrange(1, 16) / 8]
        for _ in range(draw.randrange(6)):
            times.append(times[-1] + draw.randrange(1, 8) / 8)
        run.append((arrival, times))
    want = answers.by_hand(run, 1.0, 0.5)
    for name in NAMES:
        _asked(metrics, run, name, want[name])


TTFT, ITL, TPOT, THROUGHPUT, GOODPUT, LONG = (
    "TTFT runs from the arrival to the first token",
    "ITL is every gap of every request",
    "TPOT is one mean gap per request, None for one token",
    "throughput is tokens over the whole window",
    "goodput counts who met every limit, per second",
    "a longer run",
)

METRICS = Exercise(
    id="12.metrics",
    title="Metrics from timestamps",
    reference=answers.metrics,
    properties=[
        Property(TTFT, _ttft),
        Property(ITL, _itl),
        Property(TPOT, _tpot),
        Property(THROUGHPUT, _throughput),
        Property(GOODPUT, _goodput),
        Property(LONG, _long_run),
    ],
    mutants=[
        Mutant("from zero", answers.FROM_ZERO, TTFT, "The clock does not start when the user asks."),
        Mutant("the first gap too", answers.ITL_WITH_FIRST, ITL, "What comes before the first token is TTFT."),
        Mutant("across requests", answers.ITL_OF_NEIGHBOURS, ITL, "From one request's last token to another's first is nobody's gap."),
        Mutant("one gap a request", answers.ITL_MEANS, ITL, "A mean hides the one long pause that a user saw."),
        Mutant("TPOT over all", answers.TPOT_OF_ALL, TPOT, "With the first token in it the queue is in it. Some tools call that TPOT."),
        Mutant("TPOT over n", answers.TPOT_OVER_N, TPOT, "n tokens have n - 1 gaps."),
        Mutant("zero for one token", answers.TPOT_ZERO, TPOT, "One token has no gap, and 0 would make the mean look good."),
        Mutant("one over ITL", answers.ONE_OVER_ITL, THROUGHPUT, "That is one user's pace. A batch makes many tokens in one gap."),
        Mutant("from the first token", answers.FROM_FIRST_TOKEN, THROUGHPUT, "The wait for the first token is time too."),
        Mutant("sum of rates", answers.SUM_OF_RATES, THROUGHPUT, "Requests that come one after the other do not add up."),
        Mutant("either limit", answers.EITHER, GOODPUT, "A fast stream after a wait of a minute is not good."),
        Mutant("a share", answers.A_SHARE, GOODPUT, "Per second: a share says nothing about load."),
        Mutant("one token misses", answers.SINGLE_TOKENS_MISS, GOODPUT, "Who has no TPOT cannot miss its limit."),
        Mutant("every gap", answers.EVERY_GAP, GOODPUT, "The limit is for TPOT, the mean gap. One long gap may be in it."),
        Mutant("less than the TTFT limit", answers.TTFT_BELOW, GOODPUT, "At most: who just reaches the limit has met it."),
        Mutant("less than the TPOT limit", answers.TPOT_BELOW, GOODPUT, "At most: who just reaches the limit has met it."),
        Mutant("all of them", answers.EVERY_REQUEST, GOODPUT, "That is throughput in requests."),
        Mutant("in order", answers.last_is_last, LONG, "The last to arrive need not be the last to end."),
    ],
    alternatives=[answers.by_hand],
)  # fmt: skip
