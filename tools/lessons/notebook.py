"""Make a notebook from a lesson: pick the language, cut the solutions, give every cell an id that stays."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from nbformat import NotebookNode, v4

from tools.lessons import links, regions
from tools.lessons.source import Cell, Lesson, SourceError

IGNORE = "nbval-ignore-output"
FOLDERS = {
    (True, "en"): "solutions",
    (True, "zh"): "solutions/zh",
    (False, "en"): "lessons",
    (False, "zh"): "lessons/zh",
}
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def make_notebook(lesson: Lesson, *, solved: bool, lang: str, has_notebook: Callable[[str], bool]) -> NotebookNode:
    """The notebook without outputs. Raises SourceError for a region that nbgrader would refuse."""
    folder = FOLDERS[solved, lang]
    cells = []
    for cell, cell_id in zip(lesson.cells, cell_ids(lesson)):
        metadata: dict[str, Any] = {"tags": cell.tags} if cell.tags else {}
        if slide := _slide(cell):
            metadata["slideshow"] = {"slide_type": slide}
        if cell.kind == "markdown":
            text = cell.text if lang == "en" else cell.zh or ""
            made = v4.new_markdown_cell(links.rewritten(text, folder, has_notebook), metadata=metadata)
        else:
            if cell.exercise or cell.test:
                metadata["nbgrader"] = _nbgrader(cell)
            made = v4.new_code_cell(cell.text if solved else _unsolved(cell, lesson), metadata=metadata)
        made["id"] = cell_id
        cells.append(made)
    return v4.new_notebook(cells=cells, metadata=METADATA)


def cell_ids(lesson: Lesson) -> list[str]:
    """An id for every cell: a hash of lesson, text and how often that text came before, so that inserting a cell moves no other.

    The text is the English one with its solution, so all four notebooks of a lesson share their ids.
    """
    seen: Counter[str] = Counter()
    ids = []
    for cell in lesson.cells:
        key = f"{lesson.name}\0{cell.kind}\0{cell.text}"
        ids.append(hashlib.sha256(f"{key}\0{seen[key]}".encode()).hexdigest()[:12])
        seen[key] += 1
    return ids


def _slide(cell: Cell) -> str:
    """Where `jupyter nbconvert --to slides` turns the page: at a heading, and for an exercise. Other cells follow on."""
    if cell.exercise:
        return "subslide"
    text = re.sub(r"```.*?```", "", cell.text, flags=re.S)
    return "slide" if cell.kind == "markdown" and re.search(r"^##? ", text, re.M) else ""


def _unsolved(cell: Cell, lesson: Lesson) -> str:
    try:
        code = regions.clear_solutions(cell.text, bool(cell.exercise))
        return regions.clear_hidden_tests(code, bool(cell.test))
    except regions.RegionError as error:
        raise SourceError(f"solutions/{lesson.name}.py:{cell.line}: {error}") from None


def _nbgrader(cell: Cell) -> dict[str, Any]:
    """nbgrader's metadata: an exercise is written by the learner, its test is locked and gives the points."""
    name = (cell.exercise or f"test_{cell.test}").replace(".", "_")
    grade = {"points": cell.points} if cell.test else {}
    is_test = bool(cell.test)
    return {
        "grade": is_test, "grade_id": name, "locked": is_test, "schema_version": 3, "solution": not is_test, "task": False,
        **grade,
    }  # fmt: skip


def clean_outputs(notebook: NotebookNode) -> None:
    """Make freshly run outputs the same on every run: one stream each for stdout and stderr, fixed widget ids, no timestamps."""
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        cell.metadata.pop("execution", None)
        cell.outputs = merged_streams(cell.outputs)
        for number, output in enumerate(cell.outputs):
            view = output.get("data", {}).get("application/vnd.jupyter.widget-view+json")
            if view:
                view["model_id"] = hashlib.sha256(f"{cell['id']}\0{number}".encode()).hexdigest()[:32]
    notebook.metadata = NotebookNode(METADATA)


def merged_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """All text of one stream in one output, where the stream first appears: the split depends on timing."""
    merged: list[NotebookNode] = []
    first: dict[str, NotebookNode] = {}
    for output in outputs:
        if output.output_type == "stream" and output.name in first:
            first[output.name].text += output.text
            continue
        if output.output_type == "stream":
            first[output.name] = output
        merged.append(output)
    return merged


def copy_outputs(source: NotebookNode, target: NotebookNode) -> None:
    """Give the Chinese twin the outputs of the English notebook, whose code is the same."""
    for ours, theirs in zip(source.cells, target.cells):
        if ours.cell_type == "code":
            theirs.outputs, theirs.execution_count = ours.outputs, ours.execution_count


def keep_ignored_outputs(notebook: NotebookNode, previous: NotebookNode) -> None:
    """Keep the stored output of a cell tagged to be ignored while its source is unchanged: times differ on every run."""
    stored = {cell["id"]: cell for cell in previous.cells if cell.cell_type == "code" and cell.execution_count}
    for cell in notebook.cells:
        if cell.cell_type == "code" and IGNORE in cell.metadata.get("tags", []):
            old = stored.get(cell["id"])
            if old is not None and old.source == cell.source:
                cell.outputs = old.outputs
                for output in cell.outputs:  # the cell may have moved since
                    if output.output_type == "execute_result":
                        output.execution_count = cell.execution_count
