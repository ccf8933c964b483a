"""Lesson 08, find the bug: copy on write of the broken allocator."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from mini_engine.course.broken_allocator import Block, Sequence
from mini_engine.course.defects.labs import STILL_WORKS, allocator_works
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers08_mend as answers
from mini_engine.course.expect import expect, expect_equal, fail

NAMES = "abcd"


class _Family:
    """An allocator with blocks of 4, sequence a, and n - 1 forks of it: b of a, c of b, and so on."""

    def __init__(self, kind: Any, num_tokens: int, n: int, spare: int) -> None:
        num_blocks = -(-num_tokens // 4) + spare
        self.allocator = kind(num_blocks, 4)
        self.blocks: list[Block] = list(self.allocator.free.values())
        self.members = {"a": self.allocator.start(list(range(1, num_tokens + 1)))}
        self.case = f"{num_blocks} block{'s' * (num_blocks > 1)} of 4: start a with {num_tokens} tokens"
        for parent, name in pairwise(NAMES[:n]):
            self.case += f", fork {parent} to {name}"
            branch = self.allocator.fork(self.members[parent])
            expect(type(branch) is Sequence, self.case, expected="a Sequence", got=branch)
            self.members[name] = branch

    def append(self, name: str, token: int) -> Any:
        """What append says, with pairs as tuples. A failure names the case."""
        self.case += f", append {token} to {name}"
        try:
            copies = self.allocator.append(self.members[name], token)
        except MemoryError:
            fail(self.case, expected="room for it", got=f"MemoryError; holders of all blocks: {self.counts()}")
        if isinstance(copies, list):
            return [tuple(pair) if isinstance(pair, list) else pair for pair in copies]
        return copies

    def release(self, name: str) -> None:
        self.case += f", release {name}"
        self.allocator.release(self.members.pop(name))

    def counts(self) -> list[int]:
        return [block.ref_count for block in self.blocks]

    def tables(self) -> dict[str, list[Any]]:
        return {name: [getattr(block, "number", block) for block in one.blocks] for name, one in self.members.items()}

    def contents(self) -> dict[str, list[int]]:
        return {name: [token for block in one.blocks for token in block.tokens] for name, one in self.members.items()}

    def check(self, tables: dict[str, list[int]], copies: Any = None, want_copies: Any = None) -> None:
        """Tables are these, every block has as many holders as tables name it, and the rest is free."""
        expect_equal(copies, want_copies, f"{self.case}\nwhat the last append returned")
        expect_equal(self.tables(), tables, f"{self.case}\ntables")
        holders = [sum(number in table for table in tables.values()) for number in range(len(self.blocks))]
        expect_equal(self.counts(), holders, f"{self.case}\nholders of all blocks")
        expect_equal(
            sorted(self.allocator.free), [i for i, n in enumerate(holders) if not n], f"{self.case}\nfree blocks"
        )


def _forks(kind: Any) -> None:
    for num_tokens in (2, 4, 6):
        for n in (2, 3, 4):
            family = _Family(kind, num_tokens, n, spare=3)
            family.check({name: list(range(-(-num_tokens // 4))) for name in NAMES[:n]})


def _branches(kind: Any) -> None:
    for num_tokens in (2, 6):
        for n in (2, 3):
            family = _Family(kind, num_tokens, n, spare=n)
            want = {name: list(range(1, num_tokens + 1)) for name in NAMES[:n]}
            for token, name in enumerate(NAMES[:n], 10):
                family.append(name, token)
                want[name].append(token)
                expect_equal(family.contents(), want, f"{family.case}\ntokens of each")


def _holders(kind: Any) -> None:
    family = _Family(kind, 6, 3, spare=3)
    family.append("b", 10)
    family.check({"a": [0, 1], "b": [0, 2], "c": [0, 1]})
    family.append("a", 11)
    family.check({"a": [0, 3], "b": [0, 2], "c": [0, 1]})
    family.append("c", 12)
    family.check({"a": [0, 3], "b": [0, 2], "c": [0, 1]})
    for name in "bac":
        family.release(name)
        family.check({left: {"a": [0, 3], "b": [0, 2], "c": [0, 1]}[left] for left in family.members})


def _full_block(kind: Any) -> None:
    for num_tokens in (4, 8):
        family = _Family(kind, num_tokens, 3, spare=2)
        old = list(range(num_tokens // 4))
        new = len(old)
        family.append("b", 10)
        family.check({"a": old, "b": [*old, new], "c": old})
        family.append("a", 11)
        family.check({"a": [*old, new + 1], "b": [*old, new], "c": old})


def _no_room(kind: Any) -> None:
    for num_tokens, n in ((2, 2), (6, 3), (4, 1), (4, 2), (8, 3)):
        family = _Family(kind, num_tokens, n, spare=0)
        tables, contents, name = family.tables(), family.contents(), NAMES[n - 1]
        case = family.case
        for attempt in ("first", "second"):
            family.case = f"{case}, append 9 to {name}, {attempt} attempt"
            try:
                got = family.allocator.append(family.members[name], 9)
            except MemoryError:
                family.check(tables)
                expect_equal(family.contents(), contents, f"{family.case}\ntokens of each")
            else:
                fail(
                    family.case, expected="MemoryError: no block is free", got=f"{got}; tokens are {family.contents()}"
                )
    family = _Family(kind, 6, 2, spare=0)
    family.release("a")
    family.append("b", 9)
    family.check({"b": [0, 1]})


def _told(kind: Any) -> None:
    family = _Family(kind, 6, 3, spare=3)
    family.check({"a": [0, 1], "b": [0, 2], "c": [0, 1]}, family.append("b", 10), [(1, 2)])
    family.check({"a": [0, 3], "b": [0, 2], "c": [0, 1]}, family.append("a", 11), [(1, 3)])
    family.check({"a": [0, 3], "b": [0, 2], "c": [0, 1]}, family.append("c", 12), [])
    family = _Family(kind, 4, 2, spare=2)
    family.check({"a": [0], "b": [0, 1]}, family.append("b", 10), [])


FORKS, BRANCHES, HOLDERS, FULL, ORDER, TOLD = (
    "a fork shares every block, and each branch is counted",
    "branches of a fork do not see each other's tokens",
    "a copy takes one holder away, and a release frees what nobody holds",
    "a full shared block is neither copied nor let go",
    "an append that finds no block changes nothing",
    "append says what has to be copied, and nothing else",
)

MEND_SHARING = Exercise(
    id="08.mend",
    title="A copy that can fail",
    reference=answers.MendedSharing,
    properties=[
        Property(FORKS, _forks),
        Property(BRANCHES, _branches),
        Property(HOLDERS, _holders),
        Property(FULL, _full_block),
        Property(ORDER, _no_room),
        Property(TOLD, _told),
        Property(STILL_WORKS, allocator_works),
    ],
    mutants=[
        Mutant("copies every time", answers.CopiesEveryTime, STILL_WORKS, "A block of one's own can be written in place."),
        Mutant("a fork without a hold", answers.NoHold, FORKS, "With one holder counted, nobody copies."),
        Mutant("holds the last only", answers.HoldsTheLast, FORKS, "Full blocks are freed while the sibling reads them."),
        Mutant("holds twice", answers.HoldsTwice, FORKS, "One new branch is one new holder: the blocks never become free."),
        Mutant("two holders", answers.TwoHolders, FORKS, "A third branch finds two holders and makes it three."),
        Mutant("copies at the fork", answers.CopiesAtTheFork, FORKS, "The branch may end before it writes."),
        Mutant("blocks of another allocator", answers.OtherBlocks, FORKS, "A copied Block is not the block: its count is nobody's."),
        Mutant("one table for both", answers.OneTable, BRANCHES, "What one branch appends, the other has."),
        Mutant("one list of tokens", answers.OneListOfTokens, BRANCHES, "The copy needs a list of its own."),
        Mutant("lets go twice", answers.LetsGoTwice, BRANCHES, "One branch has left. The next then writes in place, over the third."),
        Mutant("keeps its hold", answers.KeepsItsHold, HOLDERS, "The old block never becomes free."),
        Mutant("copies the full block", answers.CopiesTheFullBlock, FULL, "Nobody writes into a full block."),
        Mutant("lets go of the full block", answers.LetsGoOfTheFullBlock, FULL, "The branch still reads it."),
        Mutant("append as it was", answers.AsItWas, ORDER, "The count goes down before there is a block."),
        Mutant("gives back what it did not take", answers.GivesBackTheCount, ORDER, "When the copy fails early, nothing was taken."),
        Mutant("puts a place first", answers.PutsAPlaceFirst, ORDER, "The table has grown, and there is no block."),
        Mutant("says nothing", answers.SaysNothing, TOLD, "The K/V of the copy is never moved."),
        Mutant("the wrong way", answers.WrongWay, TOLD, "The shared block is overwritten by an empty one."),
        Mutant("tells of new blocks", answers.TellsOfNewBlocks, TOLD, "A new block begins empty: nothing is copied into it."),
    ],
    alternatives=[answers.AsksFirst, answers.BuildsTheBlock],
)  # fmt: skip
