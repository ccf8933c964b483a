"""`check` against candidates that loop, exit, print, cheat, or are not what was asked for."""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mini_engine.course import check as check_function
from mini_engine.course.check import CheckFailed, _not_right, check
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.expect import expect_close, expect_equal, expect_raises

Cell = Callable[[str], dict[str, Any]]


def doubled(x: np.ndarray, times: int = 1) -> np.ndarray:
    return x * 2.0**times


def _doubles(f: Callable[..., Any]) -> None:
    for size in (1, 3):
        x = np.arange(float(size)) + 1
        expect_close(f(x), 2 * x, f"{size} numbers")


def _twice(f: Callable[..., Any]) -> None:
    x = np.arange(3.0)
    expect_close(f(x, 2), 4 * x, "three numbers, times=2")


DOUBLE = Exercise(
    "99.double",
    "Double",
    doubled,
    [Property("doubles", _doubles), Property("times counts", _twice)],
    budget=50_000,
    seconds=10.0,  # a busy machine may need more than a moment for code that is right
)
HASTY = replace(DOUBLE, id="99.hasty", seconds=0.5)  # for code that only the timer can stop


class Stack:
    """A reference that is a class."""

    def __init__(self, capacity: int) -> None:
        self.items: list[int] = []
        self.capacity = capacity

    def push(self, item: int) -> None:
        if len(self.items) == self.capacity:
            raise MemoryError("full")
        self.items.append(item)

    def top(self) -> int:
        return self.items[-1]


def _last_in(cls: Any) -> None:
    stack = cls(2)
    stack.push(1)
    stack.push(2)
    expect_equal(stack.top(), 2, "push(1), push(2): top()")


def _full(cls: Any) -> None:
    stack = cls(0)
    expect_raises(MemoryError, lambda: stack.push(1), "capacity 0: push(1)")


STACK = Exercise(
    "99.stack", "A stack", Stack, [Property("last in is on top", _last_in), Property("full raises", _full)]
)


# pytest reports the SystemExit that ends a learner's thread; Python itself passes over it in silence.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture(autouse=True)
def exercises_of_this_file(defined: Callable[..., None]) -> None:
    defined(DOUBLE, HASTY, STACK)
    _not_right.clear()


def verdict(candidate: Any, capsys: pytest.CaptureFixture[str], exercise: Exercise = DOUBLE) -> str:
    """What check prints, with the promises that hold for every candidate."""
    before = (
        sys.gettrace(),
        threading.gettrace(),
        signal.getsignal(signal.SIGALRM),
        signal.getsignal(signal.SIGINT),
        sys.stdout,
    )
    result = check(exercise.id, candidate)
    assert before == (
        sys.gettrace(),
        threading.gettrace(),
        signal.getsignal(signal.SIGALRM),
        signal.getsignal(signal.SIGINT),
        sys.stdout,
    )
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    text = capsys.readouterr().out
    assert all(re.match(r"\[(ok|no|todo)\] | ", line) for line in text.splitlines()), (
        "one sanitize rule covers every line"
    )
    assert len(text) < 4000
    assert result is (candidate if text.startswith("[ok]") else exercise.reference)
    return text


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


ENDLESS = {
    "loop": "def f(x, times=1):\n    while True: pass",
    "recursion": "def f(x, times=1): return f(x)",
    "mutual recursion with the limit lifted": (
        "import sys\ndef g(x): return f(x)\ndef f(x, times=1):\n    sys.setrecursionlimit(10**6)\n    return g(x)"
    ),
    "generator into a list": "def g():\n    while True: yield 1\ndef f(x, times=1): return list(g())",
    "generator in a for": "def g():\n    while True: yield 1\ndef f(x, times=1):\n    for _ in g(): pass",
    "comprehension": "import itertools\ndef f(x, times=1): return [0 for n in itertools.count()]",
    "lambda": "f = lambda x, times=1: f(x)",
    "swallows every exception": (
        "def f(x, times=1):\n    while True:\n        try:\n            x = x + 0\n        except BaseException:\n            continue"
    ),
    "swallows the budget's error and returns": (
        "def g():\n    while True: pass\ndef f(x, times=1):\n    try:\n        g()\n    except BaseException:\n        return x * 2.0**times"
    ),
    "turns tracing off": "import sys\ndef f(x, times=1):\n    sys.settrace(None)\n    g()\ndef g():\n    while True: pass",
    "swallows a wait that is cut short": (
        "import queue\ndef f(x, times=1):\n    q = queue.Queue()\n    while True:\n        try:\n            q.get(timeout=1)\n        except:\n            continue"
    ),
    "sleeps again": (
        "import time\ndef f(x, times=1):\n    while True:\n        try: time.sleep(1)\n        except BaseException: pass"
    ),
    "sleeps again, on two levels": (
        "import time\ndef f(x, times=1):\n    while True:\n        try:\n            try: time.sleep(1)\n            except BaseException: continue\n"
        "        except BaseException: continue"
    ),
    "sleeps again in a function that swallows": (
        "import time\ndef g():\n    try: time.sleep(1)\n    except BaseException: pass\ndef f(x, times=1):\n    while True:\n        try: g()\n"
        "        except BaseException: pass"
    ),
    "finally goes on": (
        "def f(x, times=1):\n    while True:\n        try:\n            while True: pass\n        finally: continue"
    ),
    "a context that swallows": (
        "import time\nclass C:\n    def __enter__(s): pass\n    def __exit__(s, *e): return True\n"
        "def f(x, times=1):\n    while True:\n        with C(): time.sleep(1)"
    ),
    "suppresses": (
        "import contextlib, time\ndef f(x, times=1):\n    while True:\n        with contextlib.suppress(BaseException): time.sleep(1)"
    ),
    "recursion that catches everything": (
        "def f(x, times=1):\n    try: return f(x)\n    except BaseException: return f(x)"
    ),
    "recursion in a finally": "def f(x, times=1):\n    try: return f(x)\n    finally: f(x)",
    "recursion that loops": (
        "def f(x, times=1):\n    while True:\n        try: f(x)\n        except BaseException: pass"
    ),
    "recursion through a library that catches everything": (
        "import contextlib\ndef f(x, times=1):\n    with contextlib.suppress(BaseException): f(x)\n    return f(x)"
    ),
    "sleeps": "import time\ndef f(x, times=1): time.sleep(3600)",
    "waits for a lock": "import threading\ndef f(x, times=1):\n    lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "a thread that it joins": (
        "import threading\ndef g():\n    while True: pass\n"
        "def f(x, times=1):\n    t = threading.Thread(target=g); t.start(); t.join(); return x * 2.0**times"
    ),
}


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS)
def test_endless_code_is_stopped(
    source: str, cell: Cell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where the code is stopped inside a finalizer, Python reports it here; pytest's own report could be stopped as well.
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    start = time.monotonic()
    text = verdict(cell(source)["f"], capsys, HASTY)
    assert text.startswith("[no]")
    assert re.search(r"in the call (f|<lambda>)\(x=float64\[1\]", text)
    assert re.search(r"used up its budget of 50,000 steps|still running after 0.5 seconds|down to a depth of", text)
    assert time.monotonic() - start < 30


def test_the_count_says_the_same_each_time(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    f = cell(ENDLESS["loop"])["f"]
    assert verdict(f, capsys) == verdict(f, capsys)


def test_count_works_without_a_timer(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    f = cell(ENDLESS["loop"])["f"]
    thread = threading.Thread(target=check, args=("99.double", f))
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert "50,000 steps" in capsys.readouterr().out


def test_thread_left_behind_ends(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    source = """
    import threading
    threads = []
    def spin():
        while True: pass
    def f(x, times=1):
        threads.append(threading.Thread(target=spin, daemon=True))
        threads[-1].start()
        return x * 2.0**times
    """
    namespace = cell(source)
    verdict(namespace["f"], capsys)
    for thread in namespace["threads"]:
        thread.join(30)
        assert not thread.is_alive()
    assert capsys.readouterr().err == ""


def test_enough_budget_is_no_matter(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    source = "def f(x, times=1):\n    for _ in range(1000): pass\n    return x * 2.0**times"
    assert verdict(cell(source)["f"], capsys).startswith("[ok]")


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


def test_ctrl_c_stops_the_check(cell: Cell) -> None:
    source = "import signal\ndef f(x, times=1): signal.raise_signal(signal.SIGINT)"
    with pytest.raises(KeyboardInterrupt):
        check("99.double", cell(source)["f"])
    assert sys.gettrace() is None or "pytest" not in str(sys.gettrace())
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


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


def test_callable_object_is_counted(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    source = "class F:\n    def __call__(self, x, times=1):\n        while True: pass\nf = F()"
    assert "50,000 steps" in verdict(cell(source)["f"], capsys)


LOOKED_AT = {
    "message": "class E(Exception):\n    def __str__(self):\n        while True: pass\ndef f(x, times=1): raise E",
    "message that swallows": (
        "import time\nclass E(Exception):\n    def __str__(self):\n        while True:\n            try: time.sleep(1)\n"
        "            except BaseException: pass\ndef f(x, times=1): raise E"
    ),
    "signature": (
        "class F:\n    def __call__(self, x, times=1): return x\n    @property\n    def __signature__(self):\n        while True: pass\nf = F()"
    ),
    "name": (
        "class F:\n    def __call__(self, x, times=1): return x\n    @property\n    def __name__(self):\n        while True: pass\nf = F()"
    ),
    "attribute": (
        "class F:\n    def __call__(self, x, times=1): return x\n    def __getattr__(self, name):\n        while True: pass\nf = F()"
    ),
    "every attribute": (
        "class F:\n    def __call__(self, x, times=1): return x\n    def __getattribute__(self, name):\n        while True: pass\nf = F()"
    ),
    "attribute that is the object itself": (
        "class F:\n    def __call__(self, x, times=1): return x\n    def __getattr__(self, name): return self\nf = F()"
    ),
    "attribute of a class": (
        "class M(type):\n    def __getattribute__(self, name):\n        while True: pass\nclass f(metaclass=M): pass"
    ),
    "wrapped in itself": "def f(x, times=1): return x\nf.__wrapped__ = f",
}


@pytest.mark.parametrize("source", LOOKED_AT.values(), ids=LOOKED_AT)
def test_endless_code_outside_of_the_call_is_stopped(
    source: str, cell: Cell, capsys: pytest.CaptureFixture[str]
) -> None:
    start = time.monotonic()
    assert verdict(cell(source)["f"], capsys, HASTY).startswith("[no]")
    assert time.monotonic() - start < 10


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
        Exercise("99.x", "X", doubled, [Property("p", _doubles)], mutants=[Mutant("m", doubled, "nonsense", "why")])
    with pytest.raises(ValueError, match="distinct"):
        Exercise("99.x", "X", doubled, [Property("p", _doubles), Property("p", _twice)])
