"""The same arrivals for the engine and for the simulator, with equal step times: what each of them plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mini_engine.backends import AuditBackend, SimulatedBackend
from mini_engine.catalog import get_gpu, get_model
from mini_engine.config import EngineConfig
from mini_engine.engine import LLMEngine
from mini_engine.sampling import SamplingParams
from mini_engine.scheduling import Chunk, Scheduler, StepPlan
from mini_engine.simulator import SimulationResult, Simulator
from mini_engine.workload import Trace, TraceRequest

SECONDS = 1.0  # of every step


class Run(NamedTuple):
    """Plans and counts of one trace in both."""

    simulated: list[StepPlan]
    planned: list[StepPlan]
    """By the engine, whose cache is audited."""
    result: SimulationResult
    engine: LLMEngine


class _EqualSteps(SimulatedBackend):
    def step_seconds(self, chunks: Sequence[Chunk], num_logits: int) -> float:
        super().step_seconds(chunks, num_logits)
        return SECONDS


class _TimedAudit(AuditBackend):
    """Knows who wrote each slot; its clock moves on by one step at a time."""

    now = 0.0

    def clock(self) -> float:
        return self.now

    def execute(self, batch: Any) -> Any:
        self.now += SECONDS
        return super().execute(batch)


def at_once(prompts: Sequence[int], outputs: Sequence[int], name: str = "at once") -> Trace:
    """Requests of these lengths that are all there from the start."""
    return Trace(name, tuple(TraceRequest(0.0, p, o) for p, o in zip(prompts, outputs, strict=True)))


def run_both(trace: Trace, config: EngineConfig, scheduler: type[Scheduler] = Scheduler) -> Run:
    """Serve a trace twice with one scheduler; every step takes a second."""
    simulated: list[StepPlan] = []
    planned: list[StepPlan] = []
    backend = _EqualSteps(get_model("llama-3-8b"), get_gpu("h100-sxm"))
    result = Simulator(config, backend, scheduler=_kept(scheduler, simulated), record=True).run(trace)
    audit = _TimedAudit(vocab_size=1000)
    engine = LLMEngine(config, audit, scheduler=_kept(scheduler, planned), clock=audit.clock, record=True)
    waiting = list(enumerate(trace))
    while waiting or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests():
            audit.now = max(audit.now, waiting[0][1].arrival)
        while waiting and waiting[0][1].arrival <= audit.now:
            number, request = waiting.pop(0)
            prompt = [(37 * number + 11 * at) % 997 for at in range(request.num_prompt_tokens)]
            params = SamplingParams(temperature=0, max_tokens=request.num_output_tokens, ignore_eos=True)
            engine.add_request(str(number), prompt, params)
        engine.step()
    engine.check_invariants()
    return Run(simulated, planned, result, engine)


def _kept(kind: type[Scheduler], plans: list[StepPlan]) -> type[Scheduler]:
    """The scheduler, writing down its plans."""

    class Kept(kind):  # type: ignore[misc,valid-type]
        def schedule(self) -> StepPlan:
            plans.append(super().schedule())
            return plans[-1]

    return Kept
