"""Lesson 07, the test-writing exercise: tests of block tables, tried on right and on wrong ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from mini_engine.cache import BlockTables, NoFreeBlocksError
from mini_engine.course.bug_bank import BugHunt
from mini_engine.course.cache_requests import CacheUser, compute, decode, prefill, start
from mini_engine.course.exercise import Mutant
from mini_engine.course.exercises.bugs07_block_tables import BLOCK_TABLE_BUGS

MakeCache = Callable[[int, int], BlockTables]


def refuses(kind: type[Exception], call: Callable[[], object]) -> bool:
    """Whether the call raises this kind of error."""
    try:
        call()
    except kind:
        return True
    return False


def check_block_tables(make: MakeCache) -> None:
    """Raise AssertionError unless make(num_blocks, block_size) has the block tables that the lesson asks for."""
    for size in (1, 4):
        cache = make(6, size)
        a = CacheUser("a", [])
        start(cache, a)
        for length in range(1, 3 * size + 1):
            decode(cache, a, length)
            assert len(a.block_table) == -(-length // size), f"{length} tokens in blocks of {size}: {a.block_table}"
            assert cache.pool.num_free == 6 - len(a.block_table)
        b = CacheUser("b", list(range(2 * size + 1)))
        prefill(cache, b)
        assert len(set(a.block_table + b.block_table)) == 6, f"a block in two tables: {a.block_table}, {b.block_table}"
        assert refuses(NoFreeBlocksError, partial(decode, cache, a, 9))
        cache.free(a)
        assert a.block_table == []
        assert cache.pool.num_free == 3
        cache.free(b)
        assert cache.pool.num_free == 6

    long = CacheUser("long", list(range(11)))
    cache = make(6, 4)
    start(cache, long, 0)
    compute(cache, long)
    assert len(long.block_table) == 3

    pool = make(4, 4).pool
    blocks = pool.allocate(3)
    assert refuses(NoFreeBlocksError, lambda: pool.allocate(2))
    assert pool.num_free == 1
    pool.release(blocks[:1])
    assert refuses(ValueError, lambda: pool.release(blocks[:1]))
    assert pool.num_free == 2
    assert refuses(ValueError, lambda: pool.ref_count(-1))
    assert refuses(ValueError, lambda: pool.ref_count(0))


def _with_random_requests(make: MakeCache) -> None:
    """Another right test: many requests come and go; after each step the blocks are counted."""
    draw = random.Random(0)
    cache = make(9, 3)
    alive: dict[int, CacheUser] = {}
    for number in range(120):
        kind = draw.choice("nddf")
        try:
            if kind == "n":
                user = CacheUser(str(number), list(range(draw.randrange(8))))
                start(cache, user, 0)
                if user.token_ids:
                    compute(cache, user)
                alive[number] = user
            elif alive and kind == "d":
                decode(cache, draw.choice(list(alive.values())), number)
            elif alive:
                gone = alive.pop(draw.choice(list(alive)))
                cache.free(gone)
                assert gone.block_table == []
        except NoFreeBlocksError:
            pass  # what it left behind is counted below
        tables = [user.block_table for user in alive.values()]
        assert all(len(user.block_table) == (len(user.token_ids) + 2) // 3 for user in alive.values())
        assert len({block for table in tables for block in table}) == sum(map(len, tables)) == 9 - cache.pool.num_free

    pool = make(2, 3).pool
    for call in (lambda: pool.allocate(3), lambda: pool.release([1]), lambda: pool.is_published(-1)):
        try:
            call()
        except (NoFreeBlocksError, ValueError):
            assert pool.num_free == 2
        else:
            raise AssertionError("a call that makes no sense was accepted")


def _one_block_is_enough(make: MakeCache) -> None:
    cache = make(4, 4)
    a = CacheUser("a", [1, 2, 3])
    prefill(cache, a)
    assert len(a.block_table) == 1
    cache.free(a)


def _never_frees(make: MakeCache) -> None:
    cache = make(6, 4)
    a = CacheUser("a", [])
    start(cache, a)
    for length in range(1, 13):
        decode(cache, a, length)
        assert len(a.block_table) == (length + 3) // 4


def _wants_these_numbers(make: MakeCache) -> None:
    cache = make(4, 4)
    a = CacheUser("a", [1, 2, 3, 4, 5])
    prefill(cache, a)
    assert a.block_table == [1, 2]


def _says_nothing(make: MakeCache) -> None:
    cache = make(6, 4)
    a = CacheUser("a", [1, 2, 3, 4, 5])
    prefill(cache, a)
    cache.free(a)


ACCEPTS, REST = "right block tables pass", "it catches every bug in the bank"

BLOCK_TABLE_TESTS = BugHunt(
    id="07.bugs",
    title="Tests that broken block tables cannot pass",
    reference=check_block_tables,
    budget=1_000_000,
    seconds=5.0,
    bank=BLOCK_TABLE_BUGS,
    properties=BLOCK_TABLE_BUGS.properties(ACCEPTS, REST),
    mutants=[
        Mutant("wants these block numbers", _wants_these_numbers, ACCEPTS, "No caller needs to know which block it is."),
        Mutant("one block is enough", _one_block_is_enough, REST, "Most mistakes are made where a block is full."),
        Mutant("never frees", _never_frees, REST, "Half of the life of a block is how it comes back."),
        Mutant("asserts nothing", _says_nothing, REST, "That it runs does not say what it did."),
    ],
    alternatives=[_with_random_requests],
)  # fmt: skip
