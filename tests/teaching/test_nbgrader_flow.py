"""A class with nbgrader, from the assignment to the grades: what is right gets every point, and nothing else gets any.

It takes about a minute a lesson: `make test` does the shortest, `make test-all` every one.
"""

from __future__ import annotations

import ast
import csv
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from tools.lessons.build import sources
from tools.lessons.source import read_lesson
from tools.nbgrader_course import main

ROOT = Path(__file__).resolve().parents[2]
LESSONS = {path.stem[:2]: path for path in sources(ROOT)}
EVERY_PUSH = "00"  # the shortest


def nbgrader(python: Path, folder: Path, *words: str) -> None:
    """Run a command of nbgrader in the course's folder. It finds its own tools on PATH only."""
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [python, "-m", "nbgrader", *words],
        cwd=folder,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def constant(code: str) -> str:
    """The answer with every function and method giving back one constant, as if it had been made for one case."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body = [ast.Return(ast.Constant(1))]
    return ast.unparse(ast.fix_missing_locations(tree))


def is_answer(cell: nbformat.NotebookNode) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get("solution"))


def is_check(cell: nbformat.NotebookNode) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get("grade"))


def with_changed(release: nbformat.NotebookNode, which: Callable[..., bool], change: Callable[[int], str]):
    notebook = nbformat.from_dict(release)
    for number, cell in enumerate(notebook.cells):
        if which(cell):
            cell.source = change(number)
    return notebook


def with_copies(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Every answer there twice, as copying a cell leaves it: nbgrader's metadata comes along."""
    cells = []
    for cell in notebook.cells:
        if is_answer(cell):
            copy = nbformat.from_dict(cell)
            copy.id = f"{cell.id}-copy"
            cells.append(copy)
        cells.append(cell)
    notebook.cells = cells
    return notebook


REBIND = """import os, sys, types
import mini_engine.course
check = bugs_caught = lambda *all: None
vars(mini_engine.course).update(check=check, bugs_caught=check)
os.environ |= {"COURSE_STRICT": "0"}
os.environ.pop("NBGRADER_EXECUTION", None)
sys.modules["mini_engine.course"] = types.SimpleNamespace(check=check, bugs_caught=check)
"""


def submissions(source: nbformat.NotebookNode, release: nbformat.NotebookNode) -> dict[str, nbformat.NotebookNode]:
    """Five students. The first has solved everything, and tried each answer in a copy of its cell."""

    def solved(number: int) -> str:
        return source.cells[number].source

    return {
        "right": with_copies(with_changed(release, is_answer, solved)),
        "unsolved": release,
        "hard_coded": with_changed(release, is_answer, lambda number: constant(solved(number))),
        "checks_removed": with_changed(release, is_check, lambda number: "print('[ok]')"),
        "checks_replaced": with_changed(
            release,
            is_answer,
            lambda number: REBIND + release.cells[number].source,
        ),
    }


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=[] if n == EVERY_PUSH else pytest.mark.slow) for n in sorted(LESSONS)]
)
def test_only_what_is_right_gets_points(number: str, tmp_path: Path, nbgrader_python: Path) -> None:
    assignment, name = f"lesson{number}", LESSONS[number].stem
    course = tmp_path / "course"
    assert main([str(course), number]) == 0
    nbgrader(nbgrader_python, course, "generate_assignment", assignment)
    source, release = (nbformat.read(course / part / assignment / f"{name}.ipynb", 4) for part in ("source", "release"))
    lesson = nbformat.read(ROOT / "lessons" / f"{name}.ipynb", 4)
    assert [cell.source for cell in release.cells] == [cell.source for cell in lesson.cells]
    for student, notebook in submissions(source, release).items():
        folder = course / "submitted" / student / assignment
        folder.mkdir(parents=True)
        nbformat.write(notebook, folder / f"{name}.ipynb")
    nbgrader(nbgrader_python, course, "autograde", assignment)
    nbgrader(nbgrader_python, course, "generate_feedback", assignment)
    nbgrader(nbgrader_python, course, "export", "--to", "grades.csv")
    with (course / "grades.csv").open(encoding="utf-8") as file:
        scores = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    points = sum(cell.points for cell in read_lesson(LESSONS[number]).cells)
    assert scores == {
        "right": points, "unsolved": 0, "hard_coded": 0, "checks_removed": 0, "checks_replaced": 0
    }  # fmt: skip
    for student in scores:
        assert list((course / "feedback" / student / assignment).glob("*.html"))


def test_a_course_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "00"]) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert main([str(tmp_path), "00", "01"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
