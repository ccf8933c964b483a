"""`bugs_caught` tries a learner's tests on the bugs of a lesson and says which of them got away."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from mini_engine.course.bug_bank import BugHunt, Test, where_raised
from mini_engine.course.check import Outcome, looked_at, report, run_property, settle
from mini_engine.course.exercise import Property
from mini_engine.course.exercises import find

SILENT = (
    "A test objects by raising AssertionError. What it returns is not looked at, and `except Exception` around an "
    "`assert` swallows the objection."
)
MAX_ENDLESS = 3  # bugs on which the tests may use up their budget before the rest is left out


@dataclass
class Caught:
    """What became of the tests: status is "ok", "no" or "todo"; how many bugs they caught, and of how many."""

    status: str
    num_caught: int
    num_bugs: int
    headline: str = ""
    outcomes: list[Outcome] = field(default_factory=list)


def bugs_caught(my_tests: Any, lesson: str) -> Any:
    """Try tests on the right and wrong implementations of a lesson ("09"), and print what they caught and what got away.

    my_tests: a function, or several in a list or tuple. Each is given what the exercise names (in lesson 06 an allocator
    class, to be called with its capacity; in 07 to 09 a cache class, to be called with num_blocks and block_size; in 12 a
    function that makes schedulers) and raises AssertionError when it finds a bug in it.
    Tests that refuse a right implementation count for nothing: their error is shown with its line.

    Returns one function that runs them all when they catch everything, the lesson's own tests otherwise, so that a
    notebook always runs to its end. Printed lines, strictness and safety are those of `check`. Raises KeyError for an
    unknown lesson.
    """
    exercise = cast(BugHunt, find(BugHunt, lesson if "." in str(lesson) else f"{lesson}.bugs"))
    tests = list(my_tests) if isinstance(my_tests, (list, tuple)) else [my_tests]

    def judge() -> tuple[str, str]:
        caught = try_tests(exercise, tests)
        reason = {"ok": "", "todo": "not done yet"}.get(caught.status, caught.headline)
        return report(replace(exercise, title=caught.headline), caught.status, caught.outcomes), reason

    return settle(exercise, _together(tests), judge)


def try_tests(exercise: BugHunt, tests: Sequence[Any]) -> Caught:
    """Every right and wrong implementation of the exercise's bank, each with a budget of its own."""
    bank = exercise.bank
    caught = Caught("no", 0, len(bank.wrong), exercise.title)
    for test in tests or [None]:
        why = looked_at(exercise, test)
        if why:
            caught.outcomes.append(Outcome("is what the exercise asks for", "no", why))
            return caught
    candidate = _together(tests)

    def accept(name: str, words: str = "") -> Outcome:
        prop = Property(f"a right {bank.kind} passes", lambda test: bank.accept(test, name, words))
        return run_property(exercise, prop, candidate)

    for name in bank.right:
        outcome = accept(name)
        if outcome.status != "ok":
            caught.status = outcome.status
            caught.outcomes.append(outcome)
            return caught
    found: dict[str, Outcome] = {}
    num_endless = 0
    for name in bank.order():
        if name in bank.right:
            outcome = accept(name, f"a right {bank.kind} when it has seen others before")
            if outcome.status != "ok":
                caught.outcomes.append(outcome)
                return caught
        elif num_endless < MAX_ENDLESS:
            found[name] = _try_bug(exercise, name, candidate)
            num_endless += found[name].detail.startswith("your code")
    caught.outcomes.append(Outcome(f"{len(bank.right)} right ones pass", "ok"))
    caught.outcomes += [found.get(name, _left_out(name)) for name in bank.wrong]
    caught.num_caught = sum(outcome.status == "ok" for outcome in caught.outcomes[1:])
    if not caught.num_caught:
        caught.outcomes.append(Outcome("nothing was caught at all", "no", SILENT))
    caught.headline = f"your tests caught {caught.num_caught} of {caught.num_bugs} bugs"
    caught.status = "ok" if caught.num_caught == caught.num_bugs else "no"
    return caught


def _try_bug(exercise: BugHunt, name: str, candidate: Test) -> Outcome:
    """Whether the tests refuse one wrong implementation, and where."""
    objections: list[BaseException] = []

    def tried(test: Test) -> None:
        error = exercise.bank.objection(test, name)
        if error is not None:
            objections.append(error)

    outcome = run_property(exercise, Property(f"got away: {name}", tried), candidate)
    if outcome.status != "ok":
        return replace(outcome, status="no")
    if not objections:
        hint = exercise.bank.wrong[name].hint
        return replace(outcome, status="no", detail=f"Hint: {hint}" if hint else "")
    where = where_raised(objections[0])
    return replace(outcome, property=f"caught: {name}  ({where.name}, line {where.lineno})")


def _left_out(name: str) -> Outcome:
    return Outcome(f"not tried: {name}", "no", "The tests did not end on others.")


def _together(tests: Sequence[Any]) -> Any:
    """One function that runs them all. It belongs to the tests' own namespaces, so that their steps are counted."""
    if len(tests) < 2 or not all(map(callable, tests)):
        return tests[0] if tests else None
    together = tests[0]
    for test in tests[1:]:
        together = _both(together, test)
    return together


def _both(first: Callable[[Any], None], second: Callable[[Any], None]) -> Any:
    def my_tests(make: Any) -> None:
        first(make)
        second(make)

    namespace = getattr(second, "__globals__", globals())
    both = types.FunctionType(my_tests.__code__, namespace, "my_tests", closure=my_tests.__closure__)
    both.__wrapped__ = first  # type: ignore[attr-defined]
    return both
