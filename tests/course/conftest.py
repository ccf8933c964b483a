"""A learner's cell, and exercises that exist for the length of one test."""

from __future__ import annotations

import linecache
import textwrap
import types
from collections.abc import Callable
from typing import Any

import pytest

from mini_engine.course import exercises
from mini_engine.course.predict import predict


@pytest.fixture(autouse=True)
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a learner runs a notebook, whatever the environment of the test run."""
    monkeypatch.delenv("COURSE_STRICT", raising=False)
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)


@pytest.fixture
def defined(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """defined(exercise, prediction, ...): the only ones that exist in this test."""

    def define(*things: Any) -> None:
        module = types.ModuleType("mini_engine.course.exercises.e99_of_a_test")
        vars(module).update({f"thing_{number}": thing for number, thing in enumerate(things)})
        monkeypatch.setattr(exercises, "lesson_modules", lambda lesson="": [module])

    return define


@pytest.fixture
def cell() -> Callable[[str], dict[str, Any]]:
    """cell(source): the namespace after running the source as a notebook cell, whose lines appear in tracebacks."""

    def run(source: str) -> dict[str, Any]:
        source = textwrap.dedent(source)
        name = f"<cell {hash(source):x}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, name, "exec"), namespace)
        return namespace

    return run


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """said(id, ...): what `predict` prints."""

    def say(*args: Any, **kwargs: Any) -> str:
        predict(*args, **kwargs)
        text = capsys.readouterr().out
        assert text.startswith("[predict] ")
        assert all(line.startswith(("[predict] ", " ")) for line in text.splitlines())
        return text

    return say
