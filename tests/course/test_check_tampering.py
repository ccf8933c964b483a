"""`check` against answers that change what is not theirs: their inputs, other modules, the process, the check itself."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from mini_engine.course.check import CheckFailed, _not_right, check
from mini_engine.course.exercise import Exercise, Property
from tests.course.check_cases import DOUBLE, HASTY, STACK, Cell, verdict


@pytest.fixture(autouse=True)
def exercises_of_this_file(defined: Callable[..., None]) -> None:
    defined(DOUBLE, HASTY, STACK)
    _not_right.clear()


CHANGES_INPUT = {
    "array": "def f(x, times=1):\n    x *= 2.0**times\n    return x.copy()",
    "array, and puts a wrong copy back": "def f(x, times=1):\n    y = x * 2.0**times\n    x[:] = y + 1\n    return y",
    "array reshaped": "def f(x, times=1):\n    y = x * 2.0**times\n    x.shape = (1, *x.shape)\n    return y",
}


@pytest.mark.parametrize("source", CHANGES_INPUT.values(), ids=CHANGES_INPUT)
def test_inputs_stay_unchanged(source: str, cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    text = verdict(cell(source)["f"], capsys)
    assert "✗ leaves its inputs unchanged" in text
    assert "`x`" in text


@pytest.mark.parametrize("change", ["a.append(1)", "a[0][0] = 9", "a[1]['k'] = 3", "a[2].add(3)"])
def test_changes_inside_containers_are_seen(
    change: str, cell: Cell, capsys: pytest.CaptureFixture[str], defined: Callable[..., None]
) -> None:
    prop = Property("runs", lambda f: f([[1], {"k": 2}, {1}]) or None)
    defined(exercise := Exercise("99.list", "A list", lambda a: None, [prop]))
    assert "leaves its inputs unchanged" in verdict(cell(f"def f(a): {change}")["f"], capsys, exercise)
    allowed = Exercise("99.list", "A list", lambda a: None, [prop], may_change=("a",))
    defined(allowed)
    assert verdict(cell(f"def f(a): {change}")["f"], capsys, allowed).startswith("[ok]")


def test_settings_of_the_process_go_back(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    source = """
    import sys
    import numpy as np
    def f(x, times=1):
        sys.setrecursionlimit(5000)
        np.seterr(all="ignore")
        return x * 2.0**times
    """
    before = sys.getrecursionlimit(), np.geterr()
    assert verdict(cell(source)["f"], capsys).startswith("[ok]")
    assert before == (sys.getrecursionlimit(), np.geterr())


TABLES = {
    "a list emptied": "t.SMALL.clear()",
    "a list with one more": "t.SMALL.append((9, 9))",
    "a dict emptied": "t.WRONG.clear()",
    "a dict with another value": "t.WRONG['b'] = t.WRONG['a']",
    "a dict in the place of another": "t.WRONG = {}",
    "a tuple in the place of another": "t.BANK = ()",
    "math": "import math; math.exp = math.log",
    "random numbers": "import numpy; numpy.random.default_rng = None",
}


@pytest.mark.parametrize("change", TABLES.values(), ids=TABLES)
def test_tables_and_functions_of_other_modules_go_back(
    change: str, cell: Cell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import math
    import types

    module = types.ModuleType("mini_engine.course.exercises.e99_tables")
    vars(module).update(SMALL=[(1, 2)], WRONG={"a": 1, "b": 2}, BANK=("a", "b"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    held, functions = dict(vars(module)), (math.exp, np.random.default_rng)
    source = f"import mini_engine.course.exercises, sys\nt = sys.modules['{module.__name__}']\ndef f(x, times=1):\n    {change}\n    return x * 2.0**times"
    text = verdict(cell(source)["f"], capsys)
    assert "your code replaced" in text
    assert vars(module) == held
    assert all(vars(module)[name] is held[name] for name in ("SMALL", "WRONG", "BANK"))
    assert (module.SMALL, module.WRONG) == ([(1, 2)], {"a": 1, "b": 2})
    assert functions == (math.exp, np.random.default_rng)


TAMPERING = {
    "numpy": "import numpy as np\ndef f(x, times=1):\n    np.isfinite = lambda *a: []\n    return x",
    "builtin": "import builtins\ndef f(x, times=1):\n    builtins.abs = lambda x: 0\n    return x",
    "the comparison": "import mini_engine.course.expect as e\ndef f(x, times=1):\n    e.fail = lambda *a, **k: None\n    return x",
    "the comparison's code": (
        "from mini_engine.course.expect import fail\ndef f(x, times=1):\n    fail.__code__ = (lambda case, **lines: None).__code__\n    return x"
    ),
    "the properties": (
        "from mini_engine.course import exercises\nex = exercises.find(exercises.Exercise, '99.double')\n"
        "def f(x, times=1):\n    object.__setattr__(ex, 'properties', ())\n    return x * 2.0**times"
    ),
    "a property": (
        "from mini_engine.course import exercises\nprop = exercises.find(exercises.Exercise, '99.double').properties[1]\n"
        "def f(x, times=1):\n    object.__setattr__(prop, 'run', print)\n    return x * 2.0"
    ),
    "the reference": (
        "from mini_engine.course import exercises\nex = exercises.find(exercises.Exercise, '99.double')\n"
        "def f(x, times=1):\n    object.__setattr__(ex, 'reference', f)\n    return x"
    ),
}


@pytest.fixture
def visible_exercises(monkeypatch: pytest.MonkeyPatch, defined: Callable[..., None]) -> None:
    """The exercises in a module that a candidate can import and change."""
    import types

    module = types.ModuleType("mini_engine.course.exercises.e99_of_a_test")
    vars(module).update(DOUBLE=DOUBLE, STACK=STACK)
    monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.parametrize("source", TAMPERING.values(), ids=TAMPERING)
def test_tampering_is_undone_and_refused(
    source: str, cell: Cell, capsys: pytest.CaptureFixture[str], visible_exercises: None
) -> None:
    properties, reference = DOUBLE.properties, DOUBLE.reference
    for _ in range(2):  # nothing is left for the second time
        text = verdict(cell(source)["f"], capsys)
        assert text.startswith("[no]")
        assert "your code replaced" in text
    assert DOUBLE.properties is properties
    assert DOUBLE.reference is reference
    assert verdict(cell("def f(x, times=1): return x")["f"], capsys).startswith("[no]")
    assert verdict(cell("def f(x, times=1): return x * 2.0**times")["f"], capsys).startswith("[ok]")


def test_an_answer_that_asks_for_less_strictness_comes_too_late(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    source = "import os\ndef f(x, times=1):\n    os.environ.pop('NBGRADER_EXECUTION', None)\n    return x"
    with pytest.raises(CheckFailed):
        check("99.double", cell(source)["f"])
