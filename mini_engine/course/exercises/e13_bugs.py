"""Lesson 13, the test-writing exercise: tests of chunked prefill, tried on right and on wrong schedulers."""

from __future__ import annotations

import random
from collections.abc import Callable

from mini_engine.course.bug_bank import BugHunt
from mini_engine.course.chunk_requests import ChunkRun, right_answer
from mini_engine.course.exercise import Mutant
from mini_engine.course.exercises.bugs13_chunks import CHUNK_BUGS

Make = Callable[[int], ChunkRun]


def one_prompt(make: Make) -> None:
    for length in (15, 16, 17):
        run = make(8)
        run.add("a", range(length), 3)
        steps = run.finish()
        assert run.answer("a") == right_answer(range(length), 3)
        assert steps[0] == [("a", 0, 8)]
        assert steps[1] == [("a", 8, min(8, length - 8))]
        assert sum(n for step in steps for _, _, n in step) == length + 2
        assert all(n > 0 for step in steps for _, _, n in step)


def riding_along(make: Make) -> None:
    for priority in (0, -1):
        run = make(6)
        run.add("reader", [1, 2], 20)
        run.step()
        run.add("long", range(30), 2, priority)
        for _ in range(5):
            chunks = run.step()
            assert {name for name, _, _ in chunks} == {"reader", "long"}
            assert ("reader", 1) in {(name, n) for name, _, n in chunks}
            assert sum(n for _, _, n in chunks) == 6
        run.finish()
        assert run.answer("reader") == right_answer([1, 2], 20)
        assert run.answer("long") == right_answer(range(30), 2)


def after_a_hit(make: Make) -> None:
    run = make(8)
    run.add("a", range(21), 1)
    run.finish()
    run.add("b", [*range(20), *range(50, 60)], 2)
    assert run.step() == [("b", 20, 8)]
    run.finish()
    assert run.answer("b") == right_answer([*range(20), *range(50, 60)], 2)


def check_chunks(make: Make) -> None:
    """Raise AssertionError unless make(budget) computes every token once, in order, and lets nobody wait."""
    for test in (one_prompt, riding_along, after_a_hit):
        test(make)


def _random_requests(make: Make) -> None:
    """Another right test: requests at random; every rule of the statement, at every step."""
    draw = random.Random(3)
    for budget in (1, 3, 8, 8, 12):
        run = make(budget)
        prompts: dict[str, list[int]] = {}
        wanted: dict[str, int] = {}
        done: dict[str, int] = {}
        for step in range(40):
            if step < 20 and draw.random() < 0.4:
                name, length = f"{step}", draw.choice([1, 2, budget, 2 * budget, 17, 30])
                prompts[name] = [number % 5 for number in range(draw.randrange(2), 40)][:length]
                wanted[name] = draw.randrange(1, 9)
                run.add(name, prompts[name], wanted[name], draw.choice([0, 0, -1]))
            running = {name for name in done if len(run.answer(name)) < wanted[name]}
            chunks = run.step()
            assert sum(n for _, _, n in chunks) <= budget
            assert len({name for name, _, _ in chunks}) == len(chunks)
            assert running <= {name for name, _, _ in chunks} or len(running) > budget
            for name, start, n in chunks:
                assert n > 0
                assert start == done[name] if name in done else start % 4 == 0
                done[name] = start + n
        run.finish()
        assert all(run.answer(name) == right_answer(prompts[name], wanted[name]) for name in prompts)
    one_prompt(make)
    riding_along(make)
    after_a_hit(make)


def _answers_only(make: Make) -> None:
    run = make(8)
    run.add("a", range(20), 4)
    run.finish()
    assert run.answer("a") == right_answer(range(20), 4)


def _alone(make: Make) -> None:
    """All about one prompt, nothing about the others."""
    one_prompt(make)
    after_a_hit(make)


def _whole_in_one_step(make: Make) -> None:
    run = make(8)
    run.add("a", range(20), 1)
    assert run.step() == [("a", 0, 20)]


def _expects_an_order(make: Make) -> None:
    run = make(8)
    run.add("reader", [1, 2, 3], 9)
    run.step()
    run.add("long", range(20), 2)
    assert run.step() == [("reader", 3, 1), ("long", 0, 7)]
    check_chunks(make)


ACCEPTS, REST = "right schedulers pass", "it catches every bug in the bank"

CHUNK_TESTS = BugHunt(
    id="13.bugs",
    title="Tests that a broken chunker cannot pass",
    reference=check_chunks,
    bank=CHUNK_BUGS,
    properties=CHUNK_BUGS.properties(ACCEPTS, REST),
    mutants=[
        Mutant("a prompt in one step", _whole_in_one_step, ACCEPTS, "The budget is 8 tokens."),
        Mutant("expects an order", _expects_an_order, ACCEPTS, "Who stands first in the list of a step is not said: look for a name, or sort."),
        Mutant("looks at answers only", _answers_only, REST, "Most of these bugs leave the answer as it is."),
        Mutant("one prompt alone", _alone, REST, "Whether a decode is held up shows only when somebody decodes."),
    ],
    alternatives=[_random_requests],
)  # fmt: skip
