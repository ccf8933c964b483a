"""Build a lesson's notebooks, write what changed, or say how the stored ones differ from a fresh build."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tools.lessons import links
from tools.lessons.execute import execute
from tools.lessons.notebook import FOLDERS, clean_outputs, copy_outputs, keep_ignored_outputs, make_notebook
from tools.lessons.source import Lesson, SourceError, is_translated, read_lesson

PNG = re.compile(r"(?<=data:image/png;base64,)[\w+/=]+")
Execute = Callable[[NotebookNode, Path, str, bool], NotebookNode]


def sources(root: Path, numbers: Iterable[str] = ()) -> list[Path]:
    """The lessons' sources, all or those of `numbers`, such as "01". FileNotFoundError for a number without one."""
    paths = sorted((root / "solutions").glob("[0-9][0-9]_*.py"))
    wanted, known = list(numbers), {path.stem[:2] for path in paths}
    for number in wanted:
        if number not in known:
            names = ", ".join(path.stem for path in paths) or "none"
            raise FileNotFoundError(f"no lesson solutions/{number}_*.py; there are: {names}")
    return [path for path in paths if not wanted or path.stem[:2] in wanted]


def generated_paths(root: Path) -> set[str]:
    """Every notebook that the sources stand for, as paths from the root. A source with faults counts too."""
    made = set()
    for path in sources(root):
        languages = ("en", "zh") if is_translated(path) else ("en",)
        made |= {f"{folder}/{path.stem}.ipynb" for (_, lang), folder in FOLDERS.items() if lang in languages}
    return made


def build(root: Path, source: Path, *, refresh: bool = False, execute: Execute = execute) -> dict[str, str]:
    """The texts of a lesson's notebooks by path from the root, run twice: unsolved, and solved with COURSE_STRICT=1.

    Outputs that depend on the machine are taken from the stored notebooks unless `refresh`. Raises SourceError for a
    source that breaks a rule, ExecutionError when a cell raises.
    """
    lesson = read_lesson(source)
    known = generated_paths(root)
    _check_links(lesson, root, known)
    has_notebook = known.__contains__
    # Everything that can be refused is refused before the first kernel starts.
    blank = {key: make_notebook(lesson, solved=key[0], lang=key[1], has_notebook=has_notebook) for key in FOLDERS}
    built: dict[str, str] = {}
    with ThreadPoolExecutor(2) as pool:  # the unsolved and the solved run, side by side
        runs = [
            pool.submit(execute, blank[solved, "en"], root, FOLDERS[solved, "en"], solved) for solved in (False, True)
        ]
    for solved, run in zip((False, True), runs):
        folder, english = FOLDERS[solved, "en"], run.result()
        clean_outputs(english)
        stored = root / folder / f"{lesson.name}.ipynb"
        if stored.exists() and not refresh:
            keep_ignored_outputs(english, nbformat.read(stored, as_version=4))
        built[f"{folder}/{lesson.name}.ipynb"] = as_text(english)
        if lesson.translated:
            chinese = blank[solved, "zh"]
            copy_outputs(english, chinese)
            built[f"{FOLDERS[solved, 'zh']}/{lesson.name}.ipynb"] = as_text(chinese)
    return built


def as_text(notebook: NotebookNode) -> str:
    """The notebook as it is stored: valid, keys sorted, one line end at the end."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook, version=4).rstrip("\n") + "\n"


def _check_links(lesson: Lesson, root: Path, known: set[str]) -> None:
    faults = [
        f"solutions/{lesson.name}.py:{cell.line}: broken link {target!r}; links are written from the repository's root"
        for cell in lesson.cells
        if cell.kind == "markdown"
        for target in links.targets(cell.text)
        if target not in known and not (root / target).exists()
    ]
    if faults:
        raise SourceError("\n".join(faults))


def stale(root: Path) -> list[str]:
    """Stored notebooks without a source."""
    stored = {p.relative_to(root).as_posix() for folder in FOLDERS.values() for p in (root / folder).glob("*.ipynb")}
    return sorted(stored - generated_paths(root))


def write(root: Path, built: dict[str, str]) -> list[str]:
    """Write the notebooks that changed; their paths."""
    changed = []
    for path, text in built.items():
        target = root / path
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def compare(root: Path, built: dict[str, str], limit: int = 60) -> list[str]:
    """How the stored notebooks differ from the built ones, as readable diffs; pictures are compared by their presence only."""
    reports = []
    for path, text in built.items():
        target = root / path
        if not target.exists():
            reports.append(f"{path}: not built yet")
            continue
        old, new = without_pictures(target.read_text(encoding="utf-8")), without_pictures(text)
        if old != new:
            diff = list(
                difflib.unified_diff(
                    old.splitlines(), new.splitlines(), f"{path} (stored)", f"{path} (rebuilt)", "", "", 2, ""
                )
            )
            more = [f"... {len(diff) - limit} lines more"] if len(diff) > limit else []
            reports.append("\n".join([*diff[:limit], *more]))
    return reports


def without_pictures(text: str) -> str:
    """A notebook's text with the bytes of its PNGs left out: they may differ between platforms."""
    return PNG.sub("(a picture)", text)
