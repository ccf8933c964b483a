"""Exercises in writing tests: the learner's test is tried on right implementations, and on wrong ones that it must refuse."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mini_engine.course.budget import OutOfSteps
from mini_engine.course.exercise import Exercise, Property
from mini_engine.course.expect import expect_equal, fail

Test = Callable[[Any], None]
_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Bug:
    """A wrong implementation. `hint` tells a learner whose test let it pass where to look."""

    implementation: Any
    hint: str = ""


def hand_out_class(kind: type, name: str = "Cache") -> type:
    """A class made for one call of the test, that says no more of itself than the others do."""
    return type(name, (kind,), {"__doc__": f"The {name.lower()} under test."})


@dataclass(frozen=True)
class BugBank:
    """Right and wrong implementations of one thing, by name.

    kind:          what they are in words that follow "a right", such as "attention".
    hand_out:      makes what a test is given, anew for each call, so that a test cannot know a bug by which object it is.
    crash_counts:  whether any error in the test refuses a wrong one, as in pytest, or AssertionError alone.
    """

    kind: str
    right: Mapping[str, Any]
    wrong: Mapping[str, Bug]
    hand_out: Callable[[Any], Any]
    crash_counts: bool = False

    def order(self) -> list[str]:
        """Right and wrong ones in an order that says nothing, so that a test gains nothing by counting its calls."""
        names = [*self.wrong, *self.right]
        random.Random(0).shuffle(names)
        return names

    def accept(self, test: Test, name: str, words: str = "") -> None:
        """Raise AssertionError, with the learner's own and its line, when the test refuses the right one called `name`.

        Any other error is a fault of the test and goes through, to be shown as such.
        """
        error = self._objection(test, self.right[name], crash_counts=False)
        if error is not None:
            where = where_raised(error)
            said = f"AssertionError: {error}".removesuffix(": ")
            case = f"your test refuses {words or f'a right {self.kind}'} ({name})"
            fail(case, expected="no error", got=said, raised=f"in line {where.lineno} of {where.name}: {where.line}")

    def objection(self, test: Test, name: str) -> BaseException | None:
        """What the test says to the wrong one called `name`: its error, or None when it lets it pass."""
        return self._objection(test, self.wrong[name].implementation, self.crash_counts)

    def properties(self, accepts: str, rest: str, announced: str = "", catches: str = "") -> list[Property]:
        """The properties of a test that is right; those named `accepts`, `catches` (the one announced) and `rest`."""

        def passes(test: Test) -> None:
            for name in self.right:
                self.accept(test, name)

        def catches_one(test: Test) -> None:
            if self.objection(test, announced) is None:
                fail(f"{announced!r} slipped through", expected="an AssertionError", got="no objection")

        def catches_all(test: Test) -> None:
            slipped = []
            for name in self.order():
                if name in self.right:
                    self.accept(test, name, f"a right {self.kind} when it has seen others before")
                elif self.objection(test, name) is None:
                    slipped.append(name)
            caught, total = len(self.wrong) - len(slipped), len(self.wrong)
            case = f"your test caught {caught} of {total} bugs; these slipped through"
            expect_equal(sorted(slipped, key=list(self.wrong).index), [], case)

        one = [Property(catches, catches_one)] if announced else []
        return [Property(accepts, passes), *one, Property(rest, catches_all)]

    def _objection(self, test: Test, implementation: Any, crash_counts: bool) -> BaseException | None:
        try:
            with np.errstate(all="ignore"):
                test(self.hand_out(implementation))
        except AssertionError as error:
            return error
        except OutOfSteps:
            raise
        except BaseException as error:
            pytest_fails = any(kind.__name__ == "OutcomeException" for kind in type(error).__mro__)
            if crash_counts and (isinstance(error, Exception) or pytest_fails):
                return error
            raise
        return None


@dataclass(frozen=True, kw_only=True)
class BugHunt(Exercise):
    """An exercise whose answer is a test, or several: `bugs_caught` says which bugs of the bank it catches."""

    bank: BugBank


def where_raised(error: BaseException) -> traceback.FrameSummary:
    """The line of the test that an error came from, not that of a helper that it called there.

    The tests that a lesson brings are tests too; a library's lines and this package's own are not.
    """
    frames = traceback.extract_tb(error.__traceback__)
    return next(filter(_is_of_a_test, frames), frames[-1])


def _is_of_a_test(frame: traceback.FrameSummary) -> bool:
    file = Path(frame.filename)
    if frame.name.startswith("<") and frame.name != "<module>":
        return False  # <listcomp>, <lambda>: the function around it says more
    if file.parent == _PACKAGE / "course" / "exercises":
        return file.name.startswith("e")
    return not (_PACKAGE in file.parents or "site-packages" in file.parts)
