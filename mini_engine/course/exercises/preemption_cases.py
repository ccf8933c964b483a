"""Run a learner's scheduler in the engine, and show the smallest run that goes wrong as a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mini_engine.course.expect import expect_equal, fail
from mini_engine.course.tight_pool import NAMES, Run, Stuck, serve
from mini_engine.scheduling import Scheduler

Requests = Sequence[tuple[int, ...]]


def told(requests: Requests, num_blocks: int, options: dict[str, Any], words: str = "") -> str:
    """The case in words, with more words of the caller's own."""
    who = "; ".join(
        f"{name}: prompt {r[0]}, answer {r[1]}" + (f", priority {r[2]}" if len(r) > 2 else "")
        for name, r in zip(NAMES, requests)
    )
    more = "".join(f", {name}={value!r}" for name, value in options.items())
    return f"{num_blocks} blocks of {options.get('block_size', 4)}{more}; {who}" + (f"; {words}" if words else "")


def served(scheduler: type[Scheduler], requests: Requests, num_blocks: int, *, words: str = "", **options: Any) -> Run:
    """The run, with the books checked after each step; AssertionError with the last steps when it goes wrong.

    Other errors are the learner's own and go through.
    """
    run = Run()
    try:
        return serve(scheduler, requests, num_blocks, check=True, run=run, **options)
    except NotImplementedError:
        raise
    except (AssertionError, Stuck, RuntimeError, MemoryError, ValueError, LookupError) as error:
        fail(
            told(requests, num_blocks, options, words),
            expected="every request is answered, and the books are right after each step",
            got=f"{type(error).__name__} in step {len(run.steps)}: {error}",
            before_it=run.trace() or "nothing",
        )
        raise


def same_answers(
    scheduler: type[Scheduler], requests: Requests, num_blocks: int, *, words: str = "", **options: Any
) -> Run:
    """As `served`; the answers are those of a pool in which nobody has to go, and all blocks are free at the end."""
    run = served(scheduler, requests, num_blocks, words=words, **options)
    case = told(requests, num_blocks, options, words)
    ample = serve(Scheduler, requests, 400, **options)
    for name, answer in ample.tokens.items():
        expect_equal(run.tokens[name], answer, f"{case}; the answer to {name}\n{run.trace(8)}")
    expect_equal(run.num_free, num_blocks, f"{case}; free blocks when all is over")
    return run
