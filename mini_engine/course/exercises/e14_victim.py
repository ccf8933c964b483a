"""Lesson 14, exercise 1: who gives up its blocks."""

from __future__ import annotations

from typing import Any

from mini_engine.backends import AuditBackend
from mini_engine.cache import KVCacheManager
from mini_engine.config import EngineConfig
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers14_victim as answers
from mini_engine.course.expect import expect, expect_equal
from mini_engine.course.tight_pool import NAMES
from mini_engine.engine.parts import make_parts
from mini_engine.scheduling import Request, Scheduler


def scheduler_of(kind: type[Scheduler]) -> Any:
    """An instance over a small pool."""
    return make_parts(EngineConfig(num_blocks=8, block_size=4), AuditBackend(), kind, KVCacheManager)[2]


def _running(
    priorities: tuple[int, ...],
    computed: tuple[int, ...] = (),
    *,
    names: str = NAMES,
    lengths: tuple[int, ...] = (),
    blocks: tuple[int, ...] = (),
    late: bool = False,
) -> list[Request]:
    """In the order in which they started; `late`: who started last arrived first."""
    requests = []
    for number, priority in enumerate(priorities):
        request = Request(names[number], [number] * (lengths[number] if lengths else 40), 8, priority=priority)
        request.arrival = len(priorities) - number if late else number + 1
        request.block_table = list(range(blocks[number])) if blocks else []
        request.num_computed_tokens = computed[number] if computed else 8
        requests.append(request)
    return requests


def _said(request: Any) -> str:
    return request.request_id if isinstance(request, Request) else repr(request)


def _goes(
    kind: type[Scheduler], priorities: tuple[int, ...], want: str, computed: tuple[int, ...] = (), **more: Any
) -> None:
    running = _running(priorities, computed, **more)
    words = {
        "lengths": lambda r: f", {len(r.token_ids)} tokens",
        "blocks": lambda r: f", {len(r.block_table)} blocks",
        "late": lambda r: f", arrival {r.arrival}",
    }
    told = ", ".join(
        f"{r.request_id} (priority {r.priority}, {r.num_computed_tokens} computed"
        + "".join(say(r) for name, say in words.items() if name in more)
        + ")"
        for r in running
    )
    got = scheduler_of(kind).pick_victim(running)
    expect_equal(_said(got), want, f"running, in the order in which they started: {told}; who goes?")


def _last(kind: type[Scheduler]) -> None:
    _goes(kind, (0,), "a")
    _goes(kind, (0, 0), "b")
    _goes(kind, (5, 5, 5), "c")
    _goes(kind, (0, 0, 0), "c", (8, 32, 16))
    _goes(kind, (0, 0, 0), "a", names="cba")
    _goes(kind, (0, 0, 0), "c", blocks=(2, 9, 3))
    for lengths in ((40, 20, 30), (20, 40, 30)):
        _goes(kind, (0, 0, 0), "c", lengths=lengths)
    _goes(kind, (0, 0), "b", late=True)


def _priority(kind: type[Scheduler]) -> None:
    _goes(kind, (1, 0), "a")
    _goes(kind, (0, 3, -2), "b")
    _goes(kind, (2, 7, 7, 0), "c")


def _state(request: Request) -> dict[str, Any]:
    """What a choice must not change."""
    names = ("status", "priority", "arrival", "num_computed_tokens", "token_ids", "block_table")
    return {name: list(value) if isinstance(value := getattr(request, name), list) else str(value) for name in names}


def _one_of_them(kind: type[Scheduler]) -> None:
    running = _running((3, 1, 2))
    before = list(running)
    state = [_state(request) for request in running]
    got = scheduler_of(kind).pick_victim(running)
    case = "running: a (priority 3), b (priority 1), c (priority 2)"
    expect_equal([_said(r) for r in running], [_said(r) for r in before], f"{case}; the list after the call")
    for request, old in zip(before, state):
        for name, value in _state(request).items():
            expect_equal(value, old[name], f"{case}; {request.request_id}.{name} after the call")
    expect(got is before[0], f"{case}; the request itself is returned", expected="the object a", got=_said(got))


LAST, LEAST, ONLY = (
    "of equals the one that started last goes",
    "the least important goes first",
    "it only chooses",
)

VICTIM = Exercise(
    id="14.victim",
    title="Who gives up its blocks",
    reference=answers.LeastImportant,
    methods=("pick_victim",),
    properties=[Property(LAST, _last), Property(LEAST, _priority), Property(ONLY, _one_of_them)],
    mutants=[
        Mutant("the first", answers.FirstGoes, LAST, "The one that has run longest loses the most work."),
        Mutant("first of equals", answers.FirstOfEquals, LAST, "max returns the first of equals."),
        Mutant("last by name", answers.LastByName, LAST, "A name says nothing about the start."),
        Mutant("most blocks", answers.MostBlocks, LAST, "That is the most work to lose."),
        Mutant("fewest tokens", answers.FewestTokens, LAST, "Some engines do that. Here the order of the start decides."),
        Mutant("latest arrival", answers.LatestArrival, LAST, "One that came early may have started late."),
        Mutant("most computed", answers.MostComputed, LAST, "That throws away the most work."),
        Mutant("always the last", answers.LastAlways, LEAST, "An important request may have started last."),
        Mutant("the most important", answers.MostImportant, LEAST, "A smaller number is more important."),
        Mutant("takes it out", answers.TakesItOut, ONLY, "preempt takes it out of the queue. Here it is only chosen."),
        Mutant("marks it", answers.MarksIt, ONLY, "preempt changes the request."),
        Mutant("sorts the queue", answers.SortsTheQueue, ONLY, "The list is the order of service."),
        Mutant("its name", answers.ItsName, LAST, "The scheduler wants the request, not its name."),
    ],
    alternatives=[answers.LeastImportantByLoop, answers.LeastImportantSorted],
)  # fmt: skip
