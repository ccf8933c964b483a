"""Lesson 08, fork: a table of one's own over blocks that are shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mini_engine.cache import BlockPool
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers08_fork as answers
from mini_engine.course.expect import expect, expect_equal

Fork = Callable[[BlockPool, list[int], int, int], Any]

# Blocks of the parent, tokens computed, slots of a block.
FULL = [(1, 4, 4), (2, 8, 4), (3, 6, 2), (4, 4, 1)]
PARTLY = [(1, 1, 4), (1, 3, 4), (2, 5, 4), (3, 9, 4), (2, 17, 16)]
RESERVED = [(2, 3, 4), (2, 4, 4), (5, 9, 4), (3, 1, 2), (2, 0, 4)]


def _case(num_blocks: int, num_tokens: int, block_size: int) -> tuple[BlockPool, list[int], str]:
    pool = BlockPool(12)
    pool.allocate(2)  # others live here too
    blocks = pool.allocate(num_blocks)
    table = [*blocks[1::2], *blocks[::2]]  # tables do not ascend
    return pool, table, f"table {table}, {num_tokens} token{'s' * (num_tokens != 1)}, blocks of {block_size}"


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
    for num_blocks, num_tokens, block_size in [*PARTLY, *FULL, *RESERVED]:
        pool, table, case = _case(num_blocks, num_tokens, block_size)
        shared = table[: -(-num_tokens // block_size)]
        for n in (2, 3, 4):
            _branch(candidate, pool, table, num_tokens, block_size, case)
            counts = {block: pool.ref_count(block) for block in table}
            want = {block: n if block in shared else 1 for block in table}
            expect_equal(counts, want, f"{case}\n{{block: holders}}, {n} branches in all")
            others = [pool.ref_count(block) for block in (1, 2)]
            expect_equal(others, [1, 1], f"{case}\nholders of blocks 1 and 2, which belong to others")
            expect_equal(pool.num_free, 10 - num_blocks, f"{case}\nfree blocks, {n} branches in all")


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
        Mutant("sorted", answers.sorted_blocks, WHOLE, "The order of the table is the order of the tokens."),
        Mutant("blocks of four", answers.blocks_of_four, WHOLE, "The block size is an argument."),
        Mutant("full blocks only", answers.full_blocks_only, TAIL, "The branch needs the K and V of the last tokens, too."),
        Mutant("the reserve too", answers.the_reserve_too, RESERVE, "The parent will write there."),
        Mutant("one block too many", answers.one_block_too_many, RESERVE, "Right unless the tokens end with a block."),
        Mutant("at least one block", answers.at_least_one_block, RESERVE, "Before anything is computed there is nothing to share."),
        Mutant("holds the reserve", answers.holds_the_reserve, HOLDERS, "When all have ended, the reserve still has a holder, and is lost."),
        Mutant("no holder", answers.no_holder, HOLDERS, "When the parent ends, its blocks go to strangers."),
        Mutant("holds the first only", answers.holds_the_first, HOLDERS, "Each block has a count of its own."),
        Mutant("holds twice", answers.holds_twice, HOLDERS, "It would never become free."),
        Mutant("the same list", answers.same_list, OWN, "When one branch grows, the other grows with it."),
    ],
    alternatives=[answers.fork_in_a_loop],
)  # fmt: skip
