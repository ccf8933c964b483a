"""Lesson 12, exercise 4: Orca's admission, which reserves the longest that a request may get."""

from __future__ import annotations

import random

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers12_admit as answers
from mini_engine.course.exercises.scheduler_cases import expect_steps, random_jobs, same_as_the_engine
from mini_engine.course.expect import expect_equal
from mini_engine.course.own_scheduler import Job
from mini_engine.scheduling import Scheduler

Kind = type[Scheduler]


def _never_preempted(kind: Kind) -> None:
    one_after_the_other = [{"a": 4}, {"a": 1}, {"a": 1}, {"b": 4}, {"b": 1}, {"b": 1}]
    done = expect_steps(kind, {"a": (4, 3), "b": (4, 3)}, one_after_the_other, num_blocks=2)
    expect_equal(done.counters.num_preemptions, 0, "preemptions")


def _promised(kind: Kind) -> None:
    alone = [{"a": 4}, *[{"a": 1}] * 6, {"b": 4}, *[{"b": 1}] * 3]
    expect_steps(kind, {"a": (4, 7), "b": (4, 4)}, alone, num_blocks=4)


def _as_soon(kind: Kind) -> None:
    together = [{"a": 4, "b": 4}, {"a": 1, "b": 1}]
    expect_steps(kind, {"a": (4, 2), "b": (4, 2)}, together, num_blocks=4)
    expect_steps(
        kind, {"a": (4, 4), "b": (4, 2, 2)}, [{"a": 4}, {"a": 1}, {"a": 1, "b": 4}, {"a": 1, "b": 1}], num_blocks=4
    )


def _last_token(kind: Kind) -> None:
    expect_steps(kind, {"a": (4, 1), "b": (3, 2)}, [{"a": 4, "b": 3}, {"b": 1}], num_blocks=2)


def _whole_blocks(kind: Kind) -> None:
    jobs = {"a": (3, 3), "b": (3, 3)}  # 5 tokens each: 2 blocks of 4 each, though 10 tokens fill only 3
    expect_steps(kind, jobs, [{"a": 3}, {"a": 1}, {"a": 1}, {"b": 3}, {"b": 1}, {"b": 1}], num_blocks=3)


def _worst_case(kind: Kind) -> None:
    third_later = [{"a": 4, "b": 4}, {"a": 1, "b": 1}, {"c": 4}, {"c": 1}]
    expect_steps(kind, {"a": (4, 2), "b": (4, 2), "c": (4, 2)}, third_later, num_blocks=5)
    draw = random.Random(3)
    for num_blocks in (6, 9, 14):
        jobs = random_jobs(draw, 8, 12)
        jobs["z"] = Job(1, 8, 1)
        same_as_the_engine(kind, jobs, num_blocks=num_blocks, wanted={"admission": "worst_case"})


NEVER, PROMISED, SOON, LAST, WHOLE, WORST = (
    "nobody is ever preempted",
    "what is promised is not given away twice",
    "who fits with all of its answer starts at once",
    "the last token needs no room",
    "room is counted in whole blocks",
    'the plans are those of admission="worst_case"',
)

ADMIT = Exercise(
    id="12.admit",
    title="Reserve the longest that it may get",
    reference=answers.Reserves,
    methods=("admit",),
    properties=[
        Property(NEVER, _never_preempted),
        Property(PROMISED, _promised),
        Property(SOON, _as_soon),
        Property(LAST, _last_token),
        Property(WHOLE, _whole_blocks),
        Property(WORST, _worst_case),
    ],
    mutants=[
        Mutant("forgets the promised", answers.ForgetsThePromised, PROMISED, "Those who run will come for their blocks."),
        Mutant("the answer only", answers.TheAnswerOnly, NEVER, "The prompt takes blocks too."),
        Mutant("the prompt only", answers.WholePrompt, NEVER, "Room for the prompt is the engine's rule. Answers may run short of blocks then."),
        Mutant("one at a time", answers.OneAtATime, SOON, "Then there is no batch."),
        Mutant("always the longest", answers.AlwaysTheLongest, SOON, "A short request asks for little."),
        Mutant("counted twice", answers.CountsTakenTwice, SOON, "Those who run hold a part of their blocks already: these are not free."),
        Mutant("stores the last", answers.StoresTheLast, LAST, "The last token of an answer is never computed."),
        Mutant("rounds down", answers.RoundsDown, NEVER, "A started block is a whole block."),
        Mutant("in tokens", answers.CountsTokens, WHOLE, "A block belongs to one request: its empty rest is no room for others."),
        Mutant("prompt and one", answers.PromptAndOne, PROMISED, "An answer of several blocks needs all of them."),
        Mutant("the newest only", answers.ForgetsTheOldest, WORST, "All who run will come for their blocks, not the last one alone."),
    ],
    alternatives=[answers.ReservesByPool],
)  # fmt: skip
