"""Lesson 15, exercise 4: how many GPUs a service needs, by hand: Little's law for the memory, busy seconds for the time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers15_gpus as answers
from mini_engine.course.expect import expect_equal, expect_raises

Needed = Callable[[float, float, int, float, int, int], int]
Case = tuple[float, float, int, float, int, int]

# rate, stay, tokens, work, num_blocks, block_size: products are exact in binary
MEMORY: list[Case] = [(4, 7, 16, 0.0, 8, 16), (2, 5.5, 64, 0.125, 16, 16), (8, 4.875, 320, 0.0625, 100, 16)]
TIME: list[Case] = [(4, 0.5, 16, 0.6875, 64, 16), (8, 2, 64, 0.46875, 1000, 16)]
BLOCKS: list[Case] = [(1, 11.75, 17, 0.0, 8, 16), (2, 14, 65, 0.125, 50, 16)]
WHOLE: list[Case] = [(1, 7.75, 48, 0.0, 8, 16), (2, 5.9375, 80, 0.0, 14, 16)]
EDGES: list[Case] = [
    (1, 2, 16, 0.25, 2, 16),
    (4, 2, 32, 0.5, 8, 16),
    (4, 3, 32, 0.5625, 100, 16),
    (0, 5, 16, 0.25, 8, 16),
]
NOTHING: list[Case] = [(1, 2, 17, 0.25, 1, 16), (1, 2, 129, 0.25, 8, 16)]


def shown(case: Case) -> str:
    rate, stay, tokens, work, num_blocks, size = case
    return f"{rate:g} requests/s stay {stay:g} s, {tokens} tokens and {work:g} GPU seconds each; {num_blocks} blocks of {size} a GPU"


def _agrees(cases: list[Case]) -> Callable[[Needed], None]:
    def run(needed: Needed) -> None:
        for case in cases:
            expect_equal(needed(*case), answers.by_trying(*case), f"{shown(case)}:\nGPUs")

    return run


def _nothing_fits(needed: Needed) -> None:
    for case in NOTHING:
        expect_raises(ValueError, partial(needed, *case), shown(case))


HELD, BUSY, PARTLY, ONE, EXACT, NEVER = (
    "memory holds all that are there at a time",
    "there is time for all that come",
    "a request takes whole blocks",
    "a request lies on one GPU",
    "exactly full is enough, and one GPU is the least",
    "one that fits nowhere is an error",
)

GPUS = Exercise(
    id="15.gpus",
    title="GPUs by hand",
    reference=answers.gpus_needed,
    properties=[
        Property(HELD, _agrees(MEMORY)),
        Property(BUSY, _agrees(TIME)),
        Property(PARTLY, _agrees(BLOCKS)),
        Property(ONE, _agrees(WHOLE)),
        Property(EXACT, _agrees(EDGES)),
        Property(NEVER, _nothing_fits),
    ],
    mutants=[
        Mutant("no memory", answers.no_memory, HELD, "All that are there need room at the same time."),
        Mutant("those of a second", answers.by_arrivals, HELD, "Who comes stays: rate times stay are there (Little's law)."),
        Mutant("no time", answers.no_time, BUSY, "A GPU has one second a second."),
        Mutant("both added", answers.both_added, HELD, "The same GPU has memory and time."),
        Mutant("blocks in part", answers.part_blocks, PARTLY, "17 tokens take two blocks of 16."),
        Mutant("pieces of requests", answers.halves_of_requests, ONE, "What is left over on two GPUs is room for nobody."),
        Mutant("rounded", answers.rounded, EXACT, "2.25 GPUs are three."),
        Mutant("always one more", answers.one_more, EXACT, "Exactly full is enough here: a margin is a decision of its own."),
        Mutant("none for nobody", answers.none_for_nobody, EXACT, "A service that waits for its first request needs a GPU."),
        Mutant("infinitely many", lambda *case: answers.gpus_needed(*case) if case[4] * case[5] >= case[2] else 10**9, NEVER, "No number of GPUs helps."),
    ],
    alternatives=[answers.by_trying],
)  # fmt: skip
