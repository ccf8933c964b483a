"""Follow a claim to the place where a learner runs or sees it, and run it there.

Every kind of place has a function here. It raises AssertionError when there is nothing to see, and returns the text that
a learner finds there.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import re
import shlex
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mini_engine.cli import main
from mini_engine.course.exercise import Exercise, Prediction
from mini_engine.course.exercises import find
from mini_engine.course.predict import predict
from tests.lessons.lesson_run import CellRun

NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w]|[.,]\d)")
ANSWER = re.compile(r"<summary>(.*?)</summary>(.*?)</details>", re.DOTALL)


def follow(place: str, runs: list[CellRun]) -> str:
    """Run what stands at `place` of a lesson that has been run; the text there. AssertionError says what is missing."""
    kind, _, name = place.partition(":")
    assert kind in KINDS, f"{place!r} must start with one of {', '.join(f'{kind}:' for kind in KINDS)}"
    assert name, f"{place!r} names nothing"
    return KINDS[kind](name, runs)


def cell(tag: str, runs: list[CellRun]) -> str:
    """Cells with this tag: code that shows something, or a text with answered questions, a list or a table."""
    tagged = [r for r in runs if tag in r.cell.tags]
    assert tagged, f"no cell has the tag {tag!r}"
    code = [r for r in tagged if r.cell.kind == "code"]
    assert all(r.cell.text.strip() for r in tagged), f"a cell with the tag {tag!r} is empty"
    if code:
        assert any(r.output.strip() for r in code), f"no cell with the tag {tag!r} prints or shows anything"
    texts = [run.cell.text for run in tagged]
    for question, answer in itertools.chain(*map(ANSWER.findall, texts)):
        assert len(answer.split()) >= 8, f"no answer to {question!r}"
    assert code or any(ANSWER.search(text) or re.search(r"(?m)^(> )?(- |\| )\w", text) for text in texts), (
        f"the text with the tag {tag!r} neither answers a question nor holds a list or a table"
    )
    return "\n".join(r.text for r in tagged)


def exercise(id: str, runs: list[CellRun]) -> str:
    """An exercise that the lesson checks: the answer in its source passes. (tests/course tries every right answer.)"""
    found = find(Exercise, id)
    asked = _cells_that_call("check", id, runs)
    assert f"[ok] {id}" in asked[0].printed, asked[0].printed
    statement = [r.cell.text for r in _before(asked[0], runs)]
    return "\n".join([*statement, asked[0].text, inspect.getsource(inspect.getmodule(found.properties[0].run))])


def prediction(id: str, runs: list[CellRun]) -> str:
    """A prediction that the lesson asks for: it accepts its answer."""
    found = find(Prediction, id)
    _cells_that_call("predict", id, runs)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        predict(id)
        predict(id, found.answer)
        for wrong, _ in found.mistakes:
            predict(id, wrong)
    assert "is right" in printed.getvalue(), printed.getvalue()
    return printed.getvalue()


def panel(name: str, runs: list[CellRun]) -> str:
    """A panel of the lesson, `module.function` in the course's panels: it draws, from end to end of every control."""
    shown = [p for r in runs for draw, p in r.panels if f"{draw.__module__.split('.')[-1]}.{draw.__name__}" == name]
    assert shown, f"no cell shows a panel of {name}"
    return "\n".join(text for each in shown for text in draw_everywhere(each))


def command(line: str, runs: list[CellRun]) -> str:
    """A command that the lesson names: it runs, and prints what a learner would read."""
    program, *arguments = shlex.split(line)
    assert program == "mini-engine", f"{line!r} is no command of this package"
    assert any(f"mini-engine {arguments[0]}" in r.cell.text for r in runs), (
        f"no cell speaks of mini-engine {arguments[0]}"
    )
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            status = main(arguments)
        except SystemExit as leave:
            status = leave.code
    assert status in (0, None), err.getvalue()
    assert out.getvalue().strip(), f"{line!r} prints nothing"
    return out.getvalue()


KINDS: dict[str, Callable[[str, list[CellRun]], str]] = {
    "cell": cell,
    "exercise": exercise,
    "prediction": prediction,
    "panel": panel,
    "command": command,
}


def numbers(text: str) -> set[str]:
    """The numbers in a text, without thousands separators; those of one digit say too little to be looked for."""
    found = {match[0].replace(",", "") for match in NUMBER.finditer(text.replace("_", ""))}
    return {number for number in found if len(number) > 1}


def draw_everywhere(panel: Any) -> list[str]:
    """Draw a panel for its start values, each control's every end, and all corners; what it says each time."""
    start = panel.values
    ends = {name: _ends(control) for name, control in panel.controls.items()}
    corners = [dict(zip(ends, values)) for values in itertools.product(*((e[0], e[-1]) for e in ends.values()))]
    singles = [{**start, name: value} for name, values in ends.items() for value in values]
    said = []
    for values in [start, *singles, *(corners if len(corners) <= 64 else [corners[0], corners[-1]])]:
        text, faults = drawn(panel, values)
        assert not faults, f"{values}: {'; '.join(faults)}\n{text}"
        said.append(text)
    return said


def drawn(panel: Any, values: dict[str, Any]) -> tuple[str, list[str]]:
    """What the panel says for these values, and what is wrong with the picture."""
    from mini_engine.course import figures

    panel.figure.clear()
    with figures.style(), warnings.catch_warnings():
        warnings.simplefilter("error")
        text = panel.draw(panel.figure, **values)
        figures.png(panel.figure)
    words = [text, *(each.get_text() for each in panel.figure.findobj(lambda artist: hasattr(artist, "get_text")))]
    faults = [f"it says {word!r}" for word in words if re.search(r"(?i)\b(nan|inf|none)\b", word)]
    if not panel.figure.axes:
        faults.append("it draws nothing")
    for axes in panel.figure.axes:
        faults += _faults(axes)
    return text, faults


def _faults(axes: Any) -> Iterator[str]:
    name = axes.get_title() or axes.get_title("left") or "axes"
    lines = [np.asarray(line.get_xydata(), float) for line in axes.lines]
    if any(not np.isfinite(line).all() for line in lines):
        yield f"{name}: a line has points that are no numbers"
    if any(not np.isfinite(patch.get_path().vertices).all() for patch in axes.patches):
        yield f"{name}: a shape has corners that are no numbers"
    if not np.isfinite([*axes.get_xlim(), *axes.get_ylim()]).all():
        yield f"{name}: its limits are no numbers"
    pieces = [line for line in lines if line.size], axes.patches, axes.collections, axes.images, axes.texts, axes.tables
    if axes.axison and not any(pieces):
        yield f"{name}: nothing is drawn in it"


def _ends(control: Any) -> list[Any]:
    if hasattr(control, "min"):
        return [control.min, control.max]
    if hasattr(control, "options"):
        options = [option[1] if isinstance(option, tuple) else option for option in control.options]
        return options if all(isinstance(option, str) for option in options) else [options[0], options[-1]]
    return [control.value] if isinstance(control.value, str) else [False, True]


def _cells_that_call(function: str, id: str, runs: list[CellRun]) -> list[CellRun]:
    asked = [
        r
        for r in runs
        if r.cell.kind == "code" and re.search(rf"\b{function}\(\s*[\"']{re.escape(id)}[\"']", r.cell.text)
    ]
    assert asked, f"no cell calls {function}({id!r}, ...)"
    return asked


def _before(run: CellRun, runs: list[CellRun]) -> list[CellRun]:
    """The statement of an exercise: the cells from the text before its stub down to its check."""
    end = next(i for i, each in enumerate(runs) if each is run)
    texts = [i for i in range(end) if runs[i].cell.kind == "markdown"]
    return runs[texts[-1] if texts else 0 : end]
