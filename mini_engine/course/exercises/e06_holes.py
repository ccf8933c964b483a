"""Lesson 06, runs in a list of holes: first fit takes one, and what comes back joins its neighbours, or its buddy."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from mini_engine.course.exercise import INPUTS_UNCHANGED, Exercise, Mutant, Property
from mini_engine.course.exercises import answers06_holes as answers
from mini_engine.course.exercises.answers06_holes import Holes
from mini_engine.course.expect import expect_equal, fail


def plain_holes(got: Any, case: str) -> Holes:
    """A list of (start, size), whatever sequences and whole numbers it is made of."""
    whole = (int, np.integer)
    is_list = type(got) in (list, tuple)
    if not is_list or not all(
        type(h) in (list, tuple) and len(h) == 2 and all(isinstance(n, whole) for n in h) for h in got
    ):
        fail(case, expected="a list of holes (start, size)", got=got)
    return [(int(start), int(size)) for start, size in got]


def _takes(cases: list[tuple[Holes, int]], which: str = "") -> Callable[[Any], None]:
    def run(candidate: Callable[[Holes, int], Any]) -> None:
        for holes, size in cases:
            case = f"holes {holes}, size {size}"
            got, want = candidate(list(holes), size), answers.first_fit(holes, size)
            if want is None:
                expect_equal(got, None, case)
                continue
            if type(got) not in (list, tuple) or len(got) != 2:
                fail(case, expected=f"a start and the holes that are left: {want}", got=got)
            if which != "rest":
                expect_equal(got[0], want[0], f"{case}: the start")
            if which != "start":
                expect_equal(
                    plain_holes(got[1], f"{case}: the holes that are left"), want[1], f"{case}: the holes that are left"
                )

    return run


def _random_holes(draw: random.Random, largest: int) -> Holes:
    holes, start = [], 0
    for _ in range(draw.randrange(13)):
        start += draw.randrange(1, 4)
        size = draw.randrange(1, largest)
        holes.append((start, size))
        start += size
    return holes


_draw = random.Random(6)
MANY = [(_random_holes(_draw, top), _draw.randrange(1, top + 3)) for top in (9, 9000) for _ in range(60)]
MANY.sort(key=lambda case: len(case[0]))  # the smallest failing case is shown


def _runs_that_come_back(draw: random.Random) -> tuple[Holes, int, int]:
    """Holes, and a run that lies in one of the gaps between them: as long as the gap, or shorter at one end or both."""
    holes = _random_holes(draw, 9)
    ends = [0, *(start + size for start, size in holes)]
    starts = [*(start for start, _ in holes), ends[-1] + draw.randrange(1, 6)]
    low, high = draw.choice([(low, high) for low, high in zip(ends, starts) if low < high])
    low, high = draw.choice([(low, high), (low, high), (low, low + 1), (high - 1, high)])
    return holes, low, high - low


COME_BACK = sorted([_runs_that_come_back(_draw) for _ in range(120)], key=lambda case: len(case[0]))


def _buddies_that_come_back(draw: random.Random, levels: int) -> tuple[Holes, int, int]:
    """A memory of 2^levels slots, split at random down to one run that comes back, some of its neighbours free."""
    start, size, holes, chance = 0, 1 << levels, [], draw.choice((0.5, 0.8, 1.0))
    for _ in range(draw.randrange(1, levels + 1)):
        size //= 2
        keeps_upper = draw.random() < 0.5
        other, start = (start, start + size) if keeps_upper else (start + size, start)
        if draw.random() < chance:
            holes.append((other, size))
        elif size > 1 and draw.random() < 0.5:
            holes.append((other + size // 2 * draw.randrange(2), size // 2))
    return sorted(holes), start, size


BUDDIES_COME_BACK = [_buddies_that_come_back(_draw, levels) for levels in (3, 8, 16) for _ in range(40)]
BUDDIES_COME_BACK.sort(key=lambda case: (len(case[0]), case))
CHAINS = [([(1 << k, 1 << k) for k in range(levels)], 0, 1) for levels in (3, 6, 16)]

FIRST, REST, EXACT, NONE, ANY = (
    "takes the start of the first hole that is large enough",
    "what is left of the hole stays, in its place",
    "an exact fit leaves no hole behind",
    "None when no hole is large enough",
    "random memories",
)
TAKE = [
    ([(0, 8)], 3),
    ([(0, 2), (5, 4)], 3),
    ([(1, 9), (12, 4)], 4),
    ([(0, 4), (6, 9)], 2),
    ([(0, 5), (9, 9), (20, 6)], 5),
]

FIRST_FIT = Exercise(
    id="06.first_fit",
    title="First fit",
    reference=answers.first_fit,
    properties=[
        Property(FIRST, _takes(TAKE[:4], "start")),
        Property(REST, _takes(TAKE[:4], "rest")),
        Property(EXACT, _takes([([(0, 3)], 3), ([(0, 2), (5, 4), (11, 9)], 4), ([(0, 5), (9, 9), (20, 6)], 5)])),
        Property(NONE, _takes([([], 1), ([(0, 2)], 3), ([(0, 3), (5, 3), (10, 3)], 4)])),
        Property(ANY, _takes(MANY)),
    ],
    mutants=[
        Mutant("best fit", answers.best_fit, FIRST, "The tightest hole is another rule, with its own bad days."),
        Mutant("last fit", answers.last_fit, FIRST, "The last one that fits is not the first."),
        Mutant("the first hole only", answers.first_only, FIRST, "A hole further up may be large enough."),
        Mutant("from the end", answers.from_the_end, FIRST, "The run lies at the start of its hole."),
        Mutant("keeps the hole", answers.keeps_the_hole, REST, "The next request would get the same slots."),
        Mutant("drops the rest", answers.drops_the_rest, REST, "The unused end of the hole is lost for good."),
        Mutant("the rest at the end", answers.rest_at_the_end, REST, "Holes are kept in order of their starts."),
        Mutant("looser fits only", answers.loose_fit_only, EXACT, "A hole of just the right size is large enough."),
        Mutant("a hole of 0 slots", answers.empty_hole, EXACT, "Nothing is left, so there is no hole."),
        Mutant("takes the sum", answers.takes_the_sum, NONE, "A run lies in one hole. The sum of several is of no use."),
        Mutant("-1 for none", answers.minus_one, NONE, "A number can be taken for an address."),
        Mutant("up to five slots", answers.up_to_five, ANY, "Larger requests have a right to run too."),
        Mutant("six holes only", answers.first_six, ANY, "A memory may have any number of holes."),
        Mutant("changes the list", answers.changes_the_list, INPUTS_UNCHANGED, "The caller still needs the old list."),
    ],
    alternatives=[answers.fits_by_comprehension],
)  # fmt: skip


def _gives_back(reference: Callable[[Holes, int, int], Holes], cases: list[Any]) -> Callable[[Any], None]:
    def run(candidate: Callable[[Holes, int, int], Any]) -> None:
        for holes, start, size in cases:
            case = f"holes {holes}, and slots {start} to {start + size - 1} come back (start {start}, size {size})"
            got = plain_holes(candidate(list(holes), start, size), case)
            expect_equal(got, reference(holes, start, size), case)

    return run


ORDER, LEFT, RIGHT, BOTH, GAP, ANY_RUN = (
    "goes to its place in order",
    "joins the hole that ends where it starts",
    "joins the hole that starts where it ends",
    "joins both",
    "holes with a run between them stay apart",
    "random memories",
)

GIVE_BACK = Exercise(
    id="06.give_back",
    title="Give a run back",
    reference=answers.give_back,
    properties=[
        Property(ORDER, _gives_back(answers.give_back, [([], 0, 4), ([(0, 2), (20, 4)], 8, 4), ([(9, 3)], 2, 4)])),
        Property(LEFT, _gives_back(answers.give_back, [([(0, 4)], 4, 2), ([(0, 4), (20, 1)], 4, 9)])),
        Property(RIGHT, _gives_back(answers.give_back, [([(6, 4)], 4, 2), ([(0, 1), (6, 4)], 3, 3)])),
        Property(BOTH, _gives_back(answers.give_back, [([(0, 4), (6, 4)], 4, 2), ([(0, 1), (3, 2), (8, 1)], 5, 3)])),
        Property(GAP, _gives_back(answers.give_back, [([(0, 4), (7, 4)], 5, 1), ([(0, 4), (8, 4)], 5, 2)])),
        Property(ANY_RUN, _gives_back(answers.give_back, COME_BACK)),
    ],
    mutants=[
        Mutant("at the end of the list", answers.appended, ORDER, "First fit looks at the holes in order of their starts."),
        Mutant("loses the run", answers.loses_the_run, ORDER, "Without a neighbour it is a hole of its own."),
        Mutant("never joins", answers.no_join, LEFT, "Two holes that touch could hold a larger request."),
        Mutant("joins to the right only", answers.joins_right, LEFT, "The hole before it may touch as well."),
        Mutant("joins to the left only", answers.joins_left, RIGHT, "The hole after it may touch as well."),
        Mutant("joins one of them", answers.joins_one, BOTH, "Then three holes become two, and they touch."),
        Mutant("joins over a gap", answers.joins_over_gaps, GAP, "The slot between belongs to somebody."),
        Mutant("joins the first three", answers.joins_first_three, ANY_RUN, "A memory may have any number of holes."),
    ],
    alternatives=[answers.give_back_slots, answers.give_back_neighbours, answers.give_back_lists],
)  # fmt: skip

ALONE, BUDDY, UP, STRANGER, SPLIT, CHAIN, ANY_BUDDY = (
    "put in its place while its buddy is busy",
    "joins its buddy, above it or below",
    "the pair joins its own buddy, and so on",
    "an equal neighbour that is not its buddy is left alone",
    "a buddy that is partly busy is left alone",
    "long chains, up to 65,536 slots",
    "random memories",
)

BUDDY_JOIN = Exercise(
    id="06.buddy_join",
    title="Join buddies",
    reference=answers.buddy_join,
    properties=[
        Property(ALONE, _gives_back(answers.buddy_join, [([], 4, 4), ([(0, 4), (16, 16)], 8, 2), ([(8, 8)], 2, 2)])),
        Property(BUDDY, _gives_back(answers.buddy_join, [([(4, 4)], 0, 4), ([(0, 4)], 4, 4), ([(8, 2), (16, 16)], 10, 2)])),
        Property(UP, _gives_back(answers.buddy_join, [([(2, 2), (4, 4)], 0, 2), ([(0, 4), (6, 2), (8, 8)], 4, 2), ([(0, 8), (9, 1), (10, 2), (12, 4)], 8, 1)])),
        Property(STRANGER, _gives_back(answers.buddy_join, [([(4, 4)], 8, 4), ([(8, 2)], 6, 2), ([(4, 4), (12, 4)], 8, 4)])),
        Property(SPLIT, _gives_back(answers.buddy_join, [([(4, 2)], 0, 4), ([(0, 1), (3, 1)], 4, 4), ([(8, 4)], 0, 8)])),
        Property(CHAIN, _gives_back(answers.buddy_join, CHAINS)),
        Property(ANY_BUDDY, _gives_back(answers.buddy_join, BUDDIES_COME_BACK)),
    ],
    mutants=[
        Mutant("at the end of the list", answers.buddy_appended, ALONE, "Holes are kept in order of their starts."),
        Mutant("never joins", answers.no_join, BUDDY, "The memory would fall to pieces for good."),
        Mutant("joins upwards only", answers.buddy_above, BUDDY, "Of two buddies, one lies below the other."),
        Mutant("keeps its start", answers.keeps_its_start, BUDDY, "The pair starts where the lower one does."),
        Mutant("joins once", answers.buddy_once, UP, "The pair has a buddy too."),
        Mutant("any equal neighbour", answers.any_equal_neighbour, STRANGER, "Halves of different runs do not make a run."),
        Mutant("joins what touches", answers.give_back, STRANGER, "That is the rule of first fit."),
        Mutant("four joins", answers.four_joins, CHAIN, "The whole memory may become one hole again."),
        Mutant("up to 16 slots", answers.up_to_sixteen, CHAIN, "The whole memory may become one hole again."),
        Mutant("downwards once", answers.down_once, ANY_BUDDY, "The lower one may have a buddy below it again."),
        Mutant("a buddy of any size", answers.buddy_of_any_size, SPLIT, "Part of the buddy is in use."),
    ],
    alternatives=[answers.buddy_by_division],
)  # fmt: skip
