"""Lesson 12, exercise 3: the two loops of iteration-level scheduling, the engine's own or a learner's."""

from __future__ import annotations

import random
from typing import Any

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers12_schedule as answers
from mini_engine.course.exercises.scheduler_cases import (
    expect_no_gap,
    expect_steps,
    random_jobs,
    same_as_the_engine,
)
from mini_engine.course.expect import expect_equal
from mini_engine.course.own_scheduler import make_scheduler
from mini_engine.scheduling import Request, SampledToken, Scheduler

Kind = type[Scheduler]


def _everyone_gets_one(kind: Kind) -> None:
    expect_steps(kind, {"a": (3, 2)}, [{"a": 3}, {"a": 1}])
    expect_no_gap(kind, {"a": (3, 3), "b": (2, 3)})
    expect_no_gap(kind, {"a": (3, 4), "b": (2, 4), "c": (5, 2, 1)})


def _joins(kind: Kind) -> None:
    expect_steps(kind, {"a": (3, 2), "b": (2, 2)}, [{"a": 3, "b": 2}, {"a": 1, "b": 1}])
    expect_steps(kind, {"a": (3, 4), "b": (5, 2, 1)}, [{"a": 3}, {"a": 1, "b": 5}, {"a": 1, "b": 1}, {"a": 1}])


def _free_seat(kind: Kind) -> None:
    expect_steps(
        kind,
        {"a": (2, 1), "b": (3, 4), "c": (4, 2)},
        [{"a": 2, "b": 3}, {"b": 1, "c": 4}, {"b": 1, "c": 1}, {"b": 1}],
        max_num_seqs=2,
    )
    expect_steps(
        kind,
        dict.fromkeys("abcd", (2, 2)),
        [dict.fromkeys("abc", 2), dict.fromkeys("abc", 1), {"d": 2}, {"d": 1}],
        max_num_seqs=3,
    )


def _seats(kind: Kind) -> None:
    expect_steps(kind, {"a": (2, 2), "b": (2, 2)}, [{"a": 2}, {"a": 1}, {"b": 2}, {"b": 1}], max_num_seqs=1)
    pair = {"a": (4, 2, 0, 2), "b": (3, 1)}
    expect_steps(kind, pair, [{"a": 4}, {"a": 1, "a.1": 1}, {"b": 3}], max_num_seqs=2)
    expect_steps(kind, {"b": (3, 2), "a": (4, 1, 0, 2)}, [{"b": 3}, {"b": 1}, {"a": 4}], max_num_seqs=2)


def _budget(kind: Kind) -> None:
    expect_steps(
        kind, {"a": (6, 1), "b": (6, 1)}, [{"a": 6}, {"b": 6}], max_num_batched_tokens=10
    )  # 4 are left, and a prompt is not cut
    expect_steps(kind, {"a": (6, 1), "b": (1, 1)}, [{"a": 6}, {"b": 1}], max_num_batched_tokens=6)
    expect_steps(kind, {"a": (1, 2, 0, 3)}, [{"a": 1}, {"a": 1, "a.1": 1}, {"a.2": 1}], max_num_batched_tokens=2)


def _in_line(kind: Kind) -> None:
    expect_steps(kind, {"a": (6, 1), "b": (6, 1), "c": (2, 1)}, [{"a": 6}, {"b": 6, "c": 2}], max_num_batched_tokens=10)
    expect_steps(
        kind,
        {"a": (8, 2), "b": (14, 1), "c": (2, 1)},
        [{"a": 8}, {"a": 1}, {"b": 14, "c": 2}],
        num_blocks=5,
    )
    expect_steps(
        kind, {"a": (6, 1), "b": (5, 1), "c": (4, 1)}, [{"a": 6}, {"b": 5}, {"c": 4}], max_num_batched_tokens=6
    )


def _asks(kind: Kind) -> None:
    def admit(self: Scheduler, request: Request) -> bool:
        return request.request_id != "b" or not self.running

    careful = type("Careful", (kind,), {"admit": admit})
    expect_steps(careful, {"a": (4, 2), "b": (4, 1)}, [{"a": 4}, {"a": 1}, {"b": 4}])


def _alone(kind: Kind) -> None:
    refuses = type("Refuses", (kind,), {"admit": lambda self, request: False})
    expect_steps(refuses, {"a": (4, 2), "b": (4, 1)}, [{"a": 4}, {"a": 1}, {"b": 4}])
    expect_steps(kind, {"a": (14, 2)}, [{"a": 14}, {"a": 1}], num_blocks=4, watermark=0.25)
    expect_steps(kind, {"a": (3, 2, 0, 3)}, [{"a": 3}, {"a": 1, "a.1": 1}, {"a.2": 4}], max_num_seqs=2)


def _room(kind: Kind) -> None:
    jobs = {"a": (4, 4), "b": (4, 4)}
    same_as_the_engine(kind, jobs, num_blocks=2)
    same_as_the_engine(kind, {"a": (7, 4), "b": (3, 4), "c": (2, 5)}, num_blocks=4)


def _next_moves_up(kind: Kind) -> None:
    name = "pick_victim takes the first that is not served"
    victim = {"pick_victim": lambda self, running: running[0], "__doc__": name}
    first, model = type("First", (kind,), victim), type("First", (Scheduler,), victim)
    same_as_the_engine(first, {"a": (4, 4), "b": (3, 4), "c": (3, 4)}, model, num_blocks=3)


def _chunk_size(kind: Kind) -> None:
    asked: list[tuple[int, int, int]] = []

    def chunk_size(self: Scheduler, num_missing: int, budget: int, num_behind: int) -> int:
        asked.append((num_missing, budget, num_behind))
        return Scheduler.chunk_size(self, num_missing, budget, num_behind)

    scheduler = make_scheduler(type("Asked", (kind,), {"chunk_size": chunk_size}))
    for name in ("a", "b"):
        scheduler.add_request(Request(name, [1, 2, 3], 2))
    plan = scheduler.schedule()
    scheduler.commit(plan, {(name, 0): SampledToken(0) for name in ("a", "b")})
    asked.clear()
    scheduler.schedule()
    case = "a and b decode, with a budget of 64: chunk_size(missing, budget, behind) is asked for"
    in_order = sorted(set(asked), key=lambda question: -question[1])
    expect_equal(in_order, [(1, 64, 1), (1, 63, 0)], case)


def _as_the_engine(kind: Kind) -> None:
    draw = random.Random(12)
    cases: tuple[dict[str, Any], ...] = (
        {"num_blocks": 8},
        {"num_blocks": 8, "max_num_batched_tokens": 9, "enable_chunked_prefill": True},
        {"num_blocks": 9, "admission": "first_chunk", "enable_chunked_prefill": True, "max_num_batched_tokens": 12},
        {"num_blocks": 12, "policy": "shortest_first", "max_num_batched_tokens": 20},
    )
    for number, options in enumerate(cases):
        same_as_the_engine(kind, random_jobs(draw, 4, 12), max_num_seqs=3, **options)
        same_as_the_engine(kind, random_jobs(draw, 7, 16, wide=number > 1), **options)


EVERYONE, JOINS, FREE, SEATS, BUDGET, SIZE, LINE, ASKS, ALONE, ROOM, UP, ENGINE = (
    "everyone who runs gets a token in every step",
    "who waits joins those who run at once while there is room",
    "a free seat is taken in the very next step",
    "no more sequences than seats",
    "a step stays within its budget",
    "chunk_size is asked with what is missing, what is left and who is behind",
    "nobody overtakes the first in line",
    "who starts beside others was admitted",
    "who has the machine to itself starts without conditions",
    "room is made when the blocks run out",
    "when one has to go, the next moves up",
    "the plans are the engine's own",
)

SCHEDULE = Exercise(
    id="12.schedule",
    title="Iteration-level scheduling",
    reference=answers.Loops,
    methods=("schedule_running", "schedule_waiting"),
    properties=[
        Property(EVERYONE, _everyone_gets_one),
        Property(JOINS, _joins),
        Property(LINE, _in_line),
        Property(SEATS, _seats),
        Property(FREE, _free_seat),
        Property(SIZE, _chunk_size),
        Property(BUDGET, _budget),
        Property(ASKS, _asks),
        Property(ALONE, _alone),
        Property(ROOM, _room),
        Property(UP, _next_moves_up),
        Property(ENGINE, _as_the_engine),
    ],
    mutants=[
        Mutant("the first only", answers.OneAStep, EVERYONE, "The others wait for it, as if there were no batch."),
        Mutant("prompts first", answers.PromptsFirst, EVERYONE, "Whoever waits for the next token waits for every newcomer's prompt."),
        Mutant("not the last", answers.SkipsTheLast, EVERYONE, "The newest gets its turn only when the others have ended."),
        Mutant("a whole batch", answers.WholeBatch, JOINS, "That is the static batch: nobody joins."),
        Mutant("one start a step", answers.OneStart, JOINS, "Two seats are free, and one stays empty."),
        Mutant("waits for two", answers.StartsInPairs, FREE, "A seat that waits for another one is wasted."),
        Mutant("no seats", answers.NoSeats, SEATS, "max_num_seqs is a promise."),
        Mutant("one seat more", answers.OneSeatMore, SEATS, "The seat of the newcomer counts too."),
        Mutant("a seat a request", answers.CountsRequests, SEATS, "A request that wants two answers needs two seats."),
        Mutant("no budget", answers.NoBudget, BUDGET, "A step that has no token left starts nobody."),
        Mutant("no budget for those who run", answers.NoBudgetToRun, BUDGET, "One prompt may become more sequences than the step has tokens."),
        Mutant("tries the next", answers.OvertakesByBudget, LINE, "A long prompt would starve: short ones pass it for ever."),
        Mutant("last come first", answers.LastComeFirst, LINE, "The first to come is the last to be served."),
        Mutant("never asks", answers.NeverAsks, ASKS, "Seats are not enough: there must be blocks too."),
        Mutant("always asks", answers.AlwaysAsks, ALONE, "A prompt that fits only into the whole pool would never start."),
        Mutant("seats when alone", answers.SeatsWhenAlone, ALONE, "Three answers on two seats: the third comes later."),
        Mutant("no room made", answers.NoRoom, ROOM, "kv.append raises when there is no block. make_room preempts somebody first."),
        Mutant("goes on", answers.GoesOn, UP, "The list has become shorter: at the same place stands the next one."),
        Mutant("stops at once", answers.StopsAtOnce, UP, "Those behind can be served."),
        Mutant("all that is missing", answers.AllThatIsMissing, SIZE, "A long prompt takes the budget of all behind it. chunk_size leaves them a token each."),
        Mutant("nobody behind", answers.NobodyBehind, SIZE, "A long prompt takes the budget of all behind it."),
        Mutant("itself behind", answers.CountsItself, SIZE, "It is not behind itself."),
        Mutant("booked twice", answers.BooksTwice, SIZE, "draft.add_chunk takes the tokens from the budget."),
        Mutant("one token each", answers.OneTokenEach, ENGINE, "One that was cut, or comes back, misses more than one token."),
    ],
    alternatives=[answers.ServedSet, Scheduler],
)  # fmt: skip
