"""Lesson 14, the test-writing exercise: tests of how a scheduler preempts, tried on right and on wrong ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from mini_engine.course.bug_bank import BugHunt
from mini_engine.course.exercise import Mutant
from mini_engine.course.exercises.bugs14_preemption import PREEMPTION_BUGS
from mini_engine.course.tight_pool import Run, serve
from mini_engine.scheduling import Scheduler

Kind = type[Scheduler]
Requests = Sequence[tuple[int, ...]]
TWO = [(8, 12), (8, 12)]


def _as_in_a_large_pool(scheduler: Kind, requests: Requests, num_blocks: int, **options: Any) -> Run:
    run, ample = serve(scheduler, requests, num_blocks, **options), serve(Scheduler, requests, 200, **options)
    assert run.tokens == ample.tokens, "the pool is not to be heard in the answers"
    assert set(run.ended.values()) == {"length"}
    assert run.num_free == num_blocks, "all blocks come back"
    return run


def who_goes_and_returns(scheduler: Kind) -> None:
    run = _as_in_a_large_pool(scheduler, TWO, 6)
    assert [who for _, who in run.steps if who] == [["b"]], "the one that started last"
    run = _as_in_a_large_pool(scheduler, [*TWO, (8, 4)], 6, max_num_seqs=2)
    later = [name for computed, _ in run.steps[6:] for name in computed]
    assert later.index("b") < later.index("c"), "the victim comes back before one that never started"
    _as_in_a_large_pool(scheduler, TWO, 6, enable_prefix_caching=False)
    _as_in_a_large_pool(scheduler, [(7, 8), (5, 8)], 4)


def nobody_goes_in_vain(scheduler: Kind) -> None:
    assert _as_in_a_large_pool(scheduler, TWO, 10).num_preemptions == 0
    assert _as_in_a_large_pool(scheduler, [(6, 5)], 12, n=2).num_preemptions == 0


def it_ends(scheduler: Kind) -> None:
    run = serve(scheduler, [(4, 8)], 2)
    assert (run.ended["a"], len(run.tokens["a"])) == ("capacity", 5)
    _as_in_a_large_pool(scheduler, [(24, 2), (24, 2)], 8, max_num_batched_tokens=4, enable_prefix_caching=False)
    _as_in_a_large_pool(scheduler, [(8, 12), (8, 12), (8, 12)], 7)


def swapping(scheduler: Kind) -> None:
    for num_swap_blocks in (8, 2):
        _as_in_a_large_pool(
            scheduler, TWO, 6, preemption="swap", num_swap_blocks=num_swap_blocks, enable_prefix_caching=False
        )


def check_preemption(scheduler: Kind) -> None:
    """Raise AssertionError unless the scheduler preempts as it should."""
    for test in (who_goes_and_returns, nobody_goes_in_vain, it_ends, swapping):
        test(scheduler)


def _like_the_engine(scheduler: Kind) -> None:
    """Another right test: what users of many runs get, and who goes first, as with the engine's own scheduler."""
    draw = random.Random(5)
    for options in ({}, {"preemption": "swap", "num_swap_blocks": 3}, {"n": 2}, {"max_num_batched_tokens": 4}):
        for caching in (True, False, True):
            requests = [(draw.randrange(2, 22), draw.randrange(2, 14)) for _ in range(draw.randrange(1, 5))]
            asked = {"max_num_seqs": 3, "admission": "first_chunk", **options, "enable_prefix_caching": caching}
            runs = [serve(kind, requests, 7, **asked) for kind in (scheduler, Scheduler)]  # type: ignore[arg-type]
            for what in ("tokens", "ended", "num_free"):
                assert getattr(runs[0], what) == getattr(runs[1], what), what
            first = [next((who for _, who in run.steps if who), None) for run in runs]
            assert first[0] == first[1]
    who_goes_and_returns(scheduler)
    nobody_goes_in_vain(scheduler)
    swapping(scheduler)
    it_ends(scheduler)


def _it_answers(scheduler: Kind) -> None:
    assert len(serve(scheduler, TWO, 6).tokens["b"]) == 12


def _ample(scheduler: Kind) -> None:
    nobody_goes_in_vain(scheduler)


def _same_steps(scheduler: Kind) -> None:
    check_preemption(scheduler)
    three = [(8, 12), (8, 4), (8, 12)]
    assert serve(scheduler, three, 6).steps == serve(Scheduler, three, 6).steps


def _wants_the_first_to_go(scheduler: Kind) -> None:
    assert ["a"] in [who for _, who in serve(scheduler, TWO, 6).steps]


ACCEPTS, REST = "right schedulers pass", "it catches every bug in the bank"

PREEMPTION_TESTS = BugHunt(
    id="14.bugs",
    title="Tests that a broken preemption cannot pass",
    reference=check_preemption,
    seconds=60.0,
    bank=PREEMPTION_BUGS,
    properties=PREEMPTION_BUGS.properties(ACCEPTS, REST),
    mutants=[
        Mutant("wants the first to go", _wants_the_first_to_go, ACCEPTS, "The one that started last has the least to lose."),
        Mutant("the same steps", _same_steps, ACCEPTS, "A right one may let its victim wait longer."),
        Mutant("the right length", _it_answers, REST, "Wrong tokens have a length too."),
        Mutant("ample room", _ample, REST, "Preemption shows only when the pool is full."),
    ],
    alternatives=[_like_the_engine],
)  # fmt: skip
