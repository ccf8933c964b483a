"""Properties for find-the-bug labs: the learner's subclass of a broken class is cured of a defect, and still works."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from mini_engine.course.defects.allocator_scenarios import ALLOCATOR_SCENARIOS
from mini_engine.course.defects.benches import AllocatorBench, PoolBench, refused
from mini_engine.course.defects.pool_scenarios import POOL_SCENARIOS
from mini_engine.course.exercise import Property
from mini_engine.course.expect import expect, expect_close, expect_equal, in_case

STILL_WORKS = "what worked before still works"


def cured(defect: str, promise: str) -> Property:
    """The property, called `promise`, of a subclass that no longer has this defect."""
    bench = AllocatorBench if defect in ALLOCATOR_SCENARIOS else PoolBench
    scenario = {**ALLOCATOR_SCENARIOS, **POOL_SCENARIOS}[defect]
    return Property(promise, lambda kind: scenario(partial(bench, kind=kind)))


def allocator_works(kind: Any) -> None:
    """Prompts, growth, hits, release: what the broken allocator does well."""
    bench = AllocatorBench(6, 2, kind=kind)
    expect_equal(bench.start("a", [1, 2, 3, 4, 5]), 0, "6 blocks of 2: start a with 1 to 5; tokens found")
    bench.append("a", 6, 7)
    expect_equal(bench.contents("a"), [1, 2, 3, 4, 5, 6, 7], "append 6, 7 to a: its tokens")
    expect_equal(bench.num_free, 2, "free blocks then")
    case = "6 blocks of 2, and a holds 4 of them, with 1 to 7: start b with 1 to 4 and 9"
    with in_case(f"{case}; it shares 2 and needs 1"):
        found = bench.start("b", [1, 2, 3, 4, 9])
    expect_equal(found, 4, f"{case}; tokens found")
    expect_equal(bench.table("b")[:2], bench.table("a")[:2], "the blocks that b shares with a")
    expect_equal(sorted(bench.counts()), [0, 1, 1, 1, 2, 2], "the counts of all blocks, sorted")
    bench.append("b", 8)
    expect(refused(lambda: bench.append("b", 8, 8, 8)), "append 3 more to b: 1 block is free", expected="MemoryError")
    for name in ("a", "b"):
        bench.release(name)
    expect_equal(bench.num_free, 6, "release a and b: free blocks")
    expect_equal(bench.counts(), [0] * 6, "release a and b: counts")
    expect_equal(bench.look_up([1, 2, 8, 8, 3, 4]), 2, "look up 1, 2, 8, 8, 3, 4: the chain ends at the first miss")


def pool_works(kind: Any) -> None:
    """Keys of many tokens in several blocks, and a pool that is full says so: what the broken pool does well."""
    bench, keys = PoolBench(kind=kind), np.random.default_rng(0).integers(-64, 64, size=(8, 2, 4)) / 8
    bench.add("a", 8)
    for position, key in enumerate(keys):
        bench.write("a", position, key, key)
    expect_close(bench.peek("a", 8)[0], keys, "write 8 tokens: the keys", rtol=0, same_dtype=False)
    expect_equal(bench.pool.utilization, 0.25, "8 tokens in blocks of 4 hold 2 blocks of 8: utilization")
    expect(refused(lambda: bench.add("b", 25)), "7 blocks wanted, 6 free", expected="MemoryError", got="no error")
