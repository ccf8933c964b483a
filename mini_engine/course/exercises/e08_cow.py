"""Lesson 08, copy on write: the one method that lets branches share a block that is not full."""

from __future__ import annotations

from typing import Any, NamedTuple

from mini_engine.cache import CacheOp, NoFreeBlocksError
from mini_engine.course.cache_requests import CacheUser, decode, fork, prefill, start
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers08_cow as answers
from mini_engine.course.expect import expect, expect_equal, fail

# tokens of the prompt, slots of a block; the last block is not full
PARTLY = [(3, 4), (6, 4), (9, 4), (3, 2), (1, 8), (11, 3), (17, 16)]
# every block is full
FULL = [(4, 4), (8, 4), (4, 2), (3, 1)]


class Family:
    """A cache, and n branches that have computed the same tokens. `holders` and `tables` are what it should look like."""

    def __init__(
        self, manager: Any, num_tokens: int, block_size: int, n: int = 2, *, room: int | None = None, spare: int = 9
    ) -> None:
        in_use = -(-max(num_tokens, room or 0) // block_size)
        self.cache = manager(in_use + spare, block_size, enable_prefix_caching=False)
        earlier = CacheUser("earlier", list(range((in_use + spare) * block_size)))
        prefill(self.cache, earlier)
        self.cache.free(earlier)  # tails go first: the next table does not ascend
        parent = CacheUser("a", list(range(1, num_tokens + 1)))
        start(self.cache, parent, room)
        parent.num_computed_tokens = num_tokens
        self.branches = [parent, *(fork(self.cache, parent, index) for index in range(1, n))]
        more = f", room for {room} tokens" if room else ""
        many = f"{n} branches" if n > 1 else "one branch"
        free = "" if spare > 1 else f", {_blocks(spare)} free"
        tokens = f"{num_tokens} token{'s' * (num_tokens > 1)}"
        self.case = f"blocks of {block_size}, {tokens} in table {parent.block_table}{more}, {many}{free}"

    def state(self) -> State:
        pool = self.cache.pool
        return State(
            [list(branch.block_table) for branch in self.branches],
            {block: pool.ref_count(block) for block in range(1, pool.num_blocks + 1) if pool.ref_count(block)},
            pool.num_free,
            [branch.num_computed_tokens for branch in self.branches],
            [list(branch.token_ids) for branch in self.branches],
        )


class State(NamedTuple):
    """All that a copy on write could change."""

    tables: list[list[int]]
    holders: dict[int, int]
    num_free: int
    computed: list[int]
    tokens: list[list[int]]

    def expect(self, want: State, case: str) -> None:
        for name, words in WORDS.items():
            expect_equal(getattr(self, name), getattr(want, name), f"{case}\n{words}")


WORDS = {
    "tables": "the tables of all branches afterwards",
    "holders": "{block: holders} of all blocks in use afterwards",
    "num_free": "free blocks afterwards",
    "computed": "num_computed_tokens of all branches afterwards: that is for the scheduler to change",
    "tokens": "token_ids of all branches afterwards",
}


def _blocks(number: int) -> str:
    return "no block" if number == 0 else f"{number} block{'s' * (number > 1)}"


def _leaves_alone(family: Family, index: int, why: str = "") -> None:
    """cow_if_shared(branch) returns None and changes nothing."""
    before, case = family.state(), f"{family.case}{why}: cow_if_shared of branch {index}"
    try:
        op = family.cache.cow_if_shared(family.branches[index])
    except (IndexError, MemoryError) as error:
        fail(case, expected=None, got=f"{type(error).__name__}: {error}")
    expect_equal(op, None, case)
    family.state().expect(before, case)


def _copies(family: Family, index: int) -> None:
    """cow_if_shared(branch) replaces the block of the next token, and changes nothing else."""
    branch, before = family.branches[index], family.state()
    i, table, same_list = (
        branch.num_computed_tokens // family.cache.block_size,
        before.tables[index],
        branch.block_table,
    )
    case = f"{family.case}: cow_if_shared of branch {index}"
    op = family.cache.cow_if_shared(branch)
    if op is None:
        fail(case, expected="a CacheOp", got=None)
    is_same = branch.block_table is same_list
    expect(is_same, f"{case}\nblock_table", expected="the same list, changed", got="a new list")
    expect(len(same_list) == len(table), f"{case}\nits table", expected=f"{len(table)} blocks", got=list(same_list))
    new = same_list[i]
    is_new = type(new) is int and new not in before.holders
    expect(is_new, f"{case}\nentry {i} of its table", expected="a block that was free", got=new)
    want = CacheOp("copy", table[i], new)
    expect(type(op) is CacheOp and op == want, case, expected=want, got=op)
    tables = [list(each) for each in before.tables]
    tables[index][i] = new
    holders = {**before.holders, table[i]: before.holders[table[i]] - 1, new: 1}
    expect_equal(family.cache.pool.ref_count(new), 1, f"{case}\nholders of the copy, block {new}")
    family.state().expect(State(tables, holders, before.num_free - 1, before.computed, before.tokens), case)


def _own_block(manager: Any) -> None:
    for num_tokens, block_size in PARTLY:
        _leaves_alone(Family(manager, num_tokens, block_size, n=1), 0)


def _shared_block(manager: Any) -> None:
    for num_tokens, block_size in PARTLY:
        _copies(Family(manager, num_tokens, block_size), 1)


def _any_number(manager: Any) -> None:
    for n in (3, 4):
        for num_tokens, block_size in ((3, 4), (5, 3)):
            family = Family(manager, num_tokens, block_size, n)
            _copies(family, 1)
            _copies(family, n - 1)


def _last_owner(manager: Any) -> None:
    for n in (2, 3, 4):
        for order in (range(n), range(n - 1, -1, -1)):
            family = Family(manager, 6, 4, n)
            names = ", ".join(map(str, order))
            ops = [len(decode(family.cache, family.branches[index], 50 + index)) for index in order]
            expect_equal(ops, [1] * (n - 1) + [0], f"{family.case}: copies when branches {names} write in this order")
            ops = [len(decode(family.cache, family.branches[index], 60)) for index in order]
            expect_equal(ops, [0] * n, f"{family.case}: copies for a second token of branches {names}")


def _boundary(manager: Any) -> None:
    for num_tokens, block_size in FULL:
        for n in (1, 2, 3):
            family = Family(manager, num_tokens, block_size, n)
            _leaves_alone(family, n - 1, ", all full, the next token has no block yet")


def _reserved(manager: Any) -> None:
    for num_tokens, block_size, room in ((3, 4, 12), (6, 4, 20), (3, 2, 8), (5, 4, 9)):
        _copies(Family(manager, num_tokens, block_size, room=room), 0)
    _leaves_alone(Family(manager, 4, 4, room=12), 0, ", the next token goes into a reserved block")


def _no_room(manager: Any) -> None:
    for num_tokens, block_size, n in ((3, 4, 2), (6, 4, 2), (5, 3, 3)):
        family = Family(manager, num_tokens, block_size, n, spare=0)
        before = family.state()
        for attempt in ("first", "second"):
            case = f"{family.case}: cow_if_shared of branch 1, {attempt} attempt"
            try:
                got = family.cache.cow_if_shared(family.branches[1])
            except NoFreeBlocksError:
                family.state().expect(before, f"{case}, after the error")
            else:
                fail(case, expected="NoFreeBlocksError", got=got)


def _not_needed(manager: Any) -> None:
    for num_tokens, block_size in PARTLY[:4]:
        _leaves_alone(Family(manager, num_tokens, block_size, n=1, spare=0), 0)
    for num_tokens, block_size in FULL:
        _leaves_alone(Family(manager, num_tokens, block_size, spare=0), 1, ", all full")
    family = Family(manager, 6, 4, spare=1)
    _copies(family, 0)
    _leaves_alone(family, 1, "; branch 0 has taken the last block for its copy")


OWN, SHARED, HOLDERS, LAST, FULL_BLOCK, RESERVE, ROOM, NEEDLESS = (
    "a block of one's own is left alone",
    "a shared block is replaced by a new one, and nothing else changes",
    "with more branches each copy takes away one holder",
    "n branches make n - 1 copies, and the last owner none",
    "a full last block is not copied",
    "the block of the next token counts, and the reserve stays",
    "with no free block nothing changes",
    "a full memory stops nobody who needs no copy",
)

COW = Exercise(
    id="08.cow",
    title="Copy on write",
    reference=answers.CopyOnWrite,
    methods=("cow_if_shared",),
    properties=[
        Property(OWN, _own_block),
        Property(SHARED, _shared_block),
        Property(HOLDERS, _any_number),
        Property(LAST, _last_owner),
        Property(FULL_BLOCK, _boundary),
        Property(RESERVE, _reserved),
        Property(ROOM, _no_room),
        Property(NEEDLESS, _not_needed),
    ],
    mutants=[
        Mutant("always copies", answers.AlwaysCopies, OWN, "Nobody else reads a block with one holder."),
        Mutant("never copies", answers.NeverCopies, SHARED, "The sibling's token is overwritten."),
        Mutant("tells nobody", answers.TellsNobody, SHARED, "The new block stays empty: only the backend can copy."),
        Mutant("the wrong way", answers.WrongWay, SHARED, "The shared block is overwritten by an empty one."),
        Mutant("keeps the table", answers.KeepsTheTable, SHARED, "The write still goes to the shared block."),
        Mutant("a new list", answers.NewTable, SHARED, "The manager knows its list, and refuses another."),
        Mutant("the first block", answers.FirstBlock, SHARED, "It is full, and the write goes elsewhere."),
        Mutant("blocks of four", answers.BlocksOfFour, SHARED, "The cache knows its block size."),
        Mutant("counts the token", answers.CountsTheToken, SHARED, "Nothing is computed yet: the token would be skipped."),
        Mutant("keeps its hold", answers.KeepsItsHold, SHARED, "The old block never becomes free."),
        Mutant("releases for all", answers.ReleasesForAll, HOLDERS, "Of three branches, the second then writes in place."),
        Mutant("the parent writes in place", answers.ParentOwns, LAST, "Who writes first is not decided: branch 0 may be the first."),
        Mutant("no block yet", answers.NoBlockYet, FULL_BLOCK, "At a block boundary there is nothing to look at."),
        Mutant("the end of the table", answers.LastBlock, FULL_BLOCK, "The last block is full and will not be written again."),
        Mutant("the end of a table that is not full", answers.LastUnlessFull, RESERVE, "Reserved blocks stand behind the one that is written."),
        Mutant("into the reserve", answers.IntoTheReserve, RESERVE, "The table still names the shared block, and a reserved one is lost."),
        Mutant("cuts the reserve", answers.CutsTheReserve, RESERVE, "The reserved blocks are held, and no table names them."),
        Mutant("gives up first", answers.GivesUpFirst, ROOM, "The error comes when the count is lowered already."),
        Mutant("takes the entry out", answers.TakesTheEntryOut, ROOM, "The error comes when the table has lost a block."),
        Mutant("writes anyway", answers.WritesAnyway, ROOM, "Without the error the request writes into the shared block."),
        Mutant("takes in any case", answers.TakesInAnyCase, NEEDLESS, "A request that owns its block needs no free one."),
        Mutant("refuses when full", answers.RefusesWhenFull, NEEDLESS, "A request that owns its block needs no free one."),
    ],
    alternatives=[answers.InOtherWords, answers.TakesItBack],
)  # fmt: skip
