"""Every lesson of the course: its notebooks are what its source says, its outputs are what its code does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

from tests.notebooks.nbval_runs import ROOT, Runs, failures, runs_here, sanitized
from tools.lessons.build import build, compare, sources, stale
from tools.lessons.notebook import FOLDERS, IGNORE, merged_streams
from tools.lessons.source import is_translated

SOURCES = {path.stem: path for path in sources(ROOT)}
NOTEBOOKS = {
    f"{folder}/{name}": ROOT / folder / f"{name}.ipynb"
    for name, path in SOURCES.items()
    for (_, lang), folder in FOLDERS.items()
    if lang == "en" or is_translated(path)
}
MAX_BYTES = 150_000

each_lesson = pytest.mark.parametrize("name", SOURCES)
each_run = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.skipif(not runs_here(n), reason="needs Triton")) for n in SOURCES]
)
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS.values(), ids=NOTEBOOKS)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def code_cells(path: Path) -> list[Any]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def compared(outputs: list[Any]) -> Any:
    """Outputs as nbval compares them: widget ids left out, the sanitize rules applied to every text."""
    parts: dict[str, list[str]] = {}
    for output in merged_streams(outputs):
        if output.output_type == "stream":
            parts.setdefault(output.name, []).append(sanitized(output.text))
        for kind, data in output.get("data", {}).items():
            if kind != "application/vnd.jupyter.widget-view+json":
                parts.setdefault(kind, []).append(sanitized(data) if isinstance(data, str) else json.dumps(data))
    return parts


@each_notebook
def test_executed_in_order_without_errors(path: Path) -> None:
    cells = code_cells(path)
    assert cells
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert [o for o in outputs if o.output_type == "error"] == []
    assert [o.text for o in outputs if o.get("name") == "stderr"] == [], (
        "warnings and progress bars do not belong in a lesson"
    )


@each_notebook
def test_valid_and_small(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert "widgets" not in notebook.metadata
    assert path.stat().st_size < MAX_BYTES


@each_lesson
def test_lessons_hold_no_solution(name: str) -> None:
    for folder in ("lessons", "lessons/zh"):
        path = NOTEBOOKS.get(f"{folder}/{name}")
        if path is None:
            continue
        text = path.read_text(encoding="utf-8")
        assert not re.search("(BEGIN|END) (SOLUTION|HIDDEN TESTS)", text)
        for ours, theirs in zip(code_cells(path), code_cells(NOTEBOOKS[f"solutions/{name}"]), strict=True):
            if ours.metadata.get("nbgrader", {}).get("solution"):
                assert "raise NotImplementedError" in ours.source
                assert ours.source != theirs.source
            else:
                assert theirs.source.startswith(ours.source), "all but the hidden tests is the same"


@pytest.mark.parametrize("kind", ["lessons", "solutions"])
@pytest.mark.parametrize("name", [name for name, path in SOURCES.items() if is_translated(path)])
def test_chinese_twin_has_the_same_code_and_outputs(name: str, kind: str) -> None:
    english, chinese = read(NOTEBOOKS[f"{kind}/{name}"]), read(NOTEBOOKS[f"{kind}/zh/{name}"])
    for ours, theirs in zip(english.cells, chinese.cells, strict=True):
        assert (ours.cell_type, ours["id"], ours.metadata) == (theirs.cell_type, theirs["id"], theirs.metadata)
        if ours.cell_type == "code":
            assert ours == theirs
        else:
            assert re.search("[\u4e00-\u9fff]", theirs.source) or ours.source == theirs.source
            assert not re.search("[\u4e00-\u9fff]", ours.source) or "zh" in ours.metadata.get("tags", [])


@each_lesson
def test_solved_outputs_compare_equal_to_the_unsolved_ones(name: str) -> None:
    """So a learner's solved notebook passes nbval against the outputs it came with; nbval on solutions/ runs that code."""
    unsolved, solved = code_cells(NOTEBOOKS[f"lessons/{name}"]), code_cells(NOTEBOOKS[f"solutions/{name}"])
    for number, (ours, theirs) in enumerate(zip(unsolved, solved, strict=True)):
        if IGNORE not in ours.metadata.get("tags", []):
            assert compared(ours.outputs) == compared(theirs.outputs), f"cell {number}: {ours.source}"


@each_run
def test_lesson_passes_nbval(name: str, runs: Runs) -> None:
    assert failures(runs.cells("lessons", name)) == ""


@each_run
def test_solution_passes_nbval_strict(name: str, runs: Runs) -> None:
    assert failures(runs.cells("solutions", name)) == ""


@each_lesson
def test_every_check_knows_a_stub(name: str) -> None:
    """By the stored outputs, which nbval compares with a run. Where check() says [todo], COURSE_STRICT=1 makes it an error:
    test_build.py runs that, on its small lesson, and the slow test below on every lesson."""
    checks = [c for c in code_cells(NOTEBOOKS[f"lessons/{name}"]) if c.metadata.get("nbgrader", {}).get("grade")]
    assert checks
    for cell in checks:
        assert any(o.get("text", "").startswith("[todo] ") for o in cell.outputs), f"lets a stub through: {cell.source}"


@pytest.mark.slow
@each_run
def test_stubs_fail_at_their_checks_under_strict(name: str, runs: Runs) -> None:
    cells, stored = runs.cells("stubs", name), code_cells(NOTEBOOKS[f"lessons/{name}"])
    checks = [n for n, cell in enumerate(stored) if cell.metadata.get("nbgrader", {}).get("grade")]
    assert checks
    for number in checks:
        assert "CheckFailed" in cells[number]["message"], f"cell {number} lets a stub through: {stored[number].source}"


@each_run
def test_rebuild_writes_the_same(name: str, runs: Runs) -> None:
    """A build from the source, with the outputs of the nbval runs above in place of two more runs, leaves no diff."""

    def from_the_run(notebook: NotebookNode, root: Path, folder: str, strict: bool) -> NotebookNode:
        ran = runs.cells("solutions" if strict else "lessons", name)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        for number, (cell, done) in enumerate(zip(code, ran, strict=True), 1):
            cell.outputs, cell.execution_count = nbformat.from_dict(done["outputs"]), number
            for output in cell.outputs:
                if output.output_type == "execute_result":  # nbval runs cells without a history, so without a count
                    output.execution_count = number
        return notebook

    assert "\n".join(compare(ROOT, build(ROOT, SOURCES[name], execute=from_the_run))) == ""


def test_no_notebook_without_a_source() -> None:
    assert SOURCES
    assert stale(ROOT) == []
