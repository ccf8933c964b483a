"""Lesson 08, the test-writing exercise: tests of fork and copy-on-write, tried on right and on wrong ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from mini_engine.cache import BlockTables, CacheOp, NoFreeBlocksError
from mini_engine.course.bug_bank import BugHunt
from mini_engine.course.cache_requests import CacheUser, compute, decode, fork, prefill, start
from mini_engine.course.exercise import Mutant
from mini_engine.course.exercises.bugs08_sharing import SHARING_BUGS

MakeCache = Callable[[int, int], BlockTables]


def _holds(cache: BlockTables, users: list[CacheUser]) -> None:
    """Every block is counted as often as tables hold it, and the rest is free."""
    holders = Counter(block for user in users for block in user.block_table)
    assert cache.pool.num_free == cache.pool.num_blocks - len(holders), "free blocks and held blocks do not add up"
    for block, number in holders.items():
        assert cache.pool.ref_count(block) == number, f"block {block} has {number} holders"


def check_sharing(make: MakeCache) -> None:
    """Raise AssertionError unless forks of make(num_blocks, block_size) share, copy on write, and tell of each copy."""
    cache = make(8, 4)
    a = CacheUser("a", [1, 2, 3, 4, 5, 6])
    prefill(cache, a)
    before = list(a.block_table)
    branches = [a, fork(cache, a, 1), fork(cache, a, 2)]
    assert [branch.block_table for branch in branches] == [before] * 3
    _holds(cache, branches)

    ops = [decode(cache, branch, 10 + branch.index) for branch in reversed(branches)]
    assert ops == [[CacheOp("copy", before[1], branch.block_table[1])] for branch in reversed(branches[1:])] + [[]]
    assert [branch.block_table[0] for branch in branches] == [before[0]] * 3
    assert len({branch.block_table[1] for branch in branches}) == 3
    _holds(cache, branches)
    decode(cache, branches[1], 20, 21)
    assert [len(branch.block_table) for branch in branches] == [2, 3, 2]
    while branches:
        cache.free(branches.pop(0))
        _holds(cache, branches)

    cache = make(4, 4)  # no room: nothing may have changed
    a = CacheUser("a", [1, 2, 3])
    start(cache, a, 12)
    compute(cache, a)
    b = fork(cache, a, 1)
    assert len(b.block_table) == 1, "what a has reserved is a's"
    _holds(cache, [a, b])
    b.token_ids += [4, 5]
    for call in (lambda: cache.append(b, 2), lambda: cache.append(a, 10)):
        tables = list(a.block_table), list(b.block_table)
        try:
            call()
        except NoFreeBlocksError:
            assert (a.block_table, b.block_table) == tables
            _holds(cache, [a, b])
        else:
            raise AssertionError("a copy and a new block came out of one free block")
    other = CacheUser("other", [1])
    prefill(cache, other)
    try:
        cache.cow_if_shared(b)
    except NoFreeBlocksError:
        _holds(cache, [a, b, other])
    else:
        raise AssertionError("a copy came out of no free block")


def _with_contents(make: MakeCache) -> None:
    """Another right test: keep what every slot holds, and read back what each branch wrote; random forks and frees."""
    draw = random.Random(5)
    for num_blocks in (12, 5):
        cache = make(num_blocks, 3)
        slots: dict[tuple[int, int], int | None] = {}
        alive: dict[tuple[str, int], CacheUser] = {}
        for step in range(120):
            kind = draw.choice("nddddkkf")
            users = list(alive.values())
            before = {key: list(user.block_table) for key, user in alive.items()}
            free, user, old = cache.pool.num_free, None, []
            try:
                if kind == "n" or not users:
                    user = CacheUser(str(step), [step, step + 1])
                    start(cache, user, draw.choice([2, 8]))
                    alive[user.request_id, 0] = user
                    ops = compute(cache, user)
                elif kind == "d":
                    user = draw.choice(users)
                    old = list(user.block_table)
                    user.token_ids += [step] * draw.choice([1, 1, 5])
                    ops = cache.append(user, len(user.token_ids) - user.num_computed_tokens)
                    assert len(ops) <= 1
                    assert all(op.src in old and op.dst in user.block_table for op in ops)
                    for op in ops:
                        slots.update({(op.dst, i): slots.get((op.src, i)) for i in range(3)})
                elif kind == "k":
                    parent = draw.choice(users)
                    branch = fork(cache, parent, step)
                    alive[branch.request_id, step] = branch
                    assert len(branch.block_table) == -(-len(parent.token_ids) // 3)
                    continue
                else:
                    key = draw.choice(list(alive))
                    cache.free(alive.pop(key))
                    continue
            except NoFreeBlocksError:
                if user is not None:
                    del user.token_ids[user.num_computed_tokens :]
                assert cache.pool.num_free == free
                assert {key: user.block_table for key, user in alive.items()} == before
                continue
            first = user.num_computed_tokens if kind == "d" and old else 0
            for position in range(first, len(user.token_ids)):
                slots[user.block_table[position // 3], position % 3] = user.token_ids[position]
            user.num_computed_tokens = len(user.token_ids)
            for other in alive.values():
                read = [slots[other.block_table[i // 3], i % 3] for i in range(len(other.token_ids))]
                assert read == other.token_ids, f"{other.request_id}.{other.index} reads {read}"
        for user in alive.values():
            cache.free(user)
        assert cache.pool.num_free == num_blocks

    cache = make(20, 3)
    a = CacheUser("a", [1, 2, 3, 4])
    prefill(cache, a)
    branches = [a, *(fork(cache, a, index) for index in range(1, 5))]
    assert sum(len(decode(cache, branch, 5)) for branch in branches) == 4
    cache = make(3, 3)
    a = CacheUser("a", [1, 2, 3, 4])
    prefill(cache, a)
    b = fork(cache, a, 1)
    try:
        cache.append(b, 3)
    except NoFreeBlocksError:
        assert a.block_table == b.block_table
    cache = make(1, 3)
    a = CacheUser("a", [1])
    prefill(cache, a)
    fork(cache, a, 1)
    for _ in range(2):
        try:
            cache.cow_if_shared(a)
        except NoFreeBlocksError:
            assert cache.pool.ref_count(a.block_table[0]) == 2


def _at_a_block_boundary(make: MakeCache) -> None:
    cache = make(8, 4)
    a = CacheUser("a", [1, 2, 3, 4])
    prefill(cache, a)
    b = fork(cache, a, 1)
    assert decode(cache, a, 5) == decode(cache, b, 6) == []
    assert a.block_table[0] == b.block_table[0]
    assert a.block_table[1] != b.block_table[1]


def _tables_only(make: MakeCache) -> None:
    cache = make(8, 4)
    a = CacheUser("a", [1, 2, 3, 4, 5])
    prefill(cache, a)
    b = fork(cache, a, 1)
    assert a.block_table == b.block_table
    decode(cache, b, 6)
    assert a.block_table != b.block_table


def _copies_at_the_fork(make: MakeCache) -> None:
    cache = make(8, 4)
    a = CacheUser("a", [1, 2, 3, 4, 5])
    prefill(cache, a)
    assert fork(cache, a, 1).block_table[1] != a.block_table[1]


ACCEPTS, REST = "right caches pass", "it catches every bug in the bank"

SHARING_TESTS = BugHunt(
    id="08.bugs",
    title="Tests that a broken fork cannot pass",
    reference=check_sharing,
    budget=2_000_000,
    seconds=5.0,
    bank=SHARING_BUGS,
    properties=SHARING_BUGS.properties(ACCEPTS, REST),
    mutants=[
        Mutant("wants a copy at the fork", _copies_at_the_fork, ACCEPTS, "The copy is made at the first write."),
        Mutant("full blocks only", _at_a_block_boundary, REST, "A full block is never written again: nothing to copy."),
        Mutant("tables only", _tables_only, REST, "Counts and operations can be wrong under right tables."),
    ],
    alternatives=[_with_contents],
)  # fmt: skip
