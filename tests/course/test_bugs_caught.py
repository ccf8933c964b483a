"""Tests that learners write: what they catch is counted, what gets away is named, and right implementations must pass."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from mini_engine.course import CheckFailed, bugs_caught, check
from mini_engine.course.bug_bank import BugHunt
from mini_engine.course.bugs_caught import MAX_ENDLESS
from mini_engine.course.exercises import all_of

check_module = sys.modules["mini_engine.course.check"]  # the package's own name `check` is the function
Cell = Callable[[str], dict[str, Any]]
HUNTS = {hunt.id: hunt for hunt in all_of(BugHunt)}


@pytest.fixture(autouse=True)
def nothing_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new notebook: no reference has been handed out yet."""
    monkeypatch.setattr(check_module, "_not_right", {})


LEARNERS = """
from mini_engine.course.cache_requests import *

def test_blocks(make):
    cache = make(4, 4)
    a = CacheUser("a", [1, 2, 3, 4, 5])
    prefill(cache, a)
    assert len(a.block_table) == 2
    cache.free(a)
    assert a.block_table == []

def test_room(make):
    pool = make(4, 4).pool
    try:
        pool.allocate(5)
    except MemoryError:
        assert pool.num_free == 4
    else:
        assert False, "5 blocks of 4"

def test_numbers(make):
    a = CacheUser("a", [1, 2, 3, 4, 5])
    prefill(make(4, 4), a)
    assert a.block_table == [1, 2], a.block_table
"""


def test_report(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    mine = cell(LEARNERS)
    reference = HUNTS["07.bugs"].reference
    assert bugs_caught([mine["test_blocks"], mine["test_room"]], "07") is reference
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[no] 07.bugs  your tests caught 4 of 10 bugs"
    assert lines[1] == "     ✓ 3 right ones pass"
    assert "     ✓ caught: free leaves the table as it was  (test_blocks, line 10)" in lines
    at = lines.index("     ✗ got away: takes the next block one token early")
    assert lines[at + 1].startswith("         Hint: Fill a block to its last slot")
    assert lines[-1] == "     Going on with the reference version."
    assert all(line.startswith(("[no]", " ")) for line in lines)


def test_a_second_run_of_the_cell_says_the_same(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    tests: Any = cell(LEARNERS)["test_blocks"]
    said = []
    for _ in range(2):
        tests = bugs_caught(tests, "07")
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert said[0].startswith("[no] 07.bugs")


def test_a_right_one_refused_counts_for_nothing(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    mine = cell(LEARNERS)
    assert bugs_caught((mine["test_blocks"], mine["test_numbers"]), "07") is HUNTS["07.bugs"].reference
    text = capsys.readouterr().out
    assert text.startswith("[no] 07.bugs  Tests that broken block tables cannot pass\n     ✗ a right cache passes\n")
    assert "your test refuses a right cache (other block numbers)" in text
    assert "AssertionError: [4, 3]" in text
    assert "in line 24 of test_numbers: assert a.block_table == [1, 2], a.block_table" in text
    assert "caught" not in text


def test_an_error_of_the_test_itself_is_shown(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    mine = cell("def mine(make):\n    make(4, 4).blocks()")["mine"]
    bugs_caught(mine, "07")
    text = capsys.readouterr().out
    assert "your code raised AttributeError" in text
    assert "in line 2 of mine: make(4, 4).blocks()" in text


def test_any_error_on_a_wrong_one_catches_it(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    """As in pytest, whose own failure is no Exception: an assertion is the plainest way to say no, not the only one."""
    source = """
    import pytest
    from mini_engine.course.cache_requests import *

    def growing(make):
        cache, a = make(4, 4), CacheUser("a", [])
        start(cache, a)
        decode(cache, a, 1)

    def twice(make):
        cache = make(4, 4)
        (block,) = cache.pool.allocate(1)
        cache.pool.release([block])
        with pytest.raises(ValueError):
            cache.pool.release([block])
    """
    mine = cell(source)
    bugs_caught([mine["growing"], mine["twice"]], "07")
    text = capsys.readouterr().out
    assert "✓ caught: an empty prompt cannot grow  (growing, line 8)" in text
    assert "✓ caught: a second free goes unnoticed  (twice, line 14)" in text
    assert "your tests caught 2 of 10 bugs" in text


def test_the_line_of_a_catch_is_the_tests_own_not_its_helpers(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    source = """
    def refuses(kind, call, *arguments):
        try:
            call(*arguments)
        except kind:
            return True
        raise AssertionError(kind)

    def mine(make):
        memory = make(8)
        memory.allocate("a", 1, reserve=8)
        memory.free("a")
        refuses(KeyError, memory.free, "a")
    """
    bugs_caught(cell(source)["mine"], "06")
    assert "✓ caught: frees what it does not have  (mine, line 13)" in capsys.readouterr().out


def test_both_functions_run_and_are_counted(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    """Each from a namespace of its own: the steps of the first are counted, too."""
    endless = cell("def endless(make):\n    while True: pass")["endless"]
    fine = cell("def fine(make): pass")["fine"]
    for tests in ([endless, fine], [fine, endless], [fine, endless, fine]):
        bugs_caught(tests, "07")
        assert "used up its budget" in capsys.readouterr().out


def test_endless_on_bugs_only(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    source = """
    def mine(make):
        pool = make(4, 4).pool
        while pool.num_free:
            try:
                pool.allocate(5)
            except MemoryError:
                return
        while True:
            pass

    def deep(make):
        cache = make(4, 4)
        cache.pool.release(cache.pool.allocate(1))
        class A: request_id, index, token_ids, num_computed_tokens, cache_salt, adapter = "a", 0, [], 0, None, None
        a = A()
        a.block_table = []
        while not a.block_table:
            try:
                cache.append(a, 1)
            except IndexError:
                pass
    """
    mine = cell(source)
    bugs_caught([mine["mine"], mine["deep"]], "07")
    text = capsys.readouterr().out
    assert "your tests caught 0 of 10" in text
    assert text.count("used up its budget") == 2 < MAX_ENDLESS


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("mine(make)", "a recursion that never ends"),
        ("raise SystemExit", "your code raised SystemExit"),
        ("raise KeyboardInterrupt", "your code raised KeyboardInterrupt"),
        ("assert make(4, 4).pool.num_free == 4\n    print('hello')", "       | hello"),
        ("try:\n        while True: pass\n    except BaseException: pass", "used up its budget"),
    ],
)
def test_tests_may_do_anything(body: str, words: str, cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    assert bugs_caught(cell(f"def mine(make):\n    {body}")["mine"], "07") is HUNTS["07.bugs"].reference
    text = capsys.readouterr().out
    assert words in text
    assert all(line.startswith(("[no]", " ")) for line in text.splitlines())


def test_an_odd_end_on_one_bug_does_not_hide_the_others(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    source = """
    def leaves(make):
        pool = make(4, 4).pool
        blocks = pool.allocate(2)
        pool.release(blocks[:1])
        try:
            pool.release(blocks[:1])
        except ValueError:
            pass
        else:
            raise SystemExit("a second free")

    def room(make):
        try:
            make(4, 4).pool.allocate(5)
        except MemoryError:
            return
        assert False
    """
    mine = cell(source)
    bugs_caught([mine["room"], mine["leaves"]], "07")
    text = capsys.readouterr().out
    assert "your tests caught 1 of 10 bugs" in text
    assert "✗ got away: a second free goes unnoticed\n         your code raised SystemExit: a second free\n" in text


def test_stub_is_todo(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    stub = cell("def mine(make):\n    raise NotImplementedError")["mine"]
    assert bugs_caught(stub, "09") is HUNTS["09.bugs"].reference
    assert capsys.readouterr().out == (
        "[todo] 09.bugs  Tests that a broken prefix cache cannot pass: not done yet, going on with the reference version\n"
    )


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        (None, "the exercise asks for a function, this is None"),
        ([], "the exercise asks for a function, this is None"),
        ([len, 7], "the exercise asks for a function, this is of type int"),
        (lambda: None, "takes (), the exercise asks for (make"),
    ],
)
def test_misfits(tests: Any, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bugs_caught(tests, "08") is HUNTS["08.bugs"].reference
    assert words in capsys.readouterr().out


def test_a_test_that_counts_its_calls_refuses_a_right_one(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    source = f"calls = 0\ndef mine(make):\n    global calls\n    calls += 1\n    assert calls <= {len(HUNTS['08.bugs'].bank.right)}"
    bugs_caught(cell(source)["mine"], "08")
    assert "refuses a right cache when it has seen others before" in capsys.readouterr().out


def test_replacing_the_engine_does_not_help(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    source = """
    from mini_engine.cache import BlockPool
    def mine(make):
        BlockPool.release = None
    """
    bugs_caught(cell(source)["mine"], "07")
    assert "your code replaced BlockPool.release while it ran; it has been put back" in capsys.readouterr().out
    from mini_engine.cache import BlockPool

    assert BlockPool.release is not None


def test_strict(cell: Cell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COURSE_STRICT", "1")
    mine = cell(LEARNERS)
    with pytest.raises(CheckFailed, match=r"07\.bugs: your tests caught 2 of 10 bugs"):
        bugs_caught(mine["test_room"], "07")
    with pytest.raises(CheckFailed, match=r"07\.bugs: not done yet"):
        bugs_caught(cell("def mine(make):\n    raise NotImplementedError")["mine"], "07")
    reference = HUNTS["07.bugs"].reference
    with pytest.raises(CheckFailed, match=r"07\.bugs: not done yet"):
        bugs_caught(reference, "07")  # the cell is run again with what it was handed
    assert bugs_caught(HUNTS["08.bugs"].reference, "08") is HUNTS["08.bugs"].reference


def test_check_takes_such_an_exercise_too(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    check("07.bugs", cell(LEARNERS)["test_room"])
    assert "your test caught 2 of 10 bugs; these slipped through" in capsys.readouterr().out


def test_unknown_lesson() -> None:
    with pytest.raises(KeyError, match=r"07\.bugs"):
        bugs_caught(len, "97")
