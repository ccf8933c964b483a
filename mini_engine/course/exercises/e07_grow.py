"""Lesson 07, the walk along a block table: there is room in the last block, or a new one is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mini_engine.cache import NoFreeBlocksError
from mini_engine.course.cache_requests import CacheUser, compute, decode, prefill, start
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers07_grow as answers
from mini_engine.course.expect import expect, expect_equal, expect_raises


def _lengths(steps: list[int], block_size: int = 4, num_blocks: int = 9) -> Callable[[Any], None]:
    """Ask for room step by step, and count the blocks."""

    def run(kind: Any) -> None:
        cache, user = kind(num_blocks, block_size), CacheUser("a", [])
        start(cache, user)
        done: list[int] = []
        for num_tokens in steps:
            cache.grow(user, num_tokens)
            done.append(num_tokens)
            case = f"blocks of {block_size}, room asked for {', then '.join(map(str, done))} tokens"
            expect_equal(len(user.block_table), -(-max(done) // block_size), f"{case}: blocks in the table")
            expect_equal(len(set(user.block_table)), len(user.block_table), f"{case}: different blocks in the table")
            expect_equal(cache.pool.num_free, num_blocks - len(user.block_table), f"{case}: free blocks then")

    return run


def _at_once(kind: Any) -> None:
    for block_size in (4, 5, 16):
        _lengths([9, 17, 18], block_size)(kind)
    for order in ([3, 1, 4, 0, 2], [4, 3, 2, 1, 0]):
        cache, user = _used_before(kind, order), CacheUser("a", [])
        start(cache, user)
        cache.grow(user, 9)
        case = "5 blocks of 4, used before; room for 9 tokens: blocks in the table, those of them that the pool gave"
        held = [block for block in user.block_table if cache.pool.num_free == 2 and cache.pool.ref_count(block) == 1]
        expect_equal((len(user.block_table), len(set(held))), (3, 3), case)


def _used_before(kind: Any, order: list[int]) -> Any:
    """A cache whose blocks come back in this order: as after some requests."""
    cache = kind(len(order), 4)
    blocks = sorted(cache.pool.allocate(len(order)))
    for i in reversed(order):
        cache.pool.release([blocks[i]])
    return cache


def _keeps(kind: Any) -> None:
    for order in (list(range(9)), [6, 2, 8, 0, 7, 1, 5, 3, 4], [8, 7, 6, 5, 4, 3, 2, 1, 0]):
        cache = _used_before(kind, order)
        users = a, b = CacheUser("a", list(range(6))), CacheUser("b", list(range(3)))
        lists = a.block_table, b.block_table
        for user, filled in zip(users, lists):
            start(cache, user)
            case = f"room for {len(user.token_ids)} tokens in blocks of 4: the table"
            expect(user.block_table is filled, case, expected="the same list, appended to", got="another list")
            compute(cache, user)
        for token in range(12):
            user = users[token % 2]
            before = list(user.block_table)
            room = len(user.token_ids) + token // 2 + 1
            cache.grow(user, room)
            case = f"{user.request_id} lies in blocks {before} of 4; room for {room} tokens: its table"
            expect(
                user.block_table is lists[token % 2], case, expected="the same list, appended to", got="another list"
            )
            expect_equal(user.block_table[: len(before)], before, f"{case} begins with")
            expect_equal(set(a.block_table) & set(b.block_table), set(), f"{case}, and blocks that the other has too")


def _is_refused(kind: Any) -> None:
    cache, a, b = kind(4, 4), CacheUser("a", list(range(4))), CacheUser("b", list(range(4)))
    prefill(cache, a)
    prefill(cache, b)
    case = "4 blocks of 4, a and b hold one each; a asks for room for 20 tokens"
    expect_raises(NoFreeBlocksError, lambda: cache.grow(a, 20), case)
    expect_equal((len(a.block_table), cache.pool.num_free), (1, 2), f"{case}: blocks of a, free blocks")
    decode(cache, a, *range(8))
    expect_equal(len(a.block_table), 3, f"{case}, is refused, and appends 8 tokens: blocks of a")


ROOM, FULL, MANY, STAYS, LESS, REFUSED = (
    "as long as the last block has room, nothing happens",
    "when it is full, one block is taken",
    "room for many tokens at once",
    "blocks stay where they are, in the same list",
    "room that is there already is kept",
    "when blocks are lacking: NoFreeBlocksError, and nothing has changed",
)

GROW = Exercise(
    id="07.grow",
    title="A table that grows",
    reference=answers.GrowingManager,
    methods=("grow",),
    properties=[
        Property(ROOM, _lengths([1, 2, 3, 4])),
        Property(FULL, _lengths([4, 5, 6, 7, 8, 9])),
        Property(MANY, _at_once),
        Property(STAYS, _keeps),
        Property(LESS, _lengths([9, 2, 10, 1, 13])),
        Property(REFUSED, _is_refused),
    ],
    mutants=[
        Mutant("a block for each token", answers.EachToken, ROOM, "A block has room for several tokens."),
        Mutant("rounds down", answers.RoundsDown, ROOM, "The first token needs a block."),
        Mutant("one block too many", answers.OneTooMany, ROOM, "The block is full, and nothing more may come."),
        Mutant("one token late", answers.OneTokenLate, FULL, "The token that opens a block needs it already."),
        Mutant("one block at most", answers.AlwaysOne, MANY, "A prompt asks for many blocks at once."),
        Mutant("blocks of 4 always", answers.FourAlways, MANY, "The size is the manager's, self.block_size."),
        Mutant("a new list", answers.ANewList, STAYS, "The manager keeps the list that it gave out."),
        Mutant("starts over", answers.StartsOver, STAYS, "The tokens lie in the old blocks."),
        Mutant("at the front", answers.AtTheFront, STAYS, "Block i of the table holds the tokens from i times size on."),
        Mutant("sorts the table", answers.Sorts, STAYS, "Entry i belongs to tokens i * size and on, whatever the block's number."),
        Mutant("numbers in a row", answers.NextNumber, MANY, "The pool says which blocks are yours."),
        Mutant("shrinks", answers.Shrinks, LESS, "A prompt may be given all its room before it is computed."),
        Mutant("a number below 0", answers.NoFloor, LESS, "The pool cannot hand out fewer than 0 blocks."),
        Mutant("keeps what it took", answers.KeepsWhatItTook, REFUSED, "A refused request must not hold blocks that others need."),
        Mutant("gives what there is", answers.SaysNothing, REFUSED, "Nobody would know that room is missing."),
    ],
    alternatives=[answers.BlockByBlock, answers.OneByOneUndone],
)  # fmt: skip
