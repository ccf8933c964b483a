"""`check` against answers that never end: in the call, in a thread, in a finalizer, or when they are looked at."""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Callable

import pytest

from mini_engine.course.check import _not_right, check
from tests.course.check_cases import DOUBLE, HASTY, STACK, Cell, verdict

# pytest reports the SystemExit that ends a learner's thread; Python itself passes over it in silence.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture(autouse=True)
def exercises_of_this_file(defined: Callable[..., None]) -> None:
    defined(DOUBLE, HASTY, STACK)
    _not_right.clear()


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


def test_ctrl_c_stops_the_check(cell: Cell) -> None:
    source = "import signal\ndef f(x, times=1): signal.raise_signal(signal.SIGINT)"
    with pytest.raises(KeyboardInterrupt):
        check("99.double", cell(source)["f"])
    assert sys.gettrace() is None or "pytest" not in str(sys.gettrace())
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


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
