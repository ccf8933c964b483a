"""Our cuts are nbgrader's: its own preprocessors make the lesson from the solution. Skipped where nbgrader is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from tools.lessons.build import sources
from tools.lessons.notebook import METADATA, make_notebook
from tools.lessons.regions import STUB, RegionError, clear_hidden_tests, clear_solutions
from tools.lessons.source import read_lesson, stamped
from tools.nbgrader_course import main

preprocessors = pytest.importorskip("nbgrader.preprocessors")
nbgraderformat = pytest.importorskip("nbgrader.nbgraderformat")

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {path.stem: path for path in [*sources(ROOT), *sources(ROOT / "tests" / "notebooks" / "fixture")]}


def released(notebook: Any) -> Any:
    """The notebook as nbgrader hands it to students, with the course's stub."""
    for step in (preprocessors.ClearSolutions(code_stub={"python": STUB}), preprocessors.ClearHiddenTests()):
        notebook, _ = step.preprocess(notebook, {})
    return notebook


@pytest.mark.parametrize("path", SOURCES.values(), ids=SOURCES)
def test_release_is_the_lesson(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_text(stamped(path.read_text(encoding="utf-8")), encoding="utf-8")  # the fixture has no hashes yet
    solved, unsolved = (
        make_notebook(read_lesson(copy), solved=s, lang="en", has_notebook=lambda p: True) for s in (True, False)
    )
    for cell in solved.cells:
        nbgraderformat.MetadataValidator().validate_cell(cell)
    preprocessors.CheckCellMetadata().preprocess(solved, {})
    assert [c.source for c in released(solved).cells if c.cell_type == "code"] == [
        c.source for c in unsolved.cells if c.cell_type == "code"
    ]


def cell_of(code: str, kind: str) -> Any:
    metadata = {
        "grade": kind == "test",
        "grade_id": "a",
        "locked": False,
        "schema_version": 3,
        "solution": kind == "exercise",
        "task": False,
    }
    marked = {"nbgrader": metadata | ({"points": 1} if kind == "test" else {})} if kind else {}
    return nbformat.v4.new_code_cell(code, metadata=marked)


SOLUTION, HIDDEN = ("### BEGIN SOLUTION", "### END SOLUTION"), ("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS")
CODES = {
    "no region": "x = 1",
    "region": "def f():\n    {0}\n    return 1\n    {1}\nf()",
    "two regions": "{0}\na\n{1}\nb\n  {0}\nc\n  {1}",
    "empty region": "a\n\n{0}\n{1}",
    "only a region": "{0}\na\n{1}",
    "nested": "{0}\n{0}\na\n{1}\n{1}",
    "never closed": "a\n{0}\nb",
}


@pytest.mark.parametrize("kind", ["exercise", "test", ""])
@pytest.mark.parametrize("marks", [SOLUTION, HIDDEN], ids=["solution", "hidden"])
@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_same_text_or_an_error_in_both(code: str, marks: tuple[str, str], kind: str) -> None:
    code = code.format(*marks)
    try:
        theirs = released(nbformat.v4.new_notebook(cells=[cell_of(code, kind)], metadata=METADATA)).cells[0].source
    except RuntimeError:
        theirs = None
    try:
        ours = clear_hidden_tests(clear_solutions(code, kind == "exercise"), kind == "test")
    except RegionError:
        ours = None
    assert ours == theirs


def test_a_course_that_cannot_be_written_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "file"), "00"]) == 2
    assert "Not a directory" in capsys.readouterr().err


def test_lessons_may_come_after_the_language(tmp_path: Path) -> None:
    assert main([str(tmp_path), "--zh", "00"]) == 0
    assert [path.name for path in tmp_path.glob("source/*/*")] == ["00_start_here.ipynb"]


@pytest.mark.parametrize("number", ["1", "0", "", "99", "01_numpy_kv_cache", "../00", "*"])
def test_a_lesson_is_named_by_its_two_digits(number: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """ "1" is lesson 01 for a teacher, and was 10 to 15."""
    assert main([str(tmp_path / "my class"), "00", number]) == 2
    assert f"no lesson solutions/{number}_*.py; there are: 00_start_here, 01_" in capsys.readouterr().err
    assert not (tmp_path / "my class").exists()


def test_a_forgotten_folder_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["01", "02"])
    assert "the folder comes first" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
