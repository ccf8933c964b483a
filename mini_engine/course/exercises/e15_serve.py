"""Lesson 15, exercise 3: requests come while others run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mini_engine import EngineConfig, LLMEngine, RequestOutput
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers15_serve as answers
from mini_engine.course.exercises.e15_execute import greedy
from mini_engine.course.expect import expect_equal, expect_raises, fail
from mini_engine.course.own_engine import Arrival, Clock, TimedAudit, VirtualClock, without_cache
from mini_engine.course.planted import planted

Serve = Callable[[LLMEngine, Sequence[Arrival], Clock], Any]
LONG = 200  # tokens of a prompt that the pool cannot hold


class Door(LLMEngine):
    """Writes down when requests come in, when it steps, and whether a step had anything to do."""

    def __init__(self, clock: VirtualClock) -> None:
        config = EngineConfig(num_blocks=16, block_size=4, max_num_seqs=4)
        super().__init__(config, TimedAudit(clock), clock=clock)
        self.came: dict[str, float] = {}
        self.steps: list[float] = []
        self.num_idle_steps = 0

    def add_request(self, request_id: str, *args: Any, **options: Any) -> None:
        super().add_request(request_id, *args, **options)
        self.came[request_id] = self.clock()

    def step(self) -> list[RequestOutput]:
        self.num_idle_steps += not self.has_unfinished_requests()
        self.steps.append(self.clock())
        return super().step()


class Waits(VirtualClock):
    """Writes down how long somebody waited, and until when."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait_until(self, moment: float) -> None:
        if moment > self.now:
            self.waits.append(moment)
        super().wait_until(moment)


def shown(arrivals: Sequence[Arrival]) -> str:
    words = (f"{a.request_id} at {a.time:g} s ({len(a.prompt)} + {a.params.max_tokens} tokens)" for a in arrivals)
    return f"every pass takes 0.25 s; arrivals: {', '.join(words)}"


def served(serve: Serve, arrivals: Sequence[Arrival]) -> tuple[dict[str, list[int]], list[str], Door, Waits]:
    clock = Waits()
    engine = Door(clock)
    got = serve(engine, list(arrivals), clock)
    if type(got) is not tuple or len(got) != 2:
        fail(shown(arrivals), expected="two things: a dict of outputs, a list of the refused", got=type(got).__name__)
    for words, value, kind in (("the outputs", got[0], dict), ("the refused", got[1], list)):
        if type(value) is not kind:
            fail(f"{shown(arrivals)}: {words}", expected=f"a {kind.__name__}", got=f"a {type(value).__name__}")
    tokens = {name: list(output.outputs[0].token_ids) for name, output in got[0].items()}
    return tokens, got[1], engine, clock


def arrivals_at(*times: float, lengths: Sequence[int] = (6,)) -> list[Arrival]:
    return [
        Arrival(
            time, "abcdefgh"[i], [(7 * i + 3 * k) % 60 + 1 for k in range(3 + i)], greedy(lengths[i % len(lengths)])
        )
        for i, time in enumerate(times)
    ]


AT_ONCE = [arrivals_at(0), arrivals_at(0, 0, 0)]
BUSY = [arrivals_at(0, 0.6), arrivals_at(0, 0.5), arrivals_at(0, 0.1, 0.6, 0.6, 0.7)]
TOGETHER = arrivals_at(0, 0)
GAPS = [arrivals_at(2.0), arrivals_at(0, 9.0), arrivals_at(0, 0.5, 30.0, 30.0, 31.0)]


def _answers(serve: Serve) -> None:
    for arrivals in AT_ONCE:
        got, _, _, _ = served(serve, arrivals)
        want = {a.request_id: without_cache(a.prompt, 6) for a in arrivals}
        expect_equal(got, want, f"{shown(arrivals)}: the answers")


def _after_their_time(serve: Serve) -> None:
    for arrivals in BUSY:
        _, _, engine, _ = served(serve, arrivals)
        early = {
            a.request_id: engine.came.get(a.request_id) for a in arrivals if engine.came.get(a.request_id, 0.0) < a.time
        }
        if early:
            fail(shown(arrivals), expected="nobody is queued before it comes", got=f"queued at {early}")


def _at_the_next_step(serve: Serve) -> None:
    for arrivals in (TOGETHER, *BUSY):
        _, _, engine, _ = served(serve, arrivals)
        boundaries = [*engine.steps, engine.clock()]
        want = {a.request_id: min(t for t in boundaries if t >= a.time) for a in arrivals}
        began = ", ".join(f"{t:g}" for t in engine.steps[:8])
        case = f"{shown(arrivals)}; your first steps began at {began} s"
        expect_equal(
            engine.came, want, f"{case}:\nwhen each was queued, before the first step that began when it was there"
        )


def _gaps(serve: Serve) -> None:
    for arrivals in GAPS:
        got, _, engine, clock = served(serve, arrivals)
        want = {a.request_id: without_cache(a.prompt, 6) for a in arrivals}
        expect_equal(got, want, f"{shown(arrivals)}: the answers")
        waits = [a.time for a in arrivals if a.time in (2.0, 9.0, 30.0)][:1]
        expect_equal(clock.waits, waits, f"{shown(arrivals)}: waited until")
        expect_equal(engine.num_idle_steps, 0, f"{shown(arrivals)}: steps with nobody there")


def _refused(serve: Serve) -> None:
    a, b, c = arrivals_at(0, 0, 0.5)
    b = b._replace(prompt=[1] * LONG)
    for arrivals in ([a, b, c], [b, c], [b]):
        got, refused, engine, _ = served(serve, arrivals)
        case = f"{shown(arrivals)}, into a pool of 64 tokens"
        want = {each.request_id: without_cache(each.prompt, 6) for each in arrivals if each is not b}
        expect_equal(got, want, f"{case}: the answers")
        expect_equal(refused, ["b"], f"{case}: refused")
        expect_equal(engine.num_idle_steps, 0, f"{case}: steps with nobody there")


class Breaks(Door):
    def add_request(self, *args: Any, **options: Any) -> None:
        raise RuntimeError("the engine is broken")


def _other_errors(serve: Serve) -> None:
    clock = VirtualClock()
    expect_raises(RuntimeError, lambda: serve(Breaks(clock), arrivals_at(0), clock), "add_request raises RuntimeError")


ANSWERS, TIME, JOIN, WAIT, REFUSE, OTHERS = (
    "everybody gets the whole answer",
    "nobody is queued before it comes",
    "who comes joins at the next step",
    "it waits for the next one while nobody is there",
    "one that could never run is refused, and the others go on",
    "another error is nobody's refusal",
)

# Lines of answers.serve.
COME = "        while coming and coming[0].time <= clock():\n            _, name"
WAIT_FIRST = "        if not engine.has_unfinished_requests():\n            clock.wait_until(coming[0].time)\n" + COME
NO = "except ValueError:\n                refused.append(name)"
IF_ANYBODY = "if engine.has_unfinished_requests():  # or"
SLEEP = "if not engine.has_unfinished_requests():\n            clock.wait_until(clock() + 0.1)\n        if True:  # or"


def _instead(*changes: tuple[str, str]) -> Any:
    return planted(answers.serve, *changes)


SERVE = Exercise(
    id="15.serve",
    title="Serve what comes",
    reference=answers.serve,
    may_change=("engine", "clock"),
    properties=[
        Property(ANSWERS, _answers),
        Property(TIME, _after_their_time),
        Property(JOIN, _at_the_next_step),
        Property(WAIT, _gaps),
        Property(REFUSE, _refused),
        Property(OTHERS, _other_errors),
    ],
    mutants=[
        Mutant("what was said first", _instead(("outputs[output.request_id] = output", "outputs.setdefault(output.request_id, output)")), ANSWERS, "Outputs are cumulative: the last one is the answer."),
        Mutant("all at once", answers.all_at_once, TIME, "Then there is no queue to measure, and no arrival."),
        Mutant("one after the other", answers.one_after_the_other, JOIN, "The engine batches only what it knows of."),
        Mutant("when all are done", answers.when_all_are_done, JOIN, "That is static batching, built around an engine that can do better."),
        Mutant("one a step", _instead((COME, COME.replace("while", "if"))), JOIN, "Two that come together can start together."),
        Mutant("the first of those who come together", answers.strictly_before, JOIN, "Two that come at one time have both come."),
        Mutant("until idle", answers.until_idle, WAIT, "A pause is not the end."),
        Mutant("watches the clock", _instead((WAIT_FIRST, COME)), WAIT, "On a virtual clock nobody moves the time on; on a real one a core burns."),
        Mutant("steps while idle", _instead((WAIT_FIRST, COME), (IF_ANYBODY, SLEEP)), WAIT, "It wakes up for nothing."),
        Mutant("refuses nobody", _instead((NO, "finally:\n                pass")), REFUSE, "One bad request ends the service for all."),
        Mutant("forgets the refused", _instead((NO, NO.replace("refused.append(name)", "pass"))), REFUSE, "Somebody waits for that answer."),
        Mutant("steps after a refusal", _instead((IF_ANYBODY, "if True:  # or")), REFUSE, "Nobody may be there: the only one that came was refused."),
        Mutant("refuses on any error", _instead((NO, NO.replace("ValueError", "Exception"))), OTHERS, "A broken engine would refuse everybody, in silence."),
    ],
    alternatives=[answers.by_number],
)  # fmt: skip
