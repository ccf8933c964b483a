"""Lesson 08, fork: a table of one's own over blocks that are shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mini_engine.cache import BlockPool
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers08_sharing as answers
from mini_engine.course.expect import expect, expect_equal

Fork = Callable[[BlockPool, list[int], int, int], Any]

# Blocks of the parent, tokens computed, slots of a block.
FULL = [(1, 4, 4), (2, 8, 4), (3, 6, 2), (4, 4, 1)]
PARTLY = [(1, 1, 4), (1, 3, 4), (2, 5, 4), (3, 9, 4)]
RESERVED = [(2, 3, 4), (2, 4, 4), (5, 9, 4), (3, 1, 2)]


def _case(num_blocks: int, num_tokens: int, block_size: int) -> tuple[BlockPool, list[int], str]:
    pool = BlockPool(12)
    pool.allocate(2)  # others live here too
    table = pool.allocate(num_blocks)
    return pool, table, f"table {table}, {num_tokens} tokens, blocks of {block_size}"


def _branch(
    candidate: Fork, pool: BlockPool, table: list[int], num_tokens: int, block_size: int, case: str
) -> list[int]:
    got = candidate(pool, table, num_tokens, block_size)
    expect(type(got) is list, case, expected="a list of blocks", got=got)
    return got


def _table_is(cases: list[tuple[int, int, int]]) -> Callable[[Fork], None]:
    def run(candidate: Fork) -> None:
        for num_blocks, num_tokens, block_size in cases:
            pool, table, case = _case(num_blocks, num_tokens, block_size)
            want = table[: -(-num_tokens // block_size)]
            got = _branch(candidate, pool, table, num_tokens, block_size, case)
            expect_equal(got, want, f"{case}\ntable of the branch")

    return run


def _holders(candidate: Fork) -> None:
    for num_blocks, num_tokens, block_size in [*PARTLY, *FULL]:
        pool, table, case = _case(num_blocks, num_tokens, block_size)
        for n in (2, 3, 4):
            _branch(candidate, pool, table, num_tokens, block_size, case)
            counts = [pool.ref_count(block) for block in table]
            expect_equal(counts, [n] * num_blocks, f"{case}\nholders of each block, {n} branches in all")


def _own_list(candidate: Fork) -> None:
    pool, table, case = _case(2, 7, 4)
    branch = _branch(candidate, pool, table, 7, 4, case)
    before = list(table)
    branch.append(99)
    expect_equal(table, before, f"{case}\nthe branch appends block 99 to its table; table of the parent")


WHOLE, TAIL, RESERVE, HOLDERS, OWN = (
    "the branch has the blocks of the parent",
    "a last block that is not full is shared too",
    "blocks reserved beyond stay the parent's",
    "each shared block has as many holders as there are branches",
    "the branch has a list of its own",
)

FORK = Exercise(
    id="08.fork",
    title="Fork",
    reference=answers.fork,
    may_change=("pool",),
    properties=[
        Property(WHOLE, _table_is(FULL)),
        Property(TAIL, _table_is(PARTLY)),
        Property(OWN, _own_list),
        Property(RESERVE, _table_is(RESERVED)),
        Property(HOLDERS, _holders),
    ],
    mutants=[
        Mutant("new blocks", answers.new_blocks, WHOLE, "Nothing is shared, and nothing has been computed in them."),
        Mutant("full blocks only", answers.full_blocks_only, TAIL, "The branch needs the K and V of the last tokens, too."),
        Mutant("the reserve too", answers.the_reserve_too, RESERVE, "The parent will write there."),
        Mutant("one block too many", answers.one_block_too_many, RESERVE, "Right unless the tokens end with a block."),
        Mutant("no holder", answers.no_holder, HOLDERS, "When the parent ends, its blocks go to strangers."),
        Mutant("holds the first only", answers.holds_the_first, HOLDERS, "Each block has a count of its own."),
        Mutant("holds twice", answers.holds_twice, HOLDERS, "It would never become free."),
        Mutant("the same list", answers.same_list, OWN, "When one branch grows, the other grows with it."),
    ],
    alternatives=[answers.fork_in_a_loop],
)  # fmt: skip
