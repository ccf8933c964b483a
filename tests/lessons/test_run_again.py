"""A reader may go back and run a cell again: no later cell has changed the names that it reads."""

from __future__ import annotations

import ast
import dis
import types
from pathlib import Path

import jupytext
import pytest

SOLUTIONS = Path(__file__).resolve().parents[2] / "solutions"


def _names(code: types.CodeType, bound: set[str], read: set[str]) -> None:
    """Add the names that the code binds for its notebook, and those that it reads before it has bound them itself."""
    for step in dis.get_instructions(code):
        if step.opname in ("STORE_NAME", "STORE_GLOBAL"):
            bound.add(step.argval)
        elif step.opname in ("LOAD_NAME", "LOAD_GLOBAL") and step.argval not in bound:
            read.add(step.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            _names(inner, bound, read)


def _imported(source: str) -> dict[str, str]:
    """What each name is that a cell imports: the same import once more changes nothing."""
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def changed_later(cells: list[str]) -> list[str]:
    """For each name that a cell takes from an earlier one, and a later one binds anew: where."""
    bound: list[set[str]] = []
    read: list[set[str]] = []
    for source in cells:
        bound.append(set())
        read.append(set())
        _names(compile(source, "<cell>", "exec"), bound[-1], read[-1])
    imported = [_imported(source) for source in cells]

    def is_same_import(name: str, reader: int, later: int) -> bool:
        before = {imported[cell].get(name) for cell in range(reader) if name in bound[cell]}
        return before == {imported[later].get(name)} != {None}

    return [
        f"cell {reader} reads {name}, cell {later} binds it anew"
        for reader, names in enumerate(read)
        for name in sorted(names)
        if any(name in before for before in bound[:reader])
        for later in range(reader + 1, len(cells))
        if name in bound[later] and not is_same_import(name, reader, later)
    ]


def test_a_name_that_is_changed_later_is_found():
    cells = [
        "S = 3\nrows = [S for _ in range(2)]",
        "def size():\n    return S\nprint(size())",
        "for S in (4, 5): print(S)",
    ]
    assert changed_later(cells) == ["cell 1 reads S, cell 2 binds it anew"]
    assert changed_later(["from a import S", "print(S)", "from a import S"]) == []
    assert changed_later(["from a import S", "print(S)", "from b import S"]) == ["cell 1 reads S, cell 2 binds it anew"]
    assert changed_later(["S = 3", "print(S)", "from a import S"]) == ["cell 1 reads S, cell 2 binds it anew"]
    assert changed_later(["S = 3", "S = 4\nprint(S)", "S = 5"]) == []
    assert changed_later(["def f(): ...", "f = check('f', f)", "print(f())"]) == []


@pytest.mark.parametrize("source", sorted(SOLUTIONS.glob("[0-9]*.py")), ids=lambda path: path.stem)
def test_every_cell_can_be_run_again_after_the_last_one(source):
    cells = [cell.source for cell in jupytext.read(source).cells if cell.cell_type == "code"]
    assert len(cells) > 5
    assert changed_later(cells) == []
