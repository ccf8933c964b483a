"""`mini-engine progress`: which exercises pass, read from what the saved notebooks show. Nothing is run."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEAD = re.compile(r"^\[(ok|no|todo)\] (\d\d\.\w+)", re.M)
MARKS = {"ok": "[ok]", "no": "[no]", "todo": "[  ]", "not run": "[  ]"}
DEFAULTS = (Path("my_lessons"), Path("lessons"))  # `make lab` copies to the first, conda works in the second


@dataclass(frozen=True)
class Cell:
    """One check cell: its exercises, their status ("ok", "no", "todo" or "not run"), and the points it is worth."""

    exercise: str
    status: str
    points: int


def read_progress(path: Path) -> list[Cell]:
    """The check cells of a notebook in order. ValueError when the file is no notebook."""
    try:
        if not path.is_file():  # a pipe would be waited for
            raise FileNotFoundError
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return [_cell(cell) for cell in cells if (cell.get("metadata", {}).get("nbgrader") or {}).get("grade")]
    except (ValueError, LookupError, TypeError, AttributeError, OSError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{path} is not a notebook that can be read ({type(error).__name__})") from error


def _cell(cell: dict[str, Any]) -> Cell:
    text = "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")
    found = HEAD.findall(text)
    statuses = {status for status, _ in found}
    status = next((s for s in ("no", "todo", "ok") if s in statuses), "not run")
    source = "".join(cell["source"])
    names = (
        [id_ for _, id_ in found]
        or re.findall(r'"(\d\d(?:\.\w+)?)"', source)
        or [cell["metadata"]["nbgrader"]["grade_id"]]
    )
    return Cell(" ".join(dict.fromkeys(names)), status, int(cell["metadata"]["nbgrader"].get("points", 0)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `mini-engine progress`."""
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        help="your notebooks, or one of them (default: my_lessons; without it lessons, or here)",
    )
    parser.add_argument("--json", action="store_true", help="print the status of every exercise as JSON")


def run(args: argparse.Namespace) -> int:
    """Print one line a lesson. FileNotFoundError when there is no lesson in the folder."""
    folder = args.folder or next((path for path in DEFAULTS if path.is_dir()), Path())
    if folder.is_file():
        folder, paths = folder.parent, [folder]
    else:
        paths = sorted(p for p in folder.rglob("[0-9][0-9]_*.ipynb") if ".ipynb_checkpoints" not in p.parts)
    if not paths:
        raise FileNotFoundError(
            f"no lesson in {folder}: name the folder, or run `make lab`, which copies them to my_lessons/"
        )
    lessons, unreadable = {}, []
    for path in paths:
        try:
            lessons[path.relative_to(folder).with_suffix("").as_posix()] = read_progress(path)
        except ValueError as error:
            unreadable.append(str(error))
    if args.json:
        print(json.dumps({name: [vars(cell) for cell in cells] for name, cells in lessons.items()}, indent=1))
    else:
        _print(_in_one_language(lessons))
    for line in unreadable:
        print(f"left out: {line}", file=sys.stderr)
    return 1 if unreadable else 0


def _in_one_language(lessons: dict[str, list[Cell]]) -> dict[str, list[Cell]]:
    """Of a lesson in both languages, the notebook that somebody works in: both, where both were touched."""

    def is_idle(name: str) -> bool:
        return name in lessons and all(cell.status in ("todo", "not run") for cell in lessons[name])

    def is_left_out(name: str) -> bool:
        path = Path(name)
        is_chinese = path.parent.name == "zh"
        twin = (path.parents[1] / path.name if is_chinese else path.parent / "zh" / path.name).as_posix()
        return is_idle(name) and twin in lessons and (is_chinese or not is_idle(twin))

    return {name: cells for name, cells in lessons.items() if not is_left_out(name)}


def _print(lessons: dict[str, list[Cell]]) -> None:
    width = max(map(len, lessons), default=0)
    for name, cells in lessons.items():
        won = sum(cell.points for cell in cells if cell.status == "ok")
        marks = " ".join(MARKS[cell.status] for cell in cells)
        print(f"{name:<{width}}  {won:>2} of {sum(cell.points for cell in cells):>2} points  {marks}")
    every = [cell for cells in lessons.values() for cell in cells]
    num_ok = sum(cell.status == "ok" for cell in every)
    wrong = [cell.exercise for cell in every if cell.status == "no"]
    print(f"{num_ok} of {len(every)} exercises pass" + (f"; not right yet: {', '.join(wrong)}" if wrong else ""))
    print("as the notebooks were saved last: save them to see what you have just done")
