"""Read a lesson's source: jupytext percent cells, twin texts in English and Chinese, exercises and their checks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jupytext

from tools.lessons import twins

OPTIONS = {"lang", "en", "tags", "exercise", "test", "points"}
HEADER = re.compile(r"^# %%")


class SourceError(ValueError):
    """A source that cannot be built; every fault found, one a line, with file and line number."""


@dataclass
class Cell:
    """One cell. `text` is the code, or the English; `zh` is the Chinese twin of a text cell."""

    kind: str  # "markdown" or "code"
    text: str
    line: int
    zh: str | None = None
    tags: list[str] = field(default_factory=list)
    exercise: str = ""
    test: str = ""
    points: int = 0


@dataclass
class Lesson:
    """A lesson as written. `translated` is false while its header says so; then there are no Chinese notebooks."""

    name: str
    cells: list[Cell]
    translated: bool = True


def is_translated(path: Path) -> bool:
    """False while the header of the source says `translated: false`."""
    metadata = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent").metadata
    return bool(metadata.get("course", {}).get("translated", True))


def read_lesson(path: Path) -> Lesson:
    """The lesson in `path`; raises SourceError naming every fault.

    A lesson that is still English only says so at its top:

        # ---
        # jupyter:
        #   course:
        #     translated: false
        # ---
    """
    text = path.read_text(encoding="utf-8")
    notebook = jupytext.reads(text, fmt="py:percent")
    translated = is_translated(path)
    lines = [number for number, line in enumerate(text.splitlines(), 1) if HEADER.match(line)]
    faults: list[str] = []
    if len(lines) != len(notebook.cells):
        faults.append(f"{path}: text before the first `# %%`, or a `# %%` line inside a cell")
        lines = [0] * len(notebook.cells)
    cells: list[Cell] = []
    waiting: Cell | None = None  # an English text whose twin comes next
    for raw, line in zip(notebook.cells, lines):
        where = f"{path}:{line}"
        options: dict[str, Any] = {k: v for k, v in raw.metadata.items() if k != "lines_to_next_cell"}
        faults += [f"{where}: unknown cell option {key!r}" for key in sorted(set(options) - OPTIONS)]
        lang = options.get("lang")
        if lang == "zh":
            if waiting is None:
                faults.append(f"{where}: a Chinese text must follow its English twin")
                continue
            if translated:
                faults += [
                    f"{where}: {fault}" for fault in twins.differences(waiting.text, raw.source, options.get("en"))
                ]
            waiting.zh, waiting = raw.source, None
            continue
        if waiting is not None and translated:
            faults.append(f"{path}:{waiting.line}: this English text has no Chinese twin after it")
        cell = Cell(raw.cell_type, raw.source, line, None, list(options.get("tags", [])))
        waiting = cell if cell.kind == "markdown" else None
        if cell.kind == "markdown" and lang != "en":
            faults.append(f'{where}: a text cell needs lang="en" or lang="zh"')
        if cell.kind == "code":
            cell.exercise, cell.test = str(options.get("exercise", "")), str(options.get("test", ""))
            cell.points = options.get("points", 0)
            faults += [f"{where}: {fault}" for fault in _code_faults(cell)]
        cells.append(cell)
    if waiting is not None and translated:
        faults.append(f"{path}:{waiting.line}: this English text has no Chinese twin after it")
    names = [(kind, name) for c in cells for kind, name in (("exercise", c.exercise), ("test", c.test)) if name]
    faults += [
        f"{path}: two cells with {kind}={name!r}" for kind, name in sorted({n for n in names if names.count(n) > 1})
    ]
    if faults:
        raise SourceError("\n".join(faults))
    return Lesson(path.stem, cells, translated)


def _code_faults(cell: Cell) -> list[str]:
    faults = []
    if cell.exercise and cell.test:
        faults.append("one cell cannot be both an exercise and its test")
    if cell.test and (type(cell.points) is not int or cell.points < 0):
        faults.append(f"a test cell needs a whole number of points, not {cell.points!r}")
    if cell.points and not cell.test:
        faults.append("points belong to a test cell")
    if "NBVAL_" in cell.text:
        faults.append('use tags=["nbval-ignore-output"], not an NBVAL comment: the build looks at tags')
    return faults


def stamped(text: str) -> str:
    """The source text with the hash of each English cell written into its Chinese twin's cell line."""
    lines = text.split("\n")
    headers = [number for number, line in enumerate(lines) if HEADER.match(line)]
    cells = jupytext.reads(text, fmt="py:percent").cells
    if len(headers) != len(cells):
        raise SourceError("text before the first `# %%`, or a `# %%` line inside a cell")
    english = ""
    for number, cell in zip(headers, cells):
        if cell.metadata.get("lang") == "en":
            english = cell.source
        elif cell.metadata.get("lang") == "zh":
            bare = re.sub(r' en="[^"]*"', "", lines[number])
            lines[number] = bare.replace('lang="zh"', f'lang="zh" en="{twins.text_hash(english)}"')
    return "\n".join(lines)
