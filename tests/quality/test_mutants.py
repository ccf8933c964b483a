"""The random mutants are real changes of code, the same ones every time, and those who execute the line are asked."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.cache.faults import FAULTS
from tools.mutation.asking import stages_of
from tools.mutation.edits import Edit, chosen, edits, named_edit
from tools.mutation.line_map import IMPORT, Reach

PACKAGE = Path(__file__).parents[2] / "mini_engine"
SOURCE = '''"""A module: 1 < 2."""

LIMIT = 3


def f(a: int, b: "int < 3" = 1) -> int:
    """At most 3, and not 4."""
    if not a < b and a >= 0:
        raise ValueError(f"a={a} is less than {b + 1}")
    for i in range(a):
        a += i
    return max(a[1:], b - 1)


class C:
    def __repr__(self):
        return f"{1 + 1}" if 1 < 2 else "3"
'''
WRONG = {
    "3 -> 4",
    "1 -> 2",
    "not a < b and a >= 0 -> (not a < b or a >= 0)",
    "not a < b -> (a < b)",
    "a < b -> (a <= b)",
    "a < b -> (a >= b)",
    "a >= 0 -> (a > 0)",
    "a >= 0 -> (a < 0)",
    "0 -> 1",
    'raise ValueError(f"a={a} is less than {b + 1}") -> pass',
    "range(a) -> (range(a + 1))",
    "range(a) -> (range(a - 1))",
    "a += i -> a -= i",
    "a += i -> pass",
    "return max(a[1:], b - 1) -> return None",
    "max(a[1:], b - 1) -> (min(a[1:], b - 1))",
    "1: -> 1 + 1:",
    "b - 1 -> (b + 1)",
}


def test_every_operator_is_there_and_texts_are_left_alone():
    found = [edit.name.rpartition("  |  ")[2].partition(" (no.")[0] for edit in edits("a.py", SOURCE)]
    assert set(found) == WRONG
    assert found.count("1 -> 2") == 3  # the default, the slice, b - 1: not those of __repr__, texts and annotations


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("cache/*.py")), ids=lambda path: path.name)
def test_each_edit_compiles_changes_the_code_and_has_a_name_of_its_own(path):
    source = path.read_bytes()
    found = edits(path.name, source.decode())
    right = ast.dump(ast.parse(source))
    assert all(ast.dump(ast.parse(edit.applied_to(source))) != right for edit in found)
    assert len({edit.name for edit in found}) == len(found)


def test_a_seed_fixes_the_choice_and_a_line_more_elsewhere_does_not_change_it(tmp_path):
    for folder, comment in (("a", ""), ("b", "# one line more: é\n")):
        (tmp_path / folder / "part").mkdir(parents=True)
        (tmp_path / folder / "part" / "m.py").write_text(comment + SOURCE, encoding="utf-8")
    names = [
        [edit.name for edit in chosen(tmp_path / folder, ["part"], 5, seed)]
        for folder, seed in [("a", 1), ("b", 1), ("a", 2)]
    ]
    assert names[0] == names[1] != names[2]
    assert len(names[0]) == 5


def test_a_named_fault_is_the_same_edit_as_a_replaced_text():
    fault = FAULTS[0]
    source = (PACKAGE / "cache" / fault.file).read_text(encoding="utf-8")
    edit = named_edit(*fault, source)
    assert edit.applied_to(source.encode()).decode() == source.replace(fault.right, fault.wrong)
    first = source.encode()[: edit.start].decode().count("\n") + 1
    assert edit.lines == sum(1 << (first + i) for i in range(fault.right.count("\n") + 1))


def test_asked_is_who_executes_the_line_the_package_first_and_the_quick_before_the_slow():
    def reached(seconds, *lines):
        return Reach(seconds, {"cache/a.py": sum(1 << line for line in lines)})

    tests = {
        "tests/cache/test_slow.py::a": reached(2.0, 7, 8),
        "tests/cache/test_quick.py::a": reached(0.5, 7),
        "tests/cache/test_quick.py::b": reached(0.1, 8),
        "tests/engine/test_b.py::a": reached(0.1, 7),
        "tests/engine/test_b.py::too_long": reached(1000.0, 7),
        "tests/engine/test_b.py::elsewhere": Reach(0.1, {"cache/b.py": 1 << 7}),
        IMPORT: reached(0.0, 1, 2),
    }
    inside = Edit("cache/a.py", "constant", 7, 1 << 7, 0, 0, "", "inside a function")
    assert [list(stage) for stage in stages_of(inside, tests)] == [
        ["tests/cache/test_quick.py::a", "tests/cache/test_slow.py::a"],
        ["tests/engine/test_b.py::a"],
    ]
    of_module = Edit("cache/a.py", "constant", 2, 1 << 2, 0, 0, "", "at import")
    assert [name for stage in stages_of(of_module, tests) for name in stage] == [
        "tests/cache/test_quick.py::b",
        "tests/cache/test_quick.py::a",
        "tests/cache/test_slow.py::a",
        "tests/engine/test_b.py::a",
    ]
    nowhere = Edit("cache/a.py", "constant", 9, 1 << 9, 0, 0, "", "nobody gets there")
    assert stages_of(nowhere, tests) == []
