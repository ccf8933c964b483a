"""Two small exercises, a function and a class, and what `check` says of an answer to them."""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mini_engine.course.check import check
from mini_engine.course.exercise import Exercise, Property
from mini_engine.course.expect import expect_close, expect_equal, expect_raises

Cell = Callable[[str], dict[str, Any]]


def doubled(x: np.ndarray, times: int = 1) -> np.ndarray:
    return x * 2.0**times


def doubles(f: Callable[..., Any]) -> None:
    for size in (1, 3):
        x = np.arange(float(size)) + 1
        expect_close(f(x), 2 * x, f"{size} numbers")


def twice(f: Callable[..., Any]) -> None:
    x = np.arange(3.0)
    expect_close(f(x, 2), 4 * x, "three numbers, times=2")


DOUBLE = Exercise(
    "99.double",
    "Double",
    doubled,
    [Property("doubles", doubles), Property("times counts", twice)],
    budget=50_000,
    seconds=10.0,  # a busy machine may need more than a moment for code that is right
)

HASTY = replace(DOUBLE, id="99.hasty", seconds=0.5)  # for code that only the timer can stop


class Stack:
    """A reference that is a class."""

    def __init__(self, capacity: int) -> None:
        self.items: list[int] = []
        self.capacity = capacity

    def push(self, item: int) -> None:
        if len(self.items) == self.capacity:
            raise MemoryError("full")
        self.items.append(item)

    def top(self) -> int:
        return self.items[-1]


def _last_in(cls: Any) -> None:
    stack = cls(2)
    stack.push(1)
    stack.push(2)
    expect_equal(stack.top(), 2, "push(1), push(2): top()")


def _full(cls: Any) -> None:
    stack = cls(0)
    expect_raises(MemoryError, lambda: stack.push(1), "capacity 0: push(1)")


STACK = Exercise(
    "99.stack", "A stack", Stack, [Property("last in is on top", _last_in), Property("full raises", _full)]
)


def verdict(candidate: Any, capsys: pytest.CaptureFixture[str], exercise: Exercise = DOUBLE) -> str:
    """What check prints, with the promises that hold for every candidate."""
    before = (
        sys.gettrace(),
        threading.gettrace(),
        signal.getsignal(signal.SIGALRM),
        signal.getsignal(signal.SIGINT),
        sys.stdout,
    )
    result = check(exercise.id, candidate)
    assert before == (
        sys.gettrace(),
        threading.gettrace(),
        signal.getsignal(signal.SIGALRM),
        signal.getsignal(signal.SIGINT),
        sys.stdout,
    )
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    text = capsys.readouterr().out
    assert all(re.match(r"\[(ok|no|todo)\] | ", line) for line in text.splitlines()), (
        "one sanitize rule covers every line"
    )
    assert len(text) < 4000
    assert result is (candidate if text.startswith("[ok]") else exercise.reference)
    return text
