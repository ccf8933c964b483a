"""Run a lesson's solutions in this process, cell by cell, and keep what each cell printed, showed and drew."""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import mini_engine.course
import mini_engine.models
from tools.lessons.source import Cell, Lesson, read_lesson

ROOT = Path(__file__).resolve().parents[2]
NEED_TRITON = ("10", "11")
SOURCES = {path.stem[:2]: path for path in sorted((ROOT / "solutions").glob("[0-9][0-9]_*.py"))}


@dataclass
class CellRun:
    """What one cell did. `shown` is the value of its last line, `panels` are those it made: (draw, panel)."""

    cell: Cell
    printed: str = ""
    shown: Any = None
    panels: list[tuple[Callable[..., str], Any]] = field(default_factory=list)

    @property
    def output(self) -> str:
        return self.printed + ("" if self.shown is None else repr(self.shown))

    @property
    def text(self) -> str:
        """All that a reader sees of the cell: its source, its output, the readouts of its panels."""
        return "\n".join([self.cell.text, self.output, *(panel.readout for _, panel in self.panels)])


@cache
def lesson(number: str) -> Lesson:
    return read_lesson(SOURCES[number])


@cache
def run_lesson(number: str) -> list[CellRun]:
    """Run the lesson `number` once. Solutions stand in its source, so every exercise is done.

    The large model is not asked, whether it is installed or not: what it writes is no part of any claim. Skips a lesson on
    kernels where Triton is missing.
    """
    if number in NEED_TRITON and find_spec("triton") is None:
        pytest.skip(f"lesson {number} needs Triton, which is not installed here")
    return run_cells(lesson(number).cells)


def run_cells(cells: list[Cell]) -> list[CellRun]:
    runs, namespace = [CellRun(cell) for cell in cells], {"__name__": "__main__"}
    with mock.patch.object(mini_engine.models, "available_models", return_value=["tiny-gqa"]):
        for run in runs:
            if run.cell.kind == "code":
                with _panels_of(run), contextlib.redirect_stdout(io.StringIO()) as printed:
                    run.shown = _execute(run.cell, namespace)
                run.printed = printed.getvalue()
    return runs


def _execute(cell: Cell, namespace: dict[str, Any]) -> Any:
    """Run the code; the value of its last line, as a notebook shows it."""
    tree = ast.parse(cell.text)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    where = f"<cell at line {cell.line}>"
    linecache.cache[where] = (len(cell.text), None, cell.text.splitlines(keepends=True), where)  # Triton reads source
    exec(compile(tree, where, "exec"), namespace)
    return None if last is None else eval(compile(ast.Expression(last.value), where, "eval"), namespace)


@contextlib.contextmanager
def _panels_of(run: CellRun) -> Iterator[None]:
    """While a cell runs, note the panels that it makes, also by a name that an earlier cell imported."""
    from mini_engine.course import panel_widget

    class Noted(panel_widget.Panel):
        def __init__(self, draw: Callable[..., str], controls: dict[str, Any], **size: float) -> None:
            super().__init__(draw, controls, **size)
            run.panels.append((draw, self))

    with mock.patch.object(panel_widget, "Panel", Noted):
        yield
