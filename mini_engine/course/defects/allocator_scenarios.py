"""The shortest way to each defect of the broken allocator: scenario(make) raises where it is, and returns where it is not.

make(num_blocks, block_size, weak_names=False) gives a bench, see `benches`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mini_engine.course.defects.benches import refused
from mini_engine.course.defects.scenario import Scenarios
from mini_engine.course.expect import expect, expect_equal

ALLOCATOR_SCENARIOS = Scenarios()


@ALLOCATOR_SCENARIOS.shows("a second release goes unnoticed")
def _second_release(make: Any) -> None:
    bench = make(2, 4)
    bench.start("a", [1, 2])
    bench.release("a")
    refused(lambda: bench.release("a"), ValueError)  # or nothing happens
    expect_equal(bench.counts(), [0, 0], "start a, release a, release a again: the counts of both blocks")


@ALLOCATOR_SCENARIOS.shows("a late release takes a block from its new owner")
def _late_release(make: Any) -> None:
    bench = make(1, 4)
    bench.start("a", [1, 2])
    bench.release("a")
    bench.start("b", [5, 6])
    refused(lambda: bench.release("a"), ValueError)
    case = "1 block: start a, release a, start b, release a again, start c"
    expect(refused(lambda: bench.start("c", [7])), case, expected="MemoryError: b has the block", got="c has it, too")


@ALLOCATOR_SCENARIOS.shows("a released sequence still has its blocks")
def _stale_table(make: Any) -> None:
    bench = make(1, 4)
    bench.start("a", [1, 2])
    bench.release("a")
    bench.start("b", [5, 6])
    refused(lambda: bench.append("a", 99), (ValueError, IndexError, MemoryError))
    expect_equal(bench.contents("b"), [5, 6], "1 block: start a, release a, start b, append 99 to a: b's tokens")


@ALLOCATOR_SCENARIOS.shows("an empty prompt cannot grow", IndexError)
def _empty_prompt(make: Any) -> None:
    bench = make(2, 4)
    bench.start("a", [])
    bench.append("a", 1)
    expect_equal(bench.contents("a"), [1], "start a with no tokens, append 1: a's tokens")


@ALLOCATOR_SCENARIOS.shows("nobody can ask first", AttributeError)
def _ask_first(make: Any) -> None:
    bench = make(2, 4)
    answers = [bench.can_start(range(length)) for length in (0, 8, 9)]
    expect_equal(answers, [True, True, False], "2 blocks of 4: can 0, 8, 9 tokens start?")
    expect_equal(bench.num_free, 2, "free blocks after asking")


@ALLOCATOR_SCENARIOS.shows("nothing can be shared on purpose", AttributeError)
def _fork(make: Any) -> None:
    bench = make(2, 4)
    bench.start("a", [1, 2])
    bench.fork("a", "b")
    bench.append("b", 3)
    bench.append("a", 4)
    case = "start a with 1, 2; fork b; append 3 to b and 4 to a: tokens of a and b"
    expect_equal([bench.contents("a"), bench.contents("b")], [[1, 2, 4], [1, 2, 3]], case)


@ALLOCATOR_SCENARIOS.shows("a copy gives up the shared block first")
def _copy_order(make: Any) -> None:
    bench = make(1, 4)
    bench.start("a", [1, 2])
    bench.share("a", "b")
    for attempt in ("first", "second"):
        failed = refused(lambda: bench.append("b", 9))
        case = f"1 block, shared by a and b; append to b, {attempt} attempt"
        expect(failed, case, expected="MemoryError", got=f"a's tokens are {bench.contents('a')}")
        expect_equal(bench.counts(), [2], f"{case}: holders of the block")


@ALLOCATOR_SCENARIOS.shows("nobody is told of a copy")
def _copy_told(make: Any) -> None:
    bench = make(2, 4)
    bench.start("a", [1, 2])
    bench.share("a", "b")
    ops = bench.append("b", 3)
    expect_equal(
        ops, [(bench.table("a")[0], bench.table("b")[0])], "a and b share a block, append to b: copies to make"
    )


@ALLOCATOR_SCENARIOS.shows("a refused prompt keeps what it took")
def _no_rollback(make: Any) -> None:
    bench = make(4, 4)
    bench.start("a", range(9))
    bench.release("a")
    case = "4 blocks of 4: start b with 24 tokens"
    expect(refused(lambda: bench.start("b", range(24))), case, expected="MemoryError", got="no error")
    expect_equal(bench.num_free, 4, f"{case}, which is refused: free blocks")
    expect_equal(bench.counts(), [0] * 4, f"{case}, which is refused: counts")


@ALLOCATOR_SCENARIOS.shows("blocks filled by decoding are lost to the cache")
def _decode_filled(make: Any) -> None:
    bench = make(8, 4)
    bench.start("a", [1, 2, 3])
    bench.append("a", 4, 5)
    bench.release("a")
    case = "blocks of 4: start a with 1, 2, 3; append 4, 5; release a; tokens found of 1, 2, 3, 4, 9"
    expect_equal(bench.look_up([1, 2, 3, 4, 9]), 4, case)


@ALLOCATOR_SCENARIOS.shows("the head of a prompt goes first")
def _head_first(make: Any) -> None:
    bench = make(4, 2)
    bench.start("a", range(8))
    bench.release("a")
    bench.start("b", [50])
    case = "4 blocks of 2: run a prompt of 8 tokens, then take 1 block; tokens of the prompt that are found"
    expect_equal(bench.look_up(range(9)), 6, case)


@ALLOCATOR_SCENARIOS.shows("a full hit leaves nothing to compute")
def _full_hit(make: Any) -> None:
    bench = make(4, 4)
    bench.start("a", range(8))
    bench.release("a")
    expect_equal(bench.start("b", range(8)), 4, "blocks of 4: the same 8 tokens twice; tokens found the second time")


@ALLOCATOR_SCENARIOS.shows("a block is found before it is computed")
def _too_early(make: Any) -> None:
    bench = make(8, 4)
    bench.start("a", range(16), computed=False)
    expect_equal(bench.look_up(range(9)), 0, "start a, compute nothing yet: tokens of a's prompt that are found")


@ALLOCATOR_SCENARIOS.shows("a token out of range stops halfway", OverflowError)
def _odd_token(make: Any) -> None:
    for bad in (2**70, -(2**70)):
        bench = make(4, 2)
        case = f"4 blocks of 2: start with 1, 2, {bad}, 3"
        expect(refused(partial(bench.start, "a", [1, 2, bad, 3]), ValueError), case, expected="ValueError")
        expect_equal(bench.num_free, 4, f"{case}, which is refused: free blocks")


@ALLOCATOR_SCENARIOS.shows("a name is believed")
def _collision(make: Any) -> None:
    bench = make(4, 2, weak_names=True)
    bench.start("a", [1, 2, 9])
    expect_equal(bench.look_up([3, 7, 9]), 0, "1, 2 is cached, and 3, 7 has the same name: tokens found of 3, 7, 9")


@ALLOCATOR_SCENARIOS.shows("one cache for all tenants", TypeError)
def _salt(make: Any) -> None:
    bench = make(4, 2)
    bench.start("a", [1, 2, 9], cache_salt="ann")
    found = [bench.look_up([1, 2, 9], cache_salt=salt) for salt in ("ann", "bob")]
    expect_equal(found, [2, 0], "ann's prompt is cached: tokens found of the same prompt by ann, by bob")


@ALLOCATOR_SCENARIOS.shows("an evicted twin takes the name along")
def _twins(make: Any) -> None:
    bench = make(8, 2)
    bench.start("a", [1, 2, 3, 4, 5])
    head, second, _ = bench.table("a")
    bench.release("a")
    bench.evict(head)
    bench.start("b", [1, 2, 3, 4, 5])
    bench.evict(second)
    case = "b computed what a's first, evicted block and its second block hold; the second goes, too: tokens found"
    expect_equal(bench.look_up([1, 2, 3, 4, 5]), 4, case)


@ALLOCATOR_SCENARIOS.shows("blank blocks wait behind cached ones")
def _blank_last(make: Any) -> None:
    bench = make(3, 4)
    bench.start("a", [1, 2, 3, 4])
    bench.release("a")
    bench.start("b", [50, 51])
    bench.release("b")
    bench.start("c", range(60, 68))
    case = "3 blocks: one full and cached, one never full, one never used; 2 are taken: tokens found of the cached one"
    expect_equal(bench.look_up([1, 2, 3, 4, 9]), 4, case)
