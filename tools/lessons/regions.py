"""Cut solutions and hidden tests out of a cell, as nbgrader's ClearSolutions and ClearHiddenTests do, errors included."""

from __future__ import annotations

import re

STUB = "raise NotImplementedError"


class RegionError(ValueError):
    """A region that is nested, never closed, never opened, or in a cell of the wrong kind."""


def clear_solutions(code: str, is_exercise: bool) -> str:
    """Each BEGIN SOLUTION ... END SOLUTION becomes one stub line, indented like its BEGIN line.

    An exercise cell without a region becomes the stub altogether. A region elsewhere raises RegionError.
    """
    cut, found = _cut(code, "SOLUTION", STUB)
    if found and not is_exercise:
        raise RegionError('a solution region needs a cell with exercise="..."')
    return cut if found or not is_exercise else STUB


def clear_hidden_tests(code: str, is_test: bool) -> str:
    """Each BEGIN HIDDEN TESTS ... END HIDDEN TESTS disappears. A region outside a test cell raises RegionError."""
    cut, found = _cut(code, "HIDDEN TESTS", None)
    if found and not is_test:
        raise RegionError('hidden tests need a cell with test="..."')
    return cut


def _cut(code: str, name: str, stub: str | None) -> tuple[str, bool]:
    kept: list[str] = []
    inside = found = False
    for line in code.split("\n"):
        if f"BEGIN {name}" in line:
            if inside:
                raise RegionError(f"BEGIN {name} inside another one")
            inside = found = True
            if stub is not None:
                kept.append(re.match(r"\s*", line).group() + stub)  # type: ignore[union-attr]
        elif f"END {name}" in line:
            if not inside:
                raise RegionError(f"END {name} without a BEGIN")
            inside = False
        elif not inside:
            kept.append(line)
    if inside:
        raise RegionError(f"BEGIN {name} is never closed")
    return "\n".join(kept), found
