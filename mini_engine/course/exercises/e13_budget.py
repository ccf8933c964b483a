"""Lesson 13, exercise 4: the largest token budget that holds a limit on the time of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers13_budget as answers
from mini_engine.course.expect import expect, expect_equal, fail
from mini_engine.course.own_chunks import LONG, READERS, chunk_step_seconds

Budget = Callable[[Callable[[int], float], float, int], int]
MOST_CALLS = 60


class Steps:
    """The time of a step of n tokens, which counts how often it is asked and refuses numbers out of range."""

    def __init__(self, seconds: Callable[[int], float], most: int) -> None:
        self.seconds, self.most, self.calls = seconds, most, 0

    def __call__(self, n: Any) -> float:
        self.calls += 1
        if type(n) is not int or not 1 <= n <= self.most:
            fail(f"most={self.most}: step_seconds({n!r})", expected=f"asked for 1 to {self.most} tokens", got=repr(n))
        if self.calls > MOST_CALLS + 2 * self.most and self.most < 1000:
            fail(f"most={self.most}: calls of step_seconds", expected="an end", got=f"{self.calls} and more")
        return self.seconds(n)


def _ask(candidate: Budget, seconds: Callable[[int], float], limit: float, most: int, words: str) -> int:
    steps = Steps(seconds, most)
    got: Any = candidate(steps, limit, most)
    case = f"{words}, limit={limit:g}, most={most:,}"
    if type(got) is not int:
        fail(f"{case}: the budget", expected="an int", got=f"{got!r} ({type(got).__name__})")
    return got


def _finds(cases: Sequence[tuple[str, Callable[[int], float], float, int]]) -> Callable[[Budget], None]:
    def run(candidate: Budget) -> None:
        for words, seconds, limit, most in cases:
            want = answers.one_by_one(seconds, limit, most)
            got = _ask(candidate, seconds, limit, most, words)
            expect_equal(got, want, f"{words}, limit={limit:g}, most={most:,}: the largest budget")

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


def _machine(candidate: Budget) -> None:
    seconds = chunk_step_seconds(LONG - 2048)
    for limit in (0.03, 0.05, 0.1):
        got = _ask(candidate, seconds, limit, LONG, f"70B, TP8, {READERS} readers, the end of a prompt of {LONG:,}")
        words = (
            f"70B, TP8, {READERS} readers, the end of a prompt of {LONG:,}, limit={limit:g} s: a step of {got:,} tokens"
        )
        expect(
            1 <= got <= LONG and seconds(got) <= limit,
            words,
            expected=f"{limit:g} s or less",
            got=f"{seconds(min(max(got, 1), LONG)):.6f} s",
        )
        more = seconds(got + 1)
        expect(more > limit, words, expected="the largest that holds", got=f"{got + 1:,} tokens take {more:.6f} s")


def _few_calls(candidate: Budget) -> None:
    for most, limit in ((10**6, 123_456.7), (10**9, 2.0 + 10**9), (10**9, 4.5)):
        steps = Steps(_line, most)
        counted = f"n tokens take 2 + n, limit={limit:g}, most={most:,}: calls of step_seconds"

        def ask(n: int, steps: Steps = steps, counted: str = counted) -> float:
            if steps.calls >= MOST_CALLS:
                fail(counted, expected=f"at most {MOST_CALLS}", got=f"{MOST_CALLS} and more")
            return steps(n)

        expect_equal(
            candidate(ask, limit, most),
            min(most, int(limit - 2.0)),
            counted.replace("calls of step_seconds", "the largest budget"),
        )


FINDS, MEET, END, TOO_LITTLE, MACHINE, CALLS = (
    "finds it between 1 and most",
    "a step that takes the limit exactly is allowed",
    "every budget holds the limit: the answer is most",
    "no budget holds the limit: the answer is 0",
    "on the lesson's machine: holds the limit, and one token more does not",
    f"at most {MOST_CALLS} calls, however large most is",
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
        Property(MACHINE, _machine),
        Property(CALLS, _few_calls),
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
        Mutant("a nice number", answers.multiple_of_64, MACHINE, "Rounding to a nice number gives tokens away."),
    ],
    alternatives=[answers.by_bisect, answers.by_powers],
)  # fmt: skip
