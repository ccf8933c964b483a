"""Lesson 06, the three counters: slots that wait, slots lost inside a run, slots lost between runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from mini_engine.cache.contiguous import Run, count_waste
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers06_waste as answers
from mini_engine.course.expect import expect, expect_equal

Counter = Callable[[list[Run], list[tuple[int, int]], int], Any]

# Runs as (size, used, final), holes as (start, size), slots that the next request needs.
INSIDE = [
    ([(8, 3, 5)], [], 4),
    ([(8, 0, 8)], [], 4),
    ([(8, 5, 5)], [], 4),
    ([(8, 3, 5), (4, 4, 4), (16, 1, 12)], [(28, 4)], 2),
    ([(6, 6, 6), (9, 2, 4)], [], 1),
    ([(9, 2, 4), (6, 6, 6)], [], 1),
    ([(8, 3, 5), (8, 3, 5)], [], 4),
    ([], [(0, 8)], 3),
]
HOLES = [
    ([], [(0, 3)], 5),
    ([(2, 2, 2)], [(2, 3)], 2),
    ([(2, 2, 2)], [(0, 3), (5, 4)], 6),
    ([(2, 2, 2), (2, 1, 2)], [(0, 3), (5, 9), (16, 4)], 6),
    ([(2, 2, 2)], [(2, 4), (8, 4)], 6),
    ([(2, 2, 2)], [], 6),
]
EXACT = [([(2, 2, 2)], [(2, 5)], 5), ([(2, 2, 2)], [(0, 4), (6, 5)], 5)]
NAMES = ("used", "reserved", "internal", "external")


def _counts(which: str, cases: list[Any]) -> Callable[[Counter], None]:
    """The named one of the four numbers, or all of them, as the slots say one by one."""

    def run(candidate: Counter) -> None:
        for sizes, holes, next_size in cases:
            runs, start = [], 0
            for number, (size, used, final) in enumerate(sizes):
                runs.append(Run(f"r{number}", start, size, used, final))
                start += size
            case = f"runs as (size, used, final): {sizes}; holes: {holes}; the next request needs {next_size}"
            got = candidate(runs, list(holes), next_size)
            is_four = isinstance(got, (tuple, list)) and len(got) == 4
            expect(is_four, case, expected="four numbers (used, reserved, internal, external)", got=got)
            want = answers.slot_by_slot(runs, holes, next_size)
            for place, name in enumerate(NAMES):
                if which in (name, ""):
                    expect_equal(got[place], want[place], f"{case}\n{name} slots")

    return run


def _random_memory(draw: random.Random) -> tuple[Any, list[tuple[int, int]], int]:
    runs = [tuple(sorted(draw.choices(range(1, 9), k=3), reverse=True)) for _ in range(draw.randrange(9))]
    holes, start = [], 0
    for _ in range(draw.randrange(9)):
        start += draw.randrange(1, 4)
        holes.append((start, draw.randrange(1, 7)))
        start += holes[-1][1]
    return [(size, used, final) for size, final, used in runs], holes, draw.randrange(1, 8)


_draw = random.Random(6)
MANY = sorted([_random_memory(_draw) for _ in range(60)], key=lambda memory: len(memory[0]) + len(memory[1]))

USED, RESERVED, INTERNAL, EXTERNAL, FITS = (
    "used: slots that hold a token",
    "reserved: slots that will hold one later",
    "internal: slots that never will",
    "external: slots of holes too small for the next request",
    "a hole of just the right size is not lost",
)
ANY = "random memories"

COUNT_WASTE = Exercise(
    id="06.count_waste",
    title="Three kinds of waste",
    reference=count_waste,
    properties=[
        Property(USED, _counts("used", INSIDE)),
        Property(RESERVED, _counts("reserved", INSIDE)),
        Property(INTERNAL, _counts("internal", INSIDE)),
        Property(EXTERNAL, _counts("external", HOLES)),
        Property(FITS, _counts("external", EXACT)),
        Property(ANY, _counts("", MANY)),
    ],
    mutants=[
        Mutant("sizes for used", answers.sizes_for_used, USED, "A run's size says how long it is, not what it holds."),
        Mutant("each used once", answers.each_used_once, USED, "Two runs may hold equally many tokens. A set has their number once."),
        Mutant("each reserved once", answers.each_reserved_once, RESERVED, "Two runs may wait for equally many tokens."),
        Mutant("each internal once", answers.each_internal_once, INTERNAL, "Two runs may lose equally many slots."),
        Mutant("each hole once", answers.each_hole_once, EXTERNAL, "Two holes may be equally large."),
        Mutant("four runs", answers.first_four_runs, ANY, "A memory may hold any number of runs."),
        Mutant("four holes", answers.first_four_holes, ANY, "A memory may have any number of holes."),
        Mutant("all idle is reserved", answers.all_idle_is_reserved, RESERVED, "Slots beyond the final length wait for nothing."),
        Mutant("final for reserved", answers.final_for_reserved, RESERVED, "Of the final length, some slots are used already."),
        Mutant("all idle is internal", answers.all_idle_is_internal, INTERNAL, "Slots up to the final length will be used."),
        Mutant("the last run only", answers.last_run_only, INTERNAL, "Every run loses slots."),
        Mutant("all that is free", answers.all_free, EXTERNAL, "A hole in which the next request fits is not lost."),
        Mutant("the number of holes", answers.number_of_holes, EXTERNAL, "Slots are counted, not holes."),
        Mutant("by the sum", answers.by_the_sum, EXTERNAL, "A run lies in one hole: their sum is of no use."),
        Mutant("by the largest", answers.by_the_largest, EXTERNAL, "Small holes beside a large one are still too small."),
        Mutant("by the start", answers.by_the_start, EXTERNAL, "A hole is (start, size)."),
        Mutant("an exact fit counts too", answers.exact_counts_too, FITS, "A request that fits exactly fits."),
    ],
    alternatives=[answers.slot_by_slot, answers.by_sums],
)  # fmt: skip
