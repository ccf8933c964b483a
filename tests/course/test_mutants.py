"""The table of wrong answers says so when one survives."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mini_engine.course.exercise import INPUTS_UNCHANGED, Exercise, Mutant, Property
from mini_engine.course.expect import expect_equal
from mini_engine.course.mutants import main, rejection


def first(items: list[int]) -> int:
    return items[0]


def last(items: list[int]) -> int:
    return items[-1]


def popped(items: list[int]) -> int:
    return items.pop(0)


def _of_one(f: Callable[[list[int]], int]) -> None:
    expect_equal(f([5]), 5, "[5]")


def _of_two(f: Callable[[list[int]], int]) -> None:
    expect_equal(f([5, 6]), 5, "[5, 6]")


CAUGHT = Mutant("last", last, "of two", "takes the wrong end")
CHANGES = Mutant("popped", popped, INPUTS_UNCHANGED, "takes it out")
SURVIVES = Mutant("last, tested with one item", last, "of one", "one item has one end")


def exercise(*mutants: Mutant) -> Exercise:
    return Exercise("99.first", "First", first, [Property("of one", _of_one), Property("of two", _of_two)], mutants)


def test_only_the_named_property_counts() -> None:
    outcomes = [rejection(exercise(CAUGHT, CHANGES, SURVIVES), mutant) for mutant in (CAUGHT, CHANGES, SURVIVES)]
    assert [o and o.property for o in outcomes] == ["of two", INPUTS_UNCHANGED, None]


def test_table(defined: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    defined(exercise(CAUGHT, CHANGES))
    assert main() == 0
    assert "caught    last: of two ([5, 6])" in capsys.readouterr().out
    defined(exercise(CAUGHT, SURVIVES))
    assert main() == 1
    assert "SURVIVES  last, tested with one item: of one (one item has one end)" in capsys.readouterr().out
