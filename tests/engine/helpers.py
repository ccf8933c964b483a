"""Small engines that check themselves, and shorthands for the scenarios that are run on them."""

from __future__ import annotations

from typing import Any

from mini_engine.backends import AuditBackend
from mini_engine.config import EngineConfig
from mini_engine.engine import LLMEngine
from mini_engine.engine.invariants import check_plan
from mini_engine.outputs import RequestOutput
from mini_engine.sampling import SamplingParams
from mini_engine.scheduling import Scheduler, StepPlan
from tests.engine.oracle import cold


class CheckedScheduler(Scheduler):
    """Checks every plan before anyone executes it, and keeps it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.plans: list[StepPlan] = []

    def schedule(self) -> StepPlan:
        plan = super().schedule()
        check_plan(self, plan)
        self.plans.append(plan)
        return plan


def make_engine(
    num_blocks: int, block_size: int = 4, *, backend: AuditBackend | None = None, **options: Any
) -> LLMEngine:
    config = EngineConfig(num_blocks=num_blocks, block_size=block_size, **options)
    return LLMEngine(config, backend or AuditBackend(64), scheduler=CheckedScheduler)


def greedy(max_tokens: int, **options: Any) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, **options)


def tokens(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


def steps(engine: LLMEngine, times: int = 1) -> list[RequestOutput]:
    """The outputs of the last of so many steps, checked one by one."""
    outputs: list[RequestOutput] = []
    for _ in range(times):
        outputs = engine.step()
        engine.check_invariants()
    return outputs


def run(engine: LLMEngine, most: int = 1000) -> dict[str, RequestOutput]:
    """Step until all is done; the last output of every request. Nothing may be left behind."""
    last: dict[str, RequestOutput] = {}
    for _ in range(most):
        if not engine.has_unfinished_requests():
            break
        last.update({output.request_id: output for output in steps(engine)})
    assert not engine.has_unfinished_requests(), f"not done after {most} steps"
    assert engine.stats().num_free_blocks == engine.config.num_blocks
    return last


def chunks(engine: LLMEngine, request_id: str, index: int = 0) -> list[tuple[int, int]]:
    """(start, num_tokens) of every chunk that a sequence was planned."""
    plans = engine.scheduler.plans  # type: ignore[attr-defined]
    return [chunk[2:] for plan in plans for chunk in plan.chunks if chunk[:2] == (request_id, index)]


def is_cold(engine: LLMEngine, output: RequestOutput, params: SamplingParams) -> bool:
    """Whether every branch says what the same request says alone, without a cache."""
    return all(
        (completion.token_ids, completion.finish_reason)
        == cold(engine.backend, output.prompt_token_ids, params, index=completion.index)  # type: ignore[arg-type]
        for completion in output.outputs
    )


class Alphabet:
    """A tokenizer: token 0 is "a", 1 is "b" and so on, over and over."""

    def detokenizer(self):
        return self

    def add(self, token_id: int) -> str:
        return chr(97 + token_id % 26)

    def finish(self) -> str:
        return ""
