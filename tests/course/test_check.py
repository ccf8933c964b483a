"""`check` says what is right, what is not done yet, and what is wrong with an answer, in few lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from mini_engine.course import check as check_function
from mini_engine.course.check import CheckFailed, _not_right, check
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.expect import expect_equal, expect_raises
from tests.course.check_cases import DOUBLE, HASTY, STACK, Cell, Stack, doubled, doubles, twice, verdict


@pytest.fixture(autouse=True)
def exercises_of_this_file(defined: Callable[..., None]) -> None:
    defined(DOUBLE, HASTY, STACK)
    _not_right.clear()


def test_package_exports_the_function_not_the_module() -> None:
    assert check_function is check


def test_right_answer_comes_back(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    text = verdict(cell("def f(x, times=1): return x * 2.0**times")["f"], capsys)
    assert text == "[ok] 99.double  Double\n     ✓ doubles\n     ✓ times counts\n"


def test_stub_is_todo(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    text = verdict(cell("def f(x, times=1): raise NotImplementedError")["f"], capsys)
    assert text == "[todo] 99.double  Double: not done yet, going on with the reference version\n"


def test_method_not_written_yet_is_todo(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    source = """
    class S:
        def __init__(self, capacity): self.items = []
        def push(self, item): raise NotImplementedError
        def top(self): return self.items[-1]
    """
    assert verdict(cell(source)["S"], capsys, STACK).startswith("[todo]")


def test_stub_is_todo_where_an_error_is_expected(
    cell: Cell, capsys: pytest.CaptureFixture[str], defined: Callable[..., None]
) -> None:
    """NotImplementedError is a RuntimeError: a stub must not count as raising the right error."""
    raises = Property("raises", lambda f: expect_raises(RuntimeError, f, "f()"))
    defined(exercise := Exercise("99.raises", "Raise", lambda: None, [raises]))
    assert verdict(cell("def f(): raise NotImplementedError")["f"], capsys, exercise).startswith("[todo]")


def test_failing_case_is_shown(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    text = verdict(cell("def f(x, times=1): return x * 2.0")["f"], capsys)
    lines = [line.strip() for line in text.splitlines()]
    assert lines[:4] == ["[no] 99.double  Double", "✓ doubles", "✗ times counts", "three numbers, times=2"]
    assert "expected:         [0., 4., 8.]  shape (3,), float64" in lines
    assert lines[-1] == "Going on with the reference version."


def test_smallest_case_comes_first(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    assert "1 numbers" in verdict(cell("def f(x, times=1): return x")["f"], capsys)


@pytest.mark.parametrize(
    "error", ["SystemExit(3)", "KeyboardInterrupt", "GeneratorExit", "BaseException('b')", "AssertionError('a')"]
)
def test_anything_raised_is_a_no(error: str, cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    text = verdict(cell(f"def f(x, times=1):\n    y = x\n    raise {error}")["f"], capsys)
    assert text.startswith("[no]")
    assert f"your code raised {re.match('[A-Za-z]+', error)[0]}" in text
    assert f"in line 3 of f: raise {error}" in text


def test_error_whose_text_raises(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    source = "class E(Exception):\n    def __str__(self): raise ValueError\ndef f(x, times=1): raise E"
    assert "its message cannot be shown" in verdict(cell(source)["f"], capsys)


def test_output_is_kept_short(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    source = "import sys\ndef f(x, times=1):\n    for n in range(2000): print('line', n)\n    print('e', file=sys.stderr)\n    return x * 2.0**times"
    text = verdict(cell(source)["f"], capsys)
    assert text.startswith("[ok]")
    assert "| line 0" in text
    assert "characters more" in text or "lines more" in text
    assert "line 1999" not in text


def test_a_long_line_of_a_message_is_folded_and_not_cut(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    words = " ".join(f"word{n}" for n in range(60))
    text = verdict(cell(f"def f(x, times=1): raise ValueError({words!r})")["f"], capsys)
    assert "word59" in text
    assert max(map(len, text.splitlines())) < 140


def test_empty_lines_printed_stay_under_one_rule(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    assert "| b" in verdict(cell("def f(x, times=1):\n    print('a\\n\\nb')\n    return x * 2.0**times")["f"], capsys)


WRONG_VALUES = {
    "wrong dtype": (
        "import numpy as np\ndef f(x, times=1): return (x * 2.0**times).astype(np.float32)",
        "dtype float32",
    ),
    "list": ("def f(x, times=1): return [2.0 * n for n in x]", "a NumPy array"),
    "wrong shape": ("def f(x, times=1): return (x * 2.0**times)[None]", "shape (1, 1)"),
    "one number for all": ("import numpy as np\ndef f(x, times=1): return np.float64(2)", "expected"),
    "NaN": ("def f(x, times=1): return x * float('nan')", "nan"),
    "infinity": ("def f(x, times=1): return x * float('inf')", "inf"),
    "complex": ("def f(x, times=1): return x * 2.0**times + 0j", "complex128"),
    "objects": ("def f(x, times=1): return (x * 2.0**times).astype(object)", "object"),
    "None": ("def f(x, times=1): pass", "None"),
    "equal to everything": (
        "class E:\n    shape = (1,); ndim = 1; dtype = 'float64'\n    def __eq__(s, o): return True\n"
        "    def __le__(s, o): return True\n    def __array__(s, *a, **k): import numpy; return numpy.array([2.0])\n"
        "def f(x, times=1): return E()",
        "a NumPy array",
    ),
    "array that equals everything": (
        "import numpy as np\nclass A(np.ndarray):\n    def __eq__(s, o): return np.ones(s.shape, bool)\n"
        "    def __sub__(s, o): return np.zeros(s.shape)\n    __rsub__ = __sub__\n    def __le__(s, o): return np.ones(s.shape, bool)\n"
        "def f(x, times=1): return x.view(A)",
        "a NumPy array",
    ),
    "array of things that equal everything": (
        "import numpy as np\nclass E:\n    def __eq__(s, o): return True\n    def __float__(s): return 2.0\n"
        "def f(x, times=1): return np.array([E() for _ in x], dtype=object)",
        "object",
    ),
    "repr that raises": (
        "class R:\n    def __repr__(s): raise SystemExit\ndef f(x, times=1): return R()",
        "whose repr raises SystemExit",
    ),
}


@pytest.mark.parametrize(("source", "words"), WRONG_VALUES.values(), ids=WRONG_VALUES)
def test_wrong_values_do_not_pass(source: str, words: str, cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    text = verdict(cell(source)["f"], capsys)
    assert text.startswith("[no]")
    assert words in text


def test_error_in_the_check_itself_is_told_apart(
    cell: Cell, capsys: pytest.CaptureFixture[str], defined: Callable[..., None]
) -> None:
    defined(
        exercise := Exercise(
            "99.len", "Length", lambda: [1], [Property("has one", lambda f: expect_equal(len(f()), 1, "f()"))]
        )
    )
    text = verdict(cell("def f(): return None")["f"], capsys, exercise)
    assert "the check cannot use what your code returned (TypeError" in text


OURS = type(
    "Lab", (), {"__init__": Stack.__init__, "push": Stack.push, "top": Stack.top, "__module__": "mini_engine.course"}
)
MISFITS = {
    "None": (None, DOUBLE, "this is None"),
    "a number": (3, DOUBLE, "this is of type int"),
    "too few arguments": (lambda: 1, DOUBLE, "takes ()"),
    "one argument too many": (lambda x, times, more: x, DOUBLE, "takes (x, times, more)"),
    "a function for a class": (lambda capacity: 1, STACK, "asks for a class"),
    "None for a class": (None, STACK, "this is None"),
    "methods missing": (type("Empty", (), {"push": lambda self, item: None}), STACK, "no method top"),
    "method is a number": (type("Number", (), {"push": lambda self, item: None, "top": 3}), STACK, "no method top"),
    "methods inherited": (type("Typo", (OURS,), {"psh": lambda self, item: None, "top": lambda self: 1}), STACK, "does not write push; is psh meant to be it?"),
    "method without its argument": (
        type("Short", (), {"__init__": lambda self, capacity: None, "push": lambda self: None, "top": lambda self: 1}), STACK, "push takes (self)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("candidate", "exercise", "words"), MISFITS.values(), ids=MISFITS)
def test_misfits_are_named(candidate: Any, exercise: Exercise, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = verdict(candidate, capsys, exercise)
    assert text.startswith("[no]")
    assert words in text


def test_candidate_that_cannot_be_looked_at(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    source = "class Shy:\n    def __getattr__(self, name): raise RuntimeError(name)\n    def __call__(self, x, times=1): return x\nf = Shy()"
    assert verdict(cell(source)["f"], capsys).startswith("[no]")


def test_callable_object_and_partial_pass(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    source = """
    import functools
    class F:
        def __call__(self, x, times=1): return x * 2.0**times
    f = F()
    p = functools.partial(lambda base, x, times=1: x * base**times, 2.0)
    m = f.__call__
    """
    namespace = cell(source)
    for name in "fpm":
        assert verdict(namespace[name], capsys).startswith("[ok]")


@pytest.mark.parametrize(("name", "value"), [("COURSE_STRICT", "1"), ("NBGRADER_EXECUTION", "autograde")])
def test_strict_raises_unless_all_is_ok(name: str, value: str, cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    right = cell("def f(x, times=1): return x * 2.0**times")["f"]
    assert check("99.double", right) is right
    with pytest.raises(CheckFailed, match=r"99\.double: not done yet"):
        check("99.double", cell("def f(x, times=1): raise NotImplementedError")["f"])
    with pytest.raises(CheckFailed, match=r"99\.double: times counts"):
        check("99.double", cell("def f(x, times=1): return x * 2.0")["f"])
    with pytest.raises(CheckFailed):
        check("99.double", None)
    monkeypatch.setenv("COURSE_STRICT", "0")
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    assert check("99.double", None) is doubled


WRONG = {
    "stub": ("99.double", "def f(x, times=1): raise NotImplementedError"),
    "wrong": ("99.double", "def f(x, times=1): return x"),
    "not a function": ("99.double", "f = None"),
    "a class": ("99.stack", "class f:\n    def __init__(self, capacity): raise NotImplementedError\n    push = top = __init__"),
}  # fmt: skip


@pytest.mark.parametrize(("id", "source"), WRONG.values(), ids=WRONG)
def test_a_check_cell_that_is_run_again_says_the_same(
    id: str, source: str, cell: Cell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """f = check(id, f): the second time, f is the reference."""
    f = check(id, cell(source)["f"])
    first = capsys.readouterr().out
    assert first.startswith(("[no]", "[todo]"))
    for _ in range(2):
        assert check(id, f) is f
        assert capsys.readouterr().out == first
    monkeypatch.setenv("COURSE_STRICT", "1")
    for _ in range(2):
        with pytest.raises(CheckFailed, match=id):
            check(id, f)
        assert capsys.readouterr().out == first


def test_a_right_answer_after_a_wrong_one_is_ok(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    check("99.double", None)
    right = cell("def f(x, times=1): return x * 2.0**times")["f"]
    for _ in range(2):
        capsys.readouterr()
        assert check("99.double", right) is right
        assert capsys.readouterr().out.startswith("[ok]")
    assert check("99.double", doubled) is doubled, "what was wrong before is forgotten"
    assert capsys.readouterr().out.startswith("[ok]")


def test_what_one_exercise_said_is_not_said_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    check("99.double", None)
    capsys.readouterr()
    assert check("99.hasty", doubled) is doubled
    assert capsys.readouterr().out.startswith("[ok] 99.hasty")


def test_unknown_id_names_the_near_ones() -> None:
    with pytest.raises(KeyError, match=r"99\.double"):
        check("99.duoble", None)


def test_exercise_refuses_a_mutant_that_names_no_property() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        Exercise("99.x", "X", doubled, [Property("p", doubles)], mutants=[Mutant("m", doubled, "nonsense", "why")])
    with pytest.raises(ValueError, match="distinct"):
        Exercise("99.x", "X", doubled, [Property("p", doubles), Property("p", twice)])
