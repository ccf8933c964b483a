"""Pages that a tool makes, whole or between `<!-- name -->` and `<!-- /name -->`: put together, written, or only compared."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path


def between(text: str, name: str, made: str) -> str:
    """The page with `made` between the marks `name`. ValueError unless each mark is there once, in order."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"a page needs {begin} and, after it, {end}, each once")
    return f"{text.partition(begin)[0]}{begin}\n{made}\n{end}{text.partition(end)[2]}"


def only_compares(argv: list[str] | None, description: str | None) -> bool:
    """The one option of a tool that makes pages: whether `--check` was given."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    return parser.parse_args(argv).check


def bring_up_to_date(made: Mapping[Path, str], root: Path, *, check: bool) -> int:
    """Print the pages that are not what was made of them, and write them, or with `check` leave them.

    Returns the exit status: 0 written or up to date, 1 with `check` when a page is not.
    """
    old = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in old:
        print(path.relative_to(root))
        if not check:
            path.write_text(made[path], encoding="utf-8")
    return 1 if check and old else 0
