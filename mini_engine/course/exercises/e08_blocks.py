"""Lesson 08, counting: how many blocks n branches of one prompt take, and how many copies they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers08_blocks as answers
from mini_engine.course.expect import expect, expect_equal
from mini_engine.course.sharing_counts import branch_blocks

Count = Callable[[int, int, int, int], Any]
NAMES = ("shared", "private", "copied")

# prefix, tokens of each branch, branches, slots of a block
ALIGNED = [(4, 4, 2, 4), (8, 1, 3, 4), (512, 128, 4, 16), (512, 100, 4, 16), (3, 2, 2, 1)]
PARTLY = [(5, 3, 2, 4), (6, 2, 3, 4), (6, 3, 3, 4), (3, 1, 4, 4), (513, 128, 4, 16), (19, 24, 4, 16)]
ALONE = [(8, 4, 1, 4), (6, 4, 1, 4), (1, 1, 1, 16)]


def _numbers(candidate: Count, prefix: int, out: int, n: int, block: int) -> tuple[str, Any]:
    """The case in words, and what the learner's function says."""
    more, many = f"{out} more token{'s' * (out > 1)}", f"each of {n} branches" if n > 1 else "one branch"
    case = f"prefix {prefix}, {more} for {many}, blocks of {block}"
    got = candidate(prefix, out, n, block)
    is_three = isinstance(got, (tuple, list)) and len(got) == 3
    expect(is_three, case, expected="three numbers (shared, private, copied)", got=got)
    return case, got


def _part(which: str, cases: list[tuple[int, int, int, int]]) -> Callable[[Count], None]:
    def run(candidate: Count) -> None:
        for each in cases:
            case, got = _numbers(candidate, *each)
            place, want = NAMES.index(which), answers.by_hand(*each)
            expect_equal(got[place], want[place], f"{case}\n{which} blocks")

    return run


def _alone(candidate: Count) -> None:
    for each in ALONE:
        case, got = _numbers(candidate, *each)
        for name, number, want in zip(NAMES, got, answers.by_hand(*each)):
            expect_equal(number, want, f"{case}\n{name} blocks")


SHARED, PRIVATE, TAIL, COPIED, NONE, SINGLE = (
    "shared: blocks that the prefix fills",
    "private: what each branch writes",
    "private: the tail of the prefix counts for each branch",
    "copied: all but the last to write",
    "copied: none when the prefix ends with a block",
    "one branch alone: the same counts, and no copy",
)

BLOCKS = Exercise(
    id="08.blocks",
    title="Blocks of n branches",
    reference=branch_blocks,
    properties=[
        Property(SHARED, _part("shared", [*ALIGNED, *PARTLY])),
        Property(PRIVATE, _part("private", ALIGNED)),
        Property(TAIL, _part("private", PARTLY)),
        Property(COPIED, _part("copied", PARTLY)),
        Property(NONE, _part("copied", ALIGNED)),
        Property(SINGLE, _alone),
    ],
    mutants=[
        Mutant("the tail stays shared", answers.tail_stays_shared, SHARED, "Whoever writes into it needs a copy."),
        Mutant("one branch", answers.one_branch, PRIVATE, "Each branch has blocks of its own."),
        Mutant("outputs in a row", answers.tail_counted_once, PRIVATE, "Branches do not share the blocks they write."),
        Mutant("rounded down", answers.rounded_down, PRIVATE, "A block that is begun is a block."),
        Mutant("outputs apart", answers.outputs_apart, TAIL, "The tail of the prompt lies in these blocks too."),
        Mutant("copies are extra", answers.copies_are_extra, TAIL, "A copy is one of the private blocks."),
        Mutant("all copy", answers.all_copy, COPIED, "The last owner writes in place."),
        Mutant("never copies", answers.never_copies, COPIED, "A tail with n holders is copied n - 1 times."),
        Mutant("always copies", answers.copies_always, NONE, "Nothing is written into a full block."),
        Mutant("every branch copies", answers.one_alone_copies, SINGLE, "There is nobody to share with."),
        Mutant("shares nothing alone", answers.shares_nothing_alone, SINGLE, "Shared are the blocks that the prefix fills, for every n."),
    ],
    alternatives=[answers.by_rest, answers.by_hand],
)  # fmt: skip
