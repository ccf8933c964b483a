"""Lesson 15, exercise 2: one step of the engine, which is made true as a whole or taken back as a whole."""

from __future__ import annotations

from typing import Any

from mini_engine import EngineConfig, LLMEngine
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers15_step as answers
from mini_engine.course.exercises.e15_execute import MOST_STEPS, greedy
from mini_engine.course.expect import expect, expect_equal, fail
from mini_engine.course.own_engine import TimedAudit, VirtualClock, without_cache
from mini_engine.course.planted import planted
from mini_engine.scheduling import Scheduler, StepPlan

PROMPTS = {"a": [5, 9, 3, 8, 2], "b": [7, 1]}
LENGTH = 3


class Breaks(TimedAudit):
    """Raises `error` in forward pass number `at`, half of whose K and V it has written by then."""

    def __init__(self, at: int | None = None, error: BaseException | None = None) -> None:
        super().__init__(VirtualClock())
        self.at, self.error = at, error

    def execute(self, batch: Any) -> Any:
        result = super().execute(batch)
        if self.error is not None and self.num_passes == self.at:
            raise self.error
        return result


def engine_of(
    candidate: type[LLMEngine], backend: TimedAudit, prompts: dict[str, list[int]] = PROMPTS, **parts: Any
) -> Any:
    config = EngineConfig(num_blocks=16, block_size=4, max_num_batched_tokens=4, enable_prefix_caching=False)
    engine = candidate(config, backend, **parts)
    for name, prompt in prompts.items():
        engine.add_request(name, prompt, greedy(LENGTH))
    return engine


def finish(engine: LLMEngine, case: str) -> dict[str, list[int]]:
    """Step to the end; everybody's last output."""
    got: dict[str, list[int]] = {}
    for _ in range(MOST_STEPS):
        if not engine.has_unfinished_requests():
            return got
        outputs = engine.step()
        if type(outputs) is not list:
            fail(f"{case}: step()", expected="a list of outputs", got=outputs)
        for output in outputs:
            got[output.request_id] = list(output.outputs[0].token_ids)
        engine.check_invariants()
    fail(case, expected=f"an end within {MOST_STEPS} steps", got="the requests are unfinished")
    return got


def answered(engine: LLMEngine, case: str, prompts: dict[str, list[int]] = PROMPTS) -> None:
    got = finish(engine, case)
    expect_equal(got, {name: without_cache(prompt, LENGTH) for name, prompt in prompts.items()}, f"{case}: the answers")
    expect_equal(engine.stats().num_free_blocks, 16, f"{case}: blocks that are free afterwards")


def _serves(candidate: type[LLMEngine]) -> None:
    engine = engine_of(candidate, Breaks(), {})
    engine.add_request("a", [5], greedy(0))
    expect_equal(
        finish(engine, "a prompt [5], no token asked for"), {"a": []}, "a prompt [5], no token asked for: answers"
    )
    for prompts in ({"a": [5]}, PROMPTS):
        case = f"prompts {prompts}, blocks of 4, a budget of 4 tokens"
        engine = engine_of(candidate, Breaks(), prompts)
        answered(engine, case, prompts)


def _tells_every_token(candidate: type[LLMEngine]) -> None:
    engine, lengths = engine_of(candidate, Breaks(), {"a": [5]}), []
    for _ in range(LENGTH):
        lengths += [len(output.outputs[0].token_ids) for output in engine.step()]
    expect_equal(lengths, list(range(1, LENGTH + 1)), f"a prompt [5], {LENGTH} steps: tokens in the outputs of each")


def _breaks(*errors: BaseException) -> Any:
    def run(candidate: type[LLMEngine]) -> None:
        for error in errors:
            for at in (1, 2, 4):
                engine = engine_of(candidate, Breaks(at, error))
                case = f"prompts {PROMPTS}, a budget of 4; forward pass {at} raises {type(error).__name__}"
                caught, steps = None, 0
                while caught is None and engine.has_unfinished_requests() and steps < MOST_STEPS:
                    steps += 1
                    before = engine.backend.num_passes
                    try:
                        engine.step()
                    except BaseException as raised:
                        if raised is not error:
                            raise
                        caught = raised
                    if caught is None and before < at <= engine.backend.num_passes:
                        fail(f"{case}: step()", expected="the error is raised", got="no error")
                expect(
                    not engine.scheduler.has_plan,
                    f"{case}: afterwards",
                    expected="no plan is left",
                    got="the plan still waits",
                )
                engine.check_invariants()
                answered(engine, f"{case}; then on")

    return run


class NoMemory(Scheduler):
    def schedule(self) -> StepPlan:
        raise MemoryError("planning failed")


class Committed(Scheduler):
    def commit(self, *args: Any) -> Any:
        super().commit(*args)
        raise MemoryError("committing failed at its end")


def _outside_the_pass(candidate: type[LLMEngine]) -> None:
    for scheduler, words in ((NoMemory, "planning failed"), (Committed, "committing failed at its end")):
        engine, case = (
            engine_of(candidate, Breaks(), scheduler=scheduler),
            f"the scheduler raises MemoryError({words!r})",
        )
        try:
            engine.step()
        except MemoryError:
            continue
        except Exception as error:
            fail(f"{case}: step()", expected="MemoryError", got=f"{type(error).__name__}: {error}")
        fail(f"{case}: step()", expected="MemoryError", got="no error")


class Counted(Scheduler):
    num_plans = 0

    def schedule(self) -> StepPlan:
        self.num_plans += 1
        return super().schedule()


def _idle(candidate: type[LLMEngine]) -> None:
    engine = engine_of(candidate, Breaks(), {}, scheduler=Counted)
    expect_equal(engine.step(), [], "no requests: step()")
    expect_equal(engine.scheduler.num_plans, 0, "no requests: plans made")


def _aborted(candidate: type[LLMEngine]) -> None:
    engine, case = engine_of(candidate, Breaks(), {"a": [5]}), "a prompt [5] is aborted before its first step; step()"
    engine.abort("a")
    told = [(output.request_id, output.outputs[0].finish_reason) for output in engine.step()]
    expect_equal(told, [("a", "abort")], case)
    expect_equal(engine.has_unfinished_requests(), False, f"{case}: is anything left")
    engine, case = engine_of(candidate, Breaks()), f"prompts {PROMPTS}; after one step a is aborted, b goes on; step()"
    engine.step()
    engine.abort("a")
    ended = [output.request_id for output in engine.step() if output.finished]
    expect_equal(ended, ["a"], f"{case}: who hears of the end")


ANSWERS, EVERY, FAILS, INTERRUPT, PLANNING, IDLE, ABORTED = (
    "plans, executes and commits to the last token",
    "tells of every new token",
    "a failed pass is taken back, and its error comes through",
    "Ctrl-C or an exit in the middle is taken back too",
    "an error in planning or committing comes through as it is",
    "nothing is planned while nobody is there",
    "who was aborted hears of it",
)

# Lines of answers.Steps.
CATCH = (
    "            except BaseException as error:\n                self.rollback(plan, error)\n                raise\n"
)
COMMIT = CATCH + "            self.commit(plan, tokens)\n"
TRY = "            try:\n                tokens = self.execute(plan)\n            except Base"
PLAN = "            plan = self.plan()\n" + TRY


def _instead(*changes: tuple[str, str]) -> Any:
    return planted(answers.Steps, *changes)


STEP = Exercise(
    id="15.step",
    title="One step",
    reference=answers.Steps,
    methods=("step",),
    properties=[
        Property(ANSWERS, _serves),
        Property(EVERY, _tells_every_token),
        Property(FAILS, _breaks(RuntimeError("out of memory"))),
        Property(INTERRUPT, _breaks(KeyboardInterrupt("Ctrl-C"), SystemExit("the process ends"))),
        Property(PLANNING, _outside_the_pass),
        Property(IDLE, _idle),
        Property(ABORTED, _aborted),
    ],
    mutants=[
        Mutant("tells nothing", answers.TellsNothing, ANSWERS, "The answers are computed, and nobody gets them."),
        Mutant("tells of the end only", answers.TellsOfTheFinished, EVERY, "Nobody can stream."),
        Mutant("never rolls back", _instead((CATCH, "            finally:\n                pass\n")), FAILS, "The next step finds a plan that nobody has ended."),
        Mutant("swallows the error", _instead((CATCH, CATCH.replace("raise\n", "return []\n"))), FAILS, "Whoever could repair it does not hear of it."),
        Mutant("tries again", _instead((CATCH, CATCH.replace("raise\n", "plan = self.plan()\n                tokens = self.execute(plan)\n"))), FAILS, "A step that always fails would be tried for ever, in silence."),
        Mutant("commits anyway", _instead((COMMIT, "            except BaseException:\n                self.commit(plan, {})\n                raise\n            self.commit(plan, tokens)\n")), FAILS, "What was not computed counts as computed."),
        Mutant("exceptions only", _instead((CATCH, CATCH.replace("BaseException", "Exception"))), INTERRUPT, "KeyboardInterrupt is no Exception."),
        Mutant("not for an exit", _instead((CATCH, CATCH.replace("BaseException", "(Exception, KeyboardInterrupt)"))), INTERRUPT, "SystemExit is no Exception, either."),
        Mutant("rolls back a commit", _instead((COMMIT, "                self.commit(plan, tokens)\n" + CATCH)), PLANNING, "A committed plan is true: there is nothing to take back."),
        Mutant("commits chunks only", _instead((COMMIT, COMMIT.replace("self.commit(plan, tokens)", "if plan.chunks:\n                self.commit(plan, tokens)"))), ANSWERS, "Whoever asked for no token waits for ever."),
        Mutant("asks twice", answers.AsksTwice, ABORTED, "told() tells everything once."),
        Mutant("rolls back no plan", _instead((PLAN, "            plan = None\n" + TRY.replace("try:\n", "try:\n                plan = self.plan()\n"))), PLANNING, "There is nothing to take back, and the first error is hidden."),
        Mutant("plans when idle", answers.PlansWhenIdle, IDLE, "A server that waits would plan all night."),
        Mutant("tells of running ones only", answers.TellsOfRunningOnly, ABORTED, "Whoever waits for the aborted one waits for ever."),
    ],
    alternatives=[answers.StepsWithElse, answers.RollsBackWhatIsPlanned],
)  # fmt: skip
