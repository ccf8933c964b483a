"""Lesson 13, exercise 4: the largest token budget that holds a limit on the time of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers13_budget as answers
from mini_engine.course.expect import expect, expect_equal, fail
from mini_engine.course.long_prompt import LONG, READERS, last_step_seconds

Budget = Callable[[Callable[[int], float], float, int], int]
MOST_CALLS = 60


def is_whole(number: Any) -> bool:
    return isinstance(number, (int, np.integer)) and type(number) is not bool


class Steps:
    """The time of a step of n tokens. It is asked a limited number of times, for numbers in range."""

    def __init__(self, seconds: Callable[[int], float], most: int, case: str) -> None:
        self.seconds, self.most, self.case, self.num_calls = seconds, most, case, 0
        self.__name__ = "step_seconds"

    def __call__(self, n: Any) -> float:
        if not is_whole(n) or not 1 <= n <= self.most:
            fail(f"{self.case}: step_seconds({n!r})", expected=f"asked for 1 to {self.most:,} tokens", got=repr(n))
        self.num_calls += 1
        if self.num_calls > MOST_CALLS:
            fail(f"{self.case}: calls of step_seconds", expected=f"at most {MOST_CALLS}", got=f"more than {MOST_CALLS}")
        return self.seconds(int(n))


def _ask(candidate: Budget, seconds: Callable[[int], float], limit: float, most: int, words: str) -> tuple[int, str]:
    """The answer, and the case in words."""
    case = f"{words}, limit={limit:,}, most={most:,}"
    got: Any = candidate(Steps(seconds, most, case), limit, most)
    if not is_whole(got):
        fail(f"{case}: the budget", expected="an int", got=f"{got!r} ({type(got).__name__})")
    return int(got), case


def _finds(cases: Sequence[tuple[str, Callable[[int], float], float, int]]) -> Callable[[Budget], None]:
    def run(candidate: Budget) -> None:
        for words, seconds, limit, most in cases:
            got, case = _ask(candidate, seconds, limit, most, words)
            expect_equal(got, answers.largest_budget(seconds, limit, most), f"{case}: the largest budget")

    return run


def _line(n: int) -> float:
    return 2.0 + n


def _stairs(n: int) -> float:
    return float(-(-n // 4))


def _floor(n: int) -> float:
    """Reading the weights takes 5, however few the tokens are."""
    return max(5.0, n / 2)


SMALL = [
    ("n tokens take 2 + n", _line, 5.5, 8),
    ("n tokens take ceil(n / 4)", _stairs, 2.5, 20),
    ("n tokens take max(5, n / 2)", _floor, 6.2, 40),
]
ENDS = [
    ("n tokens take 2 + n", _line, 100.0, 8),
    ("n tokens take 2 + n", _line, 10.0, 8),
    ("n tokens take 2 + n", _line, 3.0, 1),
    ("n tokens take ceil(n / 4)", _stairs, 9.0, 13),
]
NONE = [("n tokens take 2 + n", _line, 2.5, 8), ("n tokens take max(5, n / 2)", _floor, 4.9, 40)]
MEETS = [
    ("n tokens take 2 + n", _line, 5.0, 8),
    ("n tokens take ceil(n / 4)", _stairs, 3.0, 20),
    ("n tokens take max(5, n / 2)", _floor, 5.0, 40),
]


ENDLESS = 2**50  # halving asks 50 times
LARGE = [
    ("n tokens take 2 + n", _line, limit, most)
    for most, limit in ((10**6, 64_002.5), (10**9, 2e9), (ENDLESS, 4.5), (ENDLESS, ENDLESS - 2.0**20 + 2))
]


def _machine(candidate: Budget) -> None:
    words = f"70B, TP8, {READERS} readers, the end of a prompt of {LONG:,}"
    for limit in (0.03, 0.05, 0.1):
        got, case = _ask(candidate, last_step_seconds, limit, LONG, words)
        expect(1 <= got < LONG, f"{case}: the budget", expected=f"1 to {LONG - 1:,}", got=f"{got:,}")
        for n, holds in ((got, True), (got + 1, False)):
            seconds = last_step_seconds(n)
            wanted = f"{limit:g} s or less" if holds else f"over {limit:g} s, or {n:,} would be the answer"
            expect(
                (seconds <= limit) is holds, f"{case}: a step of {n:,} tokens", expected=wanted, got=f"{seconds:.6f} s"
            )


FINDS, MEET, END, TOO_LITTLE, CALLS, MACHINE = (
    "finds it between 1 and most",
    "a step that takes the limit exactly is allowed",
    "every budget holds the limit: the answer is most",
    "no budget holds the limit: the answer is 0",
    f"at most {MOST_CALLS} calls, however large most is",
    "on the lesson's machine: holds the limit, and one token more does not",
)

BUDGET = Exercise(
    id="13.budget",
    title="The largest budget that holds a limit",
    reference=answers.largest_budget,
    properties=[
        Property(FINDS, _finds(SMALL)),
        Property(MEET, _finds(MEETS)),
        Property(END, _finds(ENDS)),
        Property(TOO_LITTLE, _finds(NONE)),
        Property(CALLS, _finds(LARGE)),
        Property(MACHINE, _machine),
    ],
    mutants=[
        Mutant("the first that is over", answers.first_over, FINDS, "That one breaks the limit already."),
        Mutant("powers of two", answers.powers_of_two, FINDS, "A budget may be any number of tokens."),
        Mutant("asks for 0 tokens", answers.asks_for_zero, FINDS, "A step of no tokens does not exist."),
        Mutant("beyond the most", answers.beyond, END, "Look at budgets from 1 to most only."),
        Mutant("below the limit", answers.below_the_limit, MEET, "At most means that the limit itself will do."),
        Mutant("a straight line", answers.straight_line, FINDS, "Time is not proportional to tokens: there is a fixed part."),
        Mutant("never the most", answers.never_the_most, END, "The largest may be most itself."),
        Mutant("at least one", answers.at_least_one, TOO_LITTLE, "If even one token is too slow, say so: 0."),
        Mutant("one by one", answers.one_by_one, CALLS, "Halve the range at every call."),
        Mutant("doubles first", answers.doubles_first, CALLS, "You know the largest budget: begin with the whole range."),
        Mutant("thirds", answers.by_thirds, CALLS, "A third leaves two thirds to search. A half leaves a half."),
        Mutant("a nice number", answers.multiple_of_64, MACHINE, "Rounding to a nice number gives tokens away."),
    ],
    alternatives=[answers.by_bisect, answers.by_powers],
)  # fmt: skip
