"""Lesson 15, exercise 1: what the engine does with a plan before it is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mini_engine import EngineConfig, LLMEngine, SamplingParams
from mini_engine.cache import CacheOp
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers15_execute as answers
from mini_engine.course.expect import expect_equal, fail
from mini_engine.course.own_engine import TimedAudit, VirtualClock, without_cache
from mini_engine.scheduling import Request, SampledToken, StepPlan

MOST_STEPS = 200


class Logged(TimedAudit):
    """Writes down what it is asked to do."""

    def __init__(self) -> None:
        super().__init__(VirtualClock())
        self.calls: list[str] = []

    def apply_ops(self, ops: Sequence[CacheOp]) -> None:
        if ops:
            self.calls.append(f"apply_ops({', '.join(f'{op.kind} {op.src}->{op.dst}' for op in ops)})")
        super().apply_ops(ops)

    def execute(self, batch: Any) -> Any:
        self.calls.append(f"execute({batch.num_seqs} sequences)")
        return super().execute(batch)


def shown(plan: StepPlan) -> str:
    """A plan in words."""
    chunks = ", ".join(
        f"{c.request_id}/{c.index} tokens {c.start} to {c.start + c.num_tokens - 1}" for c in plan.chunks
    )
    return f"the plan computes {chunks or 'nothing'}" + (
        f", after {len(plan.cache_ops)} cache operations" if plan.cache_ops else ""
    )


def watched(engine: type[LLMEngine]) -> type[LLMEngine]:
    """The candidate, every `execute` of which is compared with what the plan asks for."""

    class WatchedEngine(engine):  # type: ignore[valid-type, misc]
        def execute(self, plan: StepPlan) -> Any:
            requests, backend = self.scheduler.requests, self.backend
            ends = {c[:2]: c.start + c.num_tokens == len(requests[c[:2]].token_ids) for c in plan.chunks}
            self.plan_now, self.complete_now = plan, [key for key, complete in ends.items() if complete]
            want = [*self.complete_now]
            want += [(key[0], k) for key in want for k in range(1, requests[key].num_pending_branches + 1)]
            backend.calls.clear()
            got = super().execute(plan)
            if type(got) is not dict:
                fail(shown(plan), expected="a dict of sampled tokens", got=got)
            expect_equal(sorted(got), sorted(want), f"{shown(plan)}: who has got a token")
            if not all(isinstance(token, SampledToken) for token in got.values()):
                fail(shown(plan), expected="what self.sample returns", got=got)
            calls = (
                [f"apply_ops({', '.join(f'{op.kind} {op.src}->{op.dst}' for op in plan.cache_ops)})"]
                if plan.cache_ops
                else []
            )
            calls += [f"execute({len(plan.chunks)} sequences)"] if plan.chunks else []
            expect_equal(backend.calls, calls, f"{shown(plan)}: what the backend was asked to do")
            return got

        def sample(self, result: Any, requests: Sequence[Any]) -> Any:
            requests = list(requests)
            if not all(isinstance(request, Request) for request in requests):
                fail(f"{shown(self.plan_now)}: sample", expected="sequences of self.scheduler.requests", got=requests)
            asked = [f"{name}/{index}" for name, index in (request.key for request in requests)]
            complete = [f"{name}/{index}" for name, index in self.complete_now]
            expect_equal(
                asked, complete, f"{shown(self.plan_now)}: for whom a token is sampled, in the order of the plan"
            )
            return super().sample(result, requests)

    return WatchedEngine


def serve(
    candidate: type[LLMEngine], prompts: dict[str, list[int]], params: SamplingParams, **config: Any
) -> dict[str, list[list[int]]]:
    """The answers to some prompts, all there from the start."""
    engine = watched(candidate)(EngineConfig(**{"num_blocks": 32, "block_size": 4, **config}), Logged())
    for name, prompt in prompts.items():
        engine.add_request(name, prompt, params)
    answers: dict[str, list[list[int]]] = {}
    for _ in range(MOST_STEPS):
        if not engine.has_unfinished_requests():
            break
        for output in engine.step():
            answers[output.request_id] = [branch.token_ids for branch in output.outputs]
        engine.check_invariants()
    else:
        fail(f"{len(prompts)} prompts", expected=f"answers within {MOST_STEPS} steps", got="none")
    return answers


def greedy(n: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=n, ignore_eos=True)


def _agree(*cases: tuple[dict[str, list[int]], int, dict[str, Any]]) -> Callable[[type[LLMEngine]], None]:
    """Every prompt is answered as without batch and cache."""

    def run(candidate: type[LLMEngine]) -> None:
        for prompts, length, config in cases:
            got = serve(candidate, prompts, greedy(length), **config)
            for name, prompt in prompts.items():
                want = without_cache(prompt, length)
                expect_equal(
                    got.get(name), [want], f"prompts {prompts}, {length} tokens each, {config}: the answer of {name!r}"
                )

    return run


WHOLE: list[tuple[dict[str, list[int]], int, dict[str, Any]]] = [
    ({"a": [5]}, 1, {}),
    ({"a": [5, 9]}, 2, {}),
    ({"b": [5, 9, 3], "a": [7]}, 3, {}),
    ({"a": [1, 2, 3, 4], "b": [4, 3, 2, 1, 5], "c": [9]}, 4, {"max_num_seqs": 2}),
]
CHUNKED: list[tuple[dict[str, list[int]], int, dict[str, Any]]] = [
    ({"a": [5, 9]}, 1, {"max_num_batched_tokens": 1}),
    ({"a": [5, 9, 3]}, 1, {"max_num_batched_tokens": 2}),
    ({"a": [5, 9, 3, 8, 2, 1, 7], "b": [7, 7, 1]}, 3, {"max_num_batched_tokens": 3}),
]


def _branches(candidate: type[LLMEngine]) -> None:
    """n > 1 copies a shared block before it is written to; swapping moves blocks out and in again."""
    params = SamplingParams(n=3, temperature=1.0, seed=4, max_tokens=3, ignore_eos=True)
    for prompt in ([5, 9], [5, 9, 3, 8, 2]):
        case = f"prompt {prompt}, n=3, 3 tokens each, seed 4"
        expect_equal(serve(candidate, {"a": prompt}, params), serve(answers.Executes, {"a": prompt}, params), case)
    prompts = {"a": [1, 2, 3, 4, 5, 6], "b": [6, 5, 4, 3, 2, 1]}
    config = {
        "num_blocks": 4,
        "preemption": "swap",
        "num_swap_blocks": 8,
        "admission": "first_chunk",
        "enable_prefix_caching": False,
    }
    _agree((prompts, 6, config))(candidate)


def _empty(candidate: type[LLMEngine]) -> None:
    got = serve(candidate, {"a": [5, 9]}, greedy(0))
    expect_equal(got, {"a": [[]]}, "a prompt that asks for no token (max_tokens=0)")
    engine: Any = watched(candidate)(EngineConfig(num_blocks=4, block_size=4), Logged())
    engine.execute(StepPlan(cache_ops=(CacheOp("copy", 0, 1),)))


TOKEN, PARTLY, ORDER, NOTHING = (
    "who is computed to the last token gets the next one",
    "who is computed in part gets none",
    "blocks are moved in order, before the forward pass",
    "a plan without chunks runs no forward pass",
)

EXECUTE = Exercise(
    id="15.execute",
    title="Execute a plan",
    reference=answers.Executes,
    methods=("execute",),
    properties=[
        Property(TOKEN, _agree(*WHOLE)),
        Property(PARTLY, _agree(*CHUNKED)),
        Property(ORDER, _branches),
        Property(NOTHING, _empty),
    ],
    mutants=[
        Mutant("decodes only", answers.SamplesDecodesOnly, TOKEN, "A prompt of two tokens has a next token as well."),
        Mutant("ends of prompts only", answers.SamplesAfterThePrompt, TOKEN, "Every decode is complete too."),
        Mutant("backwards", answers.LooksBackwards, TOKEN, "Row k of the logits belongs to the k-th of them."),
        Mutant("by name", answers.LooksByName, TOKEN, "b was there before a: the rows of the logits stand in the order of the plan."),
        Mutant("a pass for each chunk", answers.OnePassEach, TOKEN, "The weights are to be read once for all."),
        Mutant("all chunks", answers.SamplesAll, PARTLY, "The token behind half a prompt is nobody's next token."),
        Mutant("one token is a decode", answers.OneTokenIsADecode, PARTLY, "With a small budget the chunk of a prompt has one token as well."),
        Mutant("moves nothing", answers.MovesNothing, ORDER, "The copy that a branch writes to stays empty."),
        Mutant("moves afterwards", answers.MovesAfterwards, ORDER, "The pass has read and written the wrong block by then."),
        Mutant("moves in reverse", answers.MovesInReverse, ORDER, "A block may be copied again after it was filled."),
        Mutant("moves nothing without chunks", answers.MovesForChunksOnly, NOTHING, "A block that goes to the host goes, whoever computes."),
        Mutant("a pass over nothing", answers.ComputesNothing, NOTHING, "Whoever asks for no token costs no pass."),
    ],
    alternatives=[answers.ExecutesByRows],
)  # fmt: skip
