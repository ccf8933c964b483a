"""Lesson 13, exercise 2: how many tokens of a sequence a step computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mini_engine import EngineConfig, LLMEngine, SamplingParams
from mini_engine.backends import AuditBackend
from mini_engine.cache import KVCacheManager
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers13_chunk_size as answers
from mini_engine.course.expect import expect, expect_equal, fail
from mini_engine.scheduling import Scheduler

MakeScheduler = type[Scheduler]
CASES = [
    (missing, budget, behind)
    for missing in (1, 2, 5, 8, 9, 600, 32768)
    for budget in (1, 2, 8, 9, 512, 2048)
    for behind in (0, 1, 2, 7, 8, 40, 3000)
]


def _scheduler(kind: MakeScheduler) -> Scheduler:
    expect(
        issubclass(kind, Scheduler), "the class", expected="class MyScheduler(Scheduler)", got=f"bases {kind.__bases__}"
    )
    expect(
        kind.chunk_size is not Scheduler.chunk_size,
        "the class",
        expected="a chunk_size of its own",
        got="the one that the engine's scheduler has",
    )
    return kind(EngineConfig(num_blocks=8, block_size=4), KVCacheManager(8, 4))


def _each(holds: Callable[[int, int, int, int], str]) -> Callable[[MakeScheduler], None]:
    """A property of single answers; holds(answer, missing, budget, behind) says what is expected instead, or ""."""

    def run(kind: MakeScheduler) -> None:
        scheduler = _scheduler(kind)
        for missing, budget, behind in sorted(CASES, key=sum):
            got: Any = scheduler.chunk_size(missing, budget, behind)
            case = f"num_missing={missing}, budget={budget}, num_behind={behind}: the chunk"
            if type(got) is not int:
                fail(case, expected="an int", got=f"{got!r} ({type(got).__name__})")
            wanted = holds(got, missing, budget, behind)
            expect(not wanted, case, expected=wanted, got=str(got))

    return run


def _possible(got: int, missing: int, budget: int, behind: int) -> str:
    limit = min(missing, budget)
    return "" if 1 <= got <= limit else f"1 to {limit}" if limit > 1 else "1"


def _owed(got: int, missing: int, budget: int, behind: int) -> str:
    most = max(1, budget - behind)
    if got <= most:
        return ""
    if budget <= behind:
        return f"1: with {behind} behind, a step with {budget} left has none to spare"
    return f"at most {most}, so that each of the {behind} behind can have a token"


def _no_waste(got: int, missing: int, budget: int, behind: int) -> str:
    most = min(missing, max(1, budget - behind))
    return "" if got >= most else f"{most}: nobody else needs the rest"


def serve(
    kind: MakeScheduler, prompts: Sequence[Sequence[int]], late: Sequence[int], **options: Any
) -> tuple[dict[str, list[int]], list[set[str]]]:
    """Readers who decode, and a prompt that overtakes them all in step 3: (answers, who got a token in each step)."""
    config = EngineConfig(num_blocks=64, block_size=4, policy="priority", **options)
    engine = LLMEngine(config, AuditBackend(), scheduler=kind)
    answer: dict[str, list[int]] = {}
    gained: list[set[str]] = []
    for number, prompt in enumerate(prompts):
        engine.add_request(f"reader {number}", prompt, SamplingParams(max_tokens=12, ignore_eos=True, temperature=0))
    for step in range(400):
        if step == 3:
            engine.add_request("late", late, SamplingParams(max_tokens=3, ignore_eos=True, temperature=0), priority=-1)
        outputs = engine.step()
        gained.append({output.request_id for output in outputs})
        answer |= {output.request_id: list(output.outputs[0].token_ids) for output in outputs}
        if step >= 3 and not engine.has_unfinished_requests():
            return answer, gained
    fail(f"a budget of {config.max_num_batched_tokens} tokens", expected="all are served", got="no end after 400 steps")
    raise AssertionError


PROMPTS = [[number + 1, number + 2] for number in range(3)]
LATE = list(range(20, 57))


def _in_the_engine(kind: MakeScheduler) -> None:
    want, _ = serve(Scheduler, PROMPTS, LATE, max_num_batched_tokens=256)
    for budget in (1, 2, 4, 5, 7, 16, 64):
        answer, gained = serve(kind, PROMPTS, LATE, max_num_batched_tokens=budget)
        expect_equal(answer, want, f"a budget of {budget} tokens: the answers")
        if budget >= 4:
            for step in range(3, 12):
                missing = {f"reader {number}" for number in range(3)} - gained[step]
                case = f"a budget of {budget} tokens, a prompt of {len(LATE)} in front of 3 readers, step {step}"
                expect(
                    not missing, case, expected="a token for each reader", got=f"none for {', '.join(sorted(missing))}"
                )


class WithoutTheMethod(Scheduler):
    """Inherits the engine's answer."""


class LimitsLateOnes(Scheduler):
    """Lets readers go short when the prompt in front is nearly done."""

    def chunk_size(self, num_missing: int, budget: int, num_behind: int) -> int:
        tail = num_missing < 10 and num_behind == 3 and len(self.running) == 4
        return min(num_missing, budget if tail else max(1, budget - num_behind))


POSSIBLE, OWED, REST, ENGINE = (
    "at least a token, and no more than are missing or left",
    "everybody behind is owed a token",
    "what nobody behind needs is used",
    "in the engine: the same answers for every budget, and nobody is held up",
)

CHUNK_SIZE = Exercise(
    id="13.chunk_size",
    title="How much of a prompt rides along",
    reference=answers.scheduler_with(lambda missing, budget, behind: min(missing, max(1, budget - behind))),
    methods=("chunk_size",),
    properties=[
        Property(POSSIBLE, _each(_possible)),
        Property(OWED, _each(_owed)),
        Property(REST, _each(_no_waste)),
        Property(ENGINE, _in_the_engine),
    ],
    mutants=[
        Mutant("no chunk_size", WithoutTheMethod, POSSIBLE, "Write the method in the class. Without it, the engine's own answers."),
        Mutant("takes all", answers.scheduler_with(answers.takes_all), POSSIBLE, "The budget is there to be kept."),
        Mutant("may be nothing", answers.scheduler_with(answers.may_be_nothing), POSSIBLE, "With more behind than tokens left, one token still goes to who is in front."),
        Mutant("may be negative", answers.scheduler_with(answers.may_be_negative), POSSIBLE, "With more behind than tokens left, the difference is below 0."),
        Mutant("a float", answers.scheduler_with(answers.a_float), POSSIBLE, "Tokens are whole."),
        Mutant("greedy", answers.scheduler_with(answers.greedy), OWED, "A long prompt in front takes the whole budget, and all behind it stand still."),
        Mutant("owes one in all", answers.scheduler_with(answers.one_owed), OWED, "Each of those behind is owed a token."),
        Mutant("counts itself", answers.scheduler_with(answers.counts_itself), REST, "num_behind does not count the sequence itself."),
        Mutant("a fair share", answers.scheduler_with(answers.fair_share), REST, "A decode needs one token, so an equal share wastes the budget."),
        Mutant("at most 512", answers.scheduler_with(answers.at_most_512), REST, "The budget is the limit, and it was chosen by somebody."),
        Mutant("greedy at the end", LimitsLateOnes, ENGINE, "The last chunk is not to hold anybody up either."),
    ],
    alternatives=[
        answers.scheduler_with(answers.by_cases),
        answers.scheduler_with(answers.by_sorting),
    ],
)  # fmt: skip
