"""Lesson 12, exercise 1: what static batches compute, and what of it for nobody."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers12_numbers as answers
from mini_engine.course.expect import expect_equal
from mini_engine.simulator import simulate
from mini_engine.workload import Trace, TraceRequest

Count = Callable[[list[int], list[int], int], tuple[int, int]]


def _is(count: Count, prompts: Sequence[int], outputs: Sequence[int], seats: int, want: tuple[int, int]) -> None:
    got = count(list(prompts), list(outputs), seats)
    expect_equal(got, want, f"prompts {list(prompts)}, outputs {list(outputs)}, seats {seats}: (slots, wasted)")


def _answers(count: Count) -> None:
    _is(count, [1, 1], [1, 3], 2, (6, 2))
    _is(count, [2, 2, 2], [2, 5, 3], 3, (18, 5))


def _prompts(count: Count) -> None:
    _is(count, [4, 1], [1, 1], 2, (8, 3))
    _is(count, [2, 6, 3], [2, 1, 3], 3, (24, 10))


def _alone(count: Count) -> None:
    for prompt, output in ((2, 1), (3, 4)):
        got = list(count([prompt], [output], 1))
        expect_equal(got[1:], [0], f"prompts {[prompt]}, outputs {[output]}, seats 1: wasted")


def _last(count: Count) -> None:
    _is(count, [2], [1], 1, (2, 0))
    _is(count, [3], [4], 1, (6, 0))


def _batches(count: Count) -> None:
    _is(count, [1, 1, 1], [2, 2, 5], 2, (9, 0))
    _is(count, [3, 1, 3, 1], [1, 1, 1, 1], 2, (12, 4))
    _is(count, [1, 1, 1, 1], [3, 1, 3, 1], 2, (12, 4))
    _is(count, [], [], 4, (0, 0))


def simulated(prompts: Sequence[int], outputs: Sequence[int], seats: int) -> tuple[int, int]:
    """Slots and waste as the simulator counts them, step by step."""
    requests = tuple(TraceRequest(0.0, p, o) for p, o in zip(prompts, outputs))
    usage = simulate(Trace("batch", requests), batching="static", max_num_seqs=seats).usage
    return usage.num_tokens + usage.num_padding, usage.num_padding


def _simulator(count: Count) -> None:
    draw = random.Random(1)
    for number in (3, 7, 10):
        prompts, outputs = ([draw.randrange(1, 20) for _ in range(number)] for _ in range(2))
        seats = draw.randrange(2, 5)
        _is(count, prompts, outputs, seats, simulated(prompts, outputs, seats))


ALONE, LAST, ANSWERS, PROMPTS, BATCHES, SIMULATOR = (
    "one request alone wastes nothing",
    "the last token of an answer is never computed",
    "short answers are computed on to the end of the longest",
    "short prompts are filled up to the longest",
    "batches are made in order of arrival, the last as small as it is",
    "the simulator counts the same",
)

PADDING = Exercise(
    id="12.padding",
    title="Slots of a static batch",
    reference=answers.static_slots,
    properties=[
        Property(ALONE, _alone),
        Property(LAST, _last),
        Property(ANSWERS, _answers),
        Property(PROMPTS, _prompts),
        Property(BATCHES, _batches),
        Property(SIMULATOR, _simulator),
    ],
    mutants=[
        Mutant("the last one too", answers.last_token_computed, LAST, "It is sampled, and nothing follows that would need its K and V."),
        Mutant("used in place of wasted", answers.slots_and_used, ALONE, "The second number is what nobody needed."),
        Mutant("answers without padding", answers.answers_not_padded, ANSWERS, "A row that is done is computed on."),
        Mutant("prompts without padding", answers.prompts_not_padded, PROMPTS, "The first pass is a rectangle too."),
        Mutant("the longest request", answers.longest_request, PROMPTS, "The longest prompt and the longest answer may belong to two requests."),
        Mutant("full rectangles", answers.full_rectangles, BATCHES, "A batch has as many rows as requests are there."),
        Mutant("one batch", answers.one_batch, BATCHES, "The seats are the most that a batch can hold."),
        Mutant("sorted", answers.sorted_first, BATCHES, "They come as they come."),
        Mutant("sorted by answers", answers.sorted_by_answers, BATCHES, "Nobody knows the answers beforehand. They come as they come."),
        Mutant("whole batches only", answers.whole_batches, BATCHES, "The last batch may be smaller, and is computed too."),
        Mutant("nobody there", answers.no_request, BATCHES, "No request needs no slot."),
        Mutant("only small batches", answers.small_only, SIMULATOR, "It is right by accident on small cases."),
    ],
    alternatives=[answers.step_by_step],
)  # fmt: skip
