"""The bugs that learners hunt: the lesson's own tests catch every one, each is in one method, and none tells its name."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mini_engine.course import bugs_caught
from mini_engine.course.bug_bank import BugHunt
from mini_engine.course.bugs_caught import try_tests
from mini_engine.course.exercises import all_of

Cell = Callable[[str], dict[str, Any]]
HUNTS = {hunt.id: hunt for hunt in all_of(BugHunt)}
CACHES = [HUNTS[f"{lesson}.bugs"] for lesson in ("06", "07", "08", "09")]
BUGS = {f"{hunt.id}: {name}": (hunt, name) for hunt in HUNTS.values() for name in hunt.bank.wrong}

each_hunt = pytest.mark.parametrize("hunt", HUNTS.values(), ids=HUNTS)
each_cache = pytest.mark.parametrize("hunt", CACHES, ids=[hunt.id for hunt in CACHES])


@pytest.fixture(autouse=True)
def nothing_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new notebook: no reference has been handed out yet."""
    monkeypatch.setattr(sys.modules["mini_engine.course.check"], "_not_right", {})  # `check` is the function


@pytest.mark.parametrize(("hunt", "name"), BUGS.values(), ids=BUGS)
def test_the_lesson_s_own_tests_catch_every_bug(hunt: BugHunt, name: str) -> None:
    assert hunt.bank.objection(hunt.reference, name) is not None


@each_hunt
def test_all_right(hunt: BugHunt, capsys: pytest.CaptureFixture[str]) -> None:
    assert bugs_caught(hunt.reference, hunt.id[:2] if hunt in CACHES else hunt.id) is hunt.reference
    number = len(hunt.bank.wrong)
    assert f"[ok] {hunt.id}  your tests caught {number} of {number} bugs" in capsys.readouterr().out


@each_hunt
def test_a_test_that_asserts_nothing_catches_nothing(hunt: BugHunt, cell: Cell) -> None:
    mine = cell("def mine(*args): pass")["mine"]
    caught = try_tests(hunt, [mine])
    assert (caught.status, caught.num_caught) == ("no", 0)
    *bugs, silent = caught.outcomes[1:]
    assert all(outcome.detail.startswith("Hint: ") for outcome in bugs) or hunt not in CACHES
    assert "by raising AssertionError" in silent.detail


@each_cache
def test_a_bug_is_in_one_method(hunt: BugHunt) -> None:
    """The engine's own code, but for one method; making the cache is enough to find nothing wrong."""
    for bug in hunt.bank.wrong.values():
        kind = bug.implementation
        cache = kind(8) if hunt.id == "06.bugs" else kind(8, 4)
        pool = getattr(cache, "pool", None)
        parts = [cache, pool, getattr(pool, "free_queue", None), getattr(cache, "index", None)]
        overridden = [
            name
            for part in parts
            for parent in type(part).__mro__
            if parent.__module__.startswith("mini_engine.course.exercises.bugs")
            for name, member in vars(parent).items()
            if inspect.isfunction(member) and name != "__init__"
        ]
        assert len(overridden) == 1, (kind, overridden)


@each_cache
def test_bugs_do_not_tell_their_names(hunt: BugHunt) -> None:
    given = [hunt.bank.hand_out(bug.implementation) for bug in hunt.bank.wrong.values()]
    given += [hunt.bank.hand_out(right) for right in hunt.bank.right.values()]
    [(name, words)] = {(kind.__name__, kind.__doc__) for kind in given}
    assert (name, words) == (hunt.bank.kind.split()[-1].title(), f"The {hunt.bank.kind.split()[-1]} under test.")
    assert not set(given) & {bug.implementation for bug in hunt.bank.wrong.values()}
