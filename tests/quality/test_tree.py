"""What a search of the whole tree must not find: files that are long without a reason, and notes of things left undone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("mini_engine", "tools", "tests", "benchmarks", "solutions", "docs", "data", ".github", ".ci")
WRITTEN = {".py", ".md", ".toml", ".yml", ".yaml", ".sh", ".js", ".html", ".txt", ".svg"}
MOST_LINES = 300
REASON = "Long because "
"""A module over the limit says so in its docstring. Sources of lessons need none: a lesson is one file."""
UNDONE = re.compile("|".join(rf"\b{word}\b" for word in ("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")))


def _files(*endings: str) -> list[Path]:
    found = [path for path in ROOT.iterdir() if path.is_file()]
    found += [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    return sorted(path for path in found if path.suffix in endings)


def unexplained(path: Path) -> bool:
    """Whether a Python file is over the limit and its first docstring does not say why."""
    text = path.read_text(encoding="utf-8")
    return len(text.splitlines()) > MOST_LINES and REASON not in (ast.get_docstring(ast.parse(text)) or "")


def test_long_files_say_why() -> None:
    lessons = ROOT / "solutions"
    assert [str(path.relative_to(ROOT)) for path in _files(".py") if path.parent != lessons and unexplained(path)] == []


def test_the_search_finds_a_long_file_and_takes_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    for words, lines, found in (
        ("A list.", 301, True),
        (f"A list. {REASON}it is.", 301, False),
        ("A list.", 300, False),
    ):
        path.write_text(f'"""{words}"""\n' + "x = 1\n" * (lines - 1), encoding="utf-8")
        assert unexplained(path) is found


def test_nothing_is_noted_as_undone() -> None:
    found = []
    for path in _files(*WRITTEN):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if UNDONE.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert not found


def test_the_search_finds_a_note() -> None:
    assert UNDONE.search("# TO" + "DO: later")
    assert not UNDONE.search("[todo] 07.slots: not done yet")
