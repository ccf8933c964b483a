"""What the exercises of lesson 12 compare: plans of a learner's scheduler, with those worked out by hand or by the engine's."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from mini_engine.course.expect import expect_equal, fail
from mini_engine.course.own_scheduler import Job, make_scheduler, plans, serve
from mini_engine.scheduling import Scheduler
from mini_engine.simulator import NoProgressError

Jobs = Mapping[str, Sequence[int]]


def words(jobs: Jobs, **options: Any) -> str:
    """A case in words."""
    told = []
    for name, job in jobs.items():
        of = Job(*job)
        told.append(
            f"{name} (prompt {of.prompt}, output {of.output}"
            + (f", comes before step {of.step}" if of.step else "")
            + (f", {of.n} answers)" if of.n > 1 else ")")
        )
    given = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"{', '.join(told)}; {given}" if given else ", ".join(told)


def expect_steps(kind: type[Scheduler], jobs: Jobs, want: Sequence[dict[str, int]], **options: Any) -> Scheduler:
    """Each step computes what `want` says; the first step that differs is shown. The scheduler, for more questions."""
    case = words(jobs, **options)
    scheduler = make_scheduler(kind, **options)
    try:
        got = serve(scheduler, jobs)
    except NoProgressError as error:
        fail(case, expected=f"{len(want)} steps", got=f"no end: {error}")
    for number, (ours, theirs) in enumerate(zip(want, got)):
        expect_equal(theirs, ours, f"{case}: tokens of step {number}")
    expect_equal(len(got), len(want), f"{case}: steps")
    return scheduler


def expect_no_gap(kind: type[Scheduler], jobs: Jobs) -> None:
    """Who has started is in every step until its answer is complete."""
    case = words(jobs)
    try:
        steps = serve(make_scheduler(kind), jobs)
    except NoProgressError as error:
        fail(case, expected="every request ends", got=f"no end: {error}")
    left = {name: Job(*job).output for name, job in jobs.items()}
    running: set[str] = set()
    for number, step in enumerate(steps):
        for name in sorted(running - set(step)):
            fail(f"{case}: step {number}", expected=f"a token for {name}, which runs", got=step)
        running |= set(step)
        for name in step:
            left[name] -= 1
        running = {name for name in running if left[name] > 0}


def same_as_the_engine(kind: type[Scheduler], jobs: Jobs, model: type[Scheduler] = Scheduler, **options: Any) -> None:
    """The plans of `kind` are those of the engine's scheduler, blocks, preemptions and all."""
    other = {key: value for key, value in options.items() if key != "wanted"}
    want = plans(make_scheduler(model, **{**other, **options.get("wanted", {})}), jobs)
    case = words(jobs, **other)
    try:
        got = plans(make_scheduler(kind, **other), jobs)
    except NoProgressError as error:
        fail(case, expected=f"{len(want)} steps", got=f"no end: {error}")
    for number, (theirs, ours) in enumerate(zip(got, want)):
        for part in ("chunks", "preempted", "cache_ops", "finished"):
            mine, right = getattr(theirs, part), getattr(ours, part)
            if mine != right:
                fail(f"{case}: {part} of step {number}", expected=_shown(right), got=_shown(mine))
    expect_equal(len(got), len(want), f"{case}: steps")


def random_jobs(draw: random.Random, number: int, longest: int, wide: bool = False) -> dict[str, Job]:
    """Requests that crowd a small pool; `wide`: some want several answers."""
    return {
        "abcdefghij"[i]: Job(
            draw.randrange(1, longest),
            draw.randrange(1, 9),
            draw.randrange(0, 6),
            draw.choice([1, 1, 1, 2]) if wide else 1,
        )
        for i in range(number)
    }


def _shown(parts: Sequence[Any]) -> str:
    return ", ".join(
        f"{part.request_id}: {part.num_tokens} from {part.start}" if hasattr(part, "num_tokens") else str(tuple(part))
        for part in parts
    ) or "none"  # fmt: skip
