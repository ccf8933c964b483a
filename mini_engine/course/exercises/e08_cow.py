"""Lesson 08, copy on write: the one method that lets branches share a block that is not full."""

from __future__ import annotations

from typing import Any

from mini_engine.cache import CacheOp, NoFreeBlocksError
from mini_engine.course.cache_requests import CacheUser, decode, fork, prefill, start
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers08_sharing as answers
from mini_engine.course.expect import expect, expect_equal, fail


def _family(manager: Any, num_tokens: int, n: int = 2, num_blocks: int = 12) -> tuple[Any, list[CacheUser], str]:
    """A cache with blocks of 4, and n branches that have computed the same tokens."""
    cache = manager(num_blocks, 4, enable_prefix_caching=False)
    parent = CacheUser("a", list(range(1, num_tokens + 1)))
    prefill(cache, parent)
    branches = [parent, *(fork(cache, parent, index) for index in range(1, n))]
    return (
        cache,
        branches,
        f"blocks of 4, {num_tokens} tokens in table {parent.block_table}, {n} branch{'es' * (n > 1)}",
    )


def _own_block(manager: Any) -> None:
    for num_tokens in (1, 3, 6):
        cache, [parent], case = _family(manager, num_tokens, n=1)
        table = list(parent.block_table)
        expect_equal(cache.cow_if_shared(parent), None, f"{case}: cow_if_shared")
        expect_equal(parent.block_table, table, f"{case}: table afterwards")


def _shared_block(manager: Any) -> None:
    for num_tokens in (3, 6, 9):
        cache, [parent, branch], case = _family(manager, num_tokens)
        table, list_before = list(branch.block_table), branch.block_table
        op = cache.cow_if_shared(branch)
        if op is None:
            fail(f"{case}: cow_if_shared of branch 1", expected="a CacheOp", got=None)
        expect(
            branch.block_table is list_before,
            f"{case}: block_table",
            expected="the same list, changed",
            got="a new list",
        )
        expect_equal(branch.block_table[:-1], table[:-1], f"{case}: blocks before the last, which are full")
        new = branch.block_table[-1]
        expect(new not in table, f"{case}: last block of branch 1", expected="a new block", got=new)
        want = CacheOp("copy", table[-1], new)
        expect(type(op) is CacheOp and op == want, f"{case}: cow_if_shared of branch 1", expected=want, got=op)
        expect_equal(parent.block_table, table, f"{case}: table of branch 0, which did not write")


def _holders(manager: Any) -> None:
    for n in (2, 3, 4):
        cache, branches, case = _family(manager, 6, n=n)
        shared = branches[0].block_table[1]
        cache.cow_if_shared(branches[1])
        expect_equal(
            cache.pool.ref_count(shared), n - 1, f"{case}: holders of block {shared} after branch 1 has copied"
        )
        new = branches[1].block_table[1]
        expect_equal(cache.pool.ref_count(new), 1, f"{case}: holders of the copy, block {new}")


def _last_owner(manager: Any) -> None:
    for n in (2, 3, 4):
        cache, branches, case = _family(manager, 6, n=n)
        ops = [decode(cache, branch, 50 + branch.index) for branch in branches]
        expect_equal([len(each) for each in ops], [1] * (n - 1) + [0], f"{case}: copies, one branch after the other")
        ops = [decode(cache, branch, 60) for branch in branches]
        expect_equal([len(each) for each in ops], [0] * n, f"{case}: copies for a second token")


def _boundary(manager: Any) -> None:
    for num_tokens in (4, 8):
        cache, branches, case = _family(manager, num_tokens)
        table = list(branches[0].block_table)
        for branch in branches:
            try:
                op = cache.cow_if_shared(branch)
            except IndexError as error:
                fail(
                    f"{case}, all full: the next token needs a block that is not there yet",
                    expected=None,
                    got=f"IndexError: {error}",
                )
            expect_equal(op, None, f"{case}, all full: cow_if_shared")
            expect_equal(branch.block_table, table, f"{case}, all full: table afterwards")


def _reserved(manager: Any) -> None:
    cache = manager(12, 4, enable_prefix_caching=False)
    parent = CacheUser("a", [1, 2, 3])
    start(cache, parent, 12)  # room for 12 tokens
    parent.num_computed_tokens = 3
    branch = fork(cache, parent, 1)
    case = f"table {parent.block_table} with room for 12 tokens, 3 computed, then a fork"
    op = cache.cow_if_shared(parent)
    expect(op is not None, f"{case}: cow_if_shared of the parent", expected="a CacheOp", got=op)
    expect_equal(op.src, branch.block_table[0], f"{case}: the block that is copied")


def _no_room(manager: Any) -> None:
    cache, [parent, branch], case = _family(manager, 3, num_blocks=1)
    [shared] = parent.block_table
    for times in ("once", "twice"):
        try:
            got = cache.cow_if_shared(branch)
        except NoFreeBlocksError:
            got = None
        else:
            fail(f"{case}, no block free: cow_if_shared, {times}", expected="NoFreeBlocksError", got=got)
        expect_equal(branch.block_table, [shared], f"{case}, no block free: table after the error ({times})")
        expect_equal(cache.pool.ref_count(shared), 2, f"{case}, no block free: holders after the error ({times})")


OWN, SHARED, HOLDERS, LAST, FULL, RESERVE, ROOM = (
    "a block of one's own is left alone",
    "a shared block is replaced by a new one, and the copy is told",
    "the old block loses one holder, the new one has one",
    "n branches make n - 1 copies, and the last owner none",
    "a full last block is not copied",
    "the block of the next token counts, not the end of the table",
    "with no free block nothing changes",
)

COW = Exercise(
    id="08.cow",
    title="Copy on write",
    reference=answers.CopyOnWrite,
    methods=("cow_if_shared",),
    properties=[
        Property(OWN, _own_block),
        Property(SHARED, _shared_block),
        Property(HOLDERS, _holders),
        Property(LAST, _last_owner),
        Property(FULL, _boundary),
        Property(RESERVE, _reserved),
        Property(ROOM, _no_room),
    ],
    mutants=[
        Mutant("always copies", answers.AlwaysCopies, OWN, "Nobody else reads a block with one holder."),
        Mutant("never copies", answers.NeverCopies, SHARED, "The sibling's token is overwritten."),
        Mutant("tells nobody", answers.TellsNobody, SHARED, "The new block stays empty: only the backend can copy."),
        Mutant("the wrong way", answers.WrongWay, SHARED, "The shared block is overwritten by an empty one."),
        Mutant("keeps the table", answers.KeepsTheTable, SHARED, "The write still goes to the shared block."),
        Mutant("a new list", answers.NewTable, SHARED, "The manager knows its list, and refuses another."),
        Mutant("the first block", answers.FirstBlock, SHARED, "It is full, and the write goes elsewhere."),
        Mutant("keeps its hold", answers.KeepsItsHold, HOLDERS, "The old block never becomes free."),
        Mutant("releases for all", answers.ReleasesForAll, HOLDERS, "Of three branches, the second then writes in place."),
        Mutant("the parent writes in place", answers.ParentOwns, LAST, "Who writes first is not decided: branch 0 may be the first."),
        Mutant("no block yet", answers.NoBlockYet, FULL, "At a block boundary there is nothing to look at."),
        Mutant("the end of the table", answers.LastBlock, FULL, "The last block is full and will not be written again."),
        Mutant("the end of a table that is not full", answers.LastUnlessFull, RESERVE, "Reserved blocks stand behind the one that is written."),
        Mutant("gives up first", answers.GivesUpFirst, ROOM, "The error comes when the count is lowered already."),
        Mutant("writes anyway", answers.WritesAnyway, ROOM, "Without the error the request writes into the shared block."),
    ],
    alternatives=[answers.InOtherWords],
)  # fmt: skip
