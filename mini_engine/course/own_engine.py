"""The engine with its step laid open, so that a learner writes it; a clock and a backend to try such engines on; requests that come over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from mini_engine import LLMEngine, RequestOutput, SamplingParams
from mini_engine.backends import AuditBackend
from mini_engine.backends.base import BatchInput, StepResult
from mini_engine.cache import KVCacheManager
from mini_engine.course.check import check
from mini_engine.course.exercise import Exercise
from mini_engine.course.exercises import all_of
from mini_engine.course.own_prefix_cache import hasher_of
from mini_engine.course.own_sharing import with_fork
from mini_engine.engine.interrupts import interrupts_held
from mini_engine.scheduling import Request, SampledToken, Scheduler, StepPlan

Tokens = dict[tuple[str, int], SampledToken]


class EngineLab(LLMEngine):
    """`LLMEngine` in six parts: plan, build, sample, commit, rollback, told. `execute` and `step` are what ties them together."""

    _scheduled = 0.0

    def plan(self) -> StepPlan:
        """Ask the scheduler for the next step, and note when."""
        with interrupts_held():
            plan = self.scheduler.schedule()
        self._scheduled = self.clock()
        return plan

    def build(self, plan: StepPlan) -> BatchInput:
        """The arrays that the backend computes: one row for every chunk, logits for those that reach their last token."""
        return self._batches.build(plan, self.scheduler.requests)

    def sample(self, result: StepResult, requests: Sequence[Request]) -> Tokens:
        """One token for each of these sequences, by its own sampler: row k of the logits belongs to request k."""
        return self._outputs.sample(result, requests)

    def execute(self, plan: StepPlan) -> Tokens:
        """Run a plan on the backend; the sampled tokens by (request_id, index)."""
        return super()._execute(plan)

    def _execute(self, plan: StepPlan) -> Tokens:
        return self.execute(plan)  # what the engine's own step calls

    def commit(self, plan: StepPlan, tokens: Tokens) -> None:
        """Make an executed plan true."""
        with interrupts_held():
            self._commit(plan, tokens, self._scheduled)

    def rollback(self, plan: StepPlan, error: BaseException) -> None:
        """Take back a plan that could not be executed. RuntimeError when nothing is planned."""
        if not self.scheduler.has_plan:
            raise RuntimeError("there is no plan to roll back")
        self._roll_back(plan, error)

    def told(self) -> list[RequestOutput]:
        """The outputs of all requests that changed since it was last asked."""
        with interrupts_held():
            return self._outputs.take_unseen()


class Clock(Protocol):
    """Seconds, and a way to let them pass."""

    def __call__(self) -> float:
        """Seconds since some moment."""

    def wait_until(self, moment: float) -> None:
        """Return when that moment has come."""


class Arrival(NamedTuple):
    """A request and when it comes, in seconds."""

    time: float
    request_id: str
    prompt: list[int]
    params: SamplingParams


class VirtualClock:
    """A clock that somebody else moves on: a backend by computing, a server by waiting."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Virtual seconds."""
        return self.now

    def wait_until(self, moment: float) -> None:
        """Jump to that moment, if it is still to come."""
        self.now = max(self.now, moment)


class TimedAudit(AuditBackend):
    """Exact tokens, and a clock that moves on by a quarter of a second with every forward pass."""

    SECONDS = 0.25

    def __init__(self, clock: VirtualClock, vocab_size: int = 64) -> None:
        super().__init__(vocab_size)
        self.clock = clock
        self.num_passes = 0

    def execute(self, batch: BatchInput):  # type: ignore[no-untyped-def]
        """A step as the audit backend does it, that takes its time on the virtual clock."""
        self.num_passes += 1
        self.clock.now += self.SECONDS
        return super().execute(batch)


def without_cache(prompt: Sequence[int], num_tokens: int) -> list[int]:
    """What the audit backend goes on with, greedily: token by token from the whole text, no cache and no batch."""
    model, tokens = AuditBackend(), list(prompt)
    for _ in range(num_tokens):
        tokens.append(int(model.logits_after(tokens).argmax()))
    return tokens[len(prompt) :]


CACHE_PIECES = ("07.grow", "08.cow", "09.match", "09.publish")
SCHEDULER_PIECES = ("12.admit", "12.schedule", "13.chunk_size", "14.victim", "14.make_room", "14.recompute")
FUNCTIONS = ("08.fork", "09.hash_block")
OPTIONAL = ("12.admit",)
PIECES = (*CACHE_PIECES, *SCHEDULER_PIECES, *FUNCTIONS)


def assemble(mine: Mapping[str, Any] | None = None) -> tuple[type[Scheduler], type[KVCacheManager]]:
    """A scheduler and a cache made of the pieces that the lessons asked for: `mine` by their ids, else the course's own.

    Each of `mine` is checked again; those that are used are printed. A reservation (12.admit) is used only if it is in
    `mine`: with it hardly anybody is preempted. KeyError for an id that is no piece of an engine.
    """
    mine = dict(mine or {})
    known = {exercise.id: exercise for exercise in all_of(Exercise)}
    for id in mine:
        if id not in PIECES or id not in known:
            raise KeyError(f"{id!r} is no piece of an engine; those are {', '.join(p for p in PIECES if p in known)}")
    chosen = {
        id: check(id, mine[id]) if id in mine else known[id].reference
        for id in PIECES
        if id in known and (id in mine or id not in OPTIONAL)
    }
    print("yours:", ", ".join(id for id in mine if chosen[id] is mine[id]) or "none yet")
    cache: Any = _joined("MyCache", [chosen[id] for id in CACHE_PIECES if id in chosen], KVCacheManager)
    cache = with_fork(chosen["08.fork"], cache)
    hasher = hasher_of(chosen["09.hash_block"])

    class MyCache(cache):  # type: ignore[valid-type, misc]
        def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
            super().__init__(num_blocks, block_size, **{"hasher": hasher(), **options})

    return _joined("MyScheduler", [chosen[id] for id in SCHEDULER_PIECES if id in chosen], Scheduler), MyCache


def _joined(name: str, pieces: Sequence[type], base: type) -> Any:
    """One class that has the methods of all: each piece overrides what it was written for."""
    return type(name, tuple(dict.fromkeys(pieces)) or (base,), {})
