"""Lesson 12, the test-writing exercise: tests of a scheduler, tried on right and on wrong ones."""

from __future__ import annotations

import random

from mini_engine.course.bug_bank import BugHunt
from mini_engine.course.exercise import Mutant
from mini_engine.course.exercises.bugs12_schedulers import SCHEDULER_BUGS, Make
from mini_engine.course.own_scheduler import Job, make_scheduler, serve
from mini_engine.scheduling import Scheduler


def who_runs_when(make: Make) -> None:
    steps = serve(make(), {"a": (3, 4), "b": (2, 3), "c": (5, 2, 1)})
    assert steps == [{"a": 3, "b": 2}, {"a": 1, "b": 1, "c": 5}, {"a": 1, "b": 1, "c": 1}, {"a": 1}]
    steps = serve(make(max_num_seqs=2), {"a": (2, 1), "b": (3, 4), "c": (4, 2), "d": (2, 1), "e": (2, 2)})
    assert [sorted(step) for step in steps] == [["a", "b"], ["b", "c"], ["b", "c"], ["b", "d"], ["e"], ["e"]]


def what_fits(make: Make) -> None:
    steps = serve(make(max_num_batched_tokens=10), {"a": (6, 1), "b": (6, 1), "c": (2, 1)})
    assert steps == [{"a": 6}, {"b": 6, "c": 2}]
    steps = serve(make(max_num_seqs=2), {"a": (4, 2, 0, 2), "b": (3, 1)})
    assert steps == [{"a": 4}, {"a": 1, "a.1": 1}, {"b": 3}]
    assert serve(make(num_blocks=4, watermark=0.25), {"a": (14, 2)}) == [{"a": 14}, {"a": 1}]


def what_is_left(make: Make) -> None:
    scheduler = make(num_blocks=8)
    assert serve(scheduler, {"a": (4, 3), "b": (4, 3), "c": (4, 0)})[1] == {"a": 1, "b": 1}
    assert scheduler.kv.num_free_blocks == 8


def check_scheduler(make: Make) -> None:
    """Raise AssertionError unless the schedulers that make(**options) gives serve as they should."""
    for test in (who_runs_when, what_fits, what_is_left):
        test(make)


def _rules_on_random_requests(make: Make) -> None:
    """Another right test: random requests, and the plans of one that is trusted."""
    draw = random.Random(5)
    for options in ({}, {"max_num_seqs": 2}, {"max_num_batched_tokens": 14}, {"num_blocks": 9, "watermark": 0.3}):
        for number in range(3):
            jobs = {
                "abcdefg"[i]: Job(
                    draw.randrange(1, 13), draw.randrange(0, 7), draw.randrange(5), draw.choice([1, 1, 2])
                )
                for i in range(2 + 2 * number)
            }
            mine, trusted = make(**options), make_scheduler(Scheduler, **options)
            assert serve(mine, jobs) == serve(trusted, jobs)
            assert mine.kv.num_free_blocks == mine.config.num_blocks
    what_fits(make)


def _all_tokens(make: Make) -> None:
    steps = serve(make(), {"a": (3, 4), "b": (2, 3), "c": (5, 2, 1)})
    assert sum(sum(step.values()) for step in steps) == 3 + 3 + 2 + 2 + 5 + 1


def _one_at_a_time(make: Make) -> None:
    assert serve(make(), {"a": (3, 2), "b": (2, 2)}) == [{"a": 3}, {"a": 1}, {"b": 2}, {"b": 1}]


def _only_who_runs(make: Make) -> None:
    who_runs_when(make)


ACCEPTS, REST = "right schedulers pass", "it catches every bug in the bank"

SCHEDULER_TESTS = BugHunt(
    id="12.bugs",
    title="Tests that a broken scheduler cannot pass",
    reference=check_scheduler,
    seconds=5.0,
    bank=SCHEDULER_BUGS,
    properties=SCHEDULER_BUGS.properties(ACCEPTS, REST),
    mutants=[
        Mutant("one at a time", _one_at_a_time, ACCEPTS, "There is a seat for b, so it starts beside a."),
        Mutant("all tokens", _all_tokens, REST, "Everybody gets all tokens from most of them. The question is when."),
        Mutant("only who runs", _only_who_runs, REST, "Budget, seats for branches, and what is left at the end count too."),
    ],
    alternatives=[_rules_on_random_requests],
)  # fmt: skip
