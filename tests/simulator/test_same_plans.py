"""The simulator and the engine decide alike: with equal step times, the same arrivals give the same sequence of step plans."""

from __future__ import annotations

import pytest

from mini_engine.backends import AuditBackend, SimulatedBackend
from mini_engine.catalog import get_gpu, get_model
from mini_engine.config import EngineConfig
from mini_engine.engine import LLMEngine
from mini_engine.sampling import SamplingParams
from mini_engine.scheduling import Scheduler
from mini_engine.simulator import Simulator, StaticBatch
from mini_engine.workload import load_trace
from tests.simulator.helpers import FixedTime, trace_of

CASES = {
    "chunked": {},
    "whole prompts": {"enable_chunked_prefill": False, "max_num_batched_tokens": 300},
    "preempted": {"num_blocks": 60, "admission": "first_chunk"},
    "swapped": {"num_blocks": 60, "admission": "first_chunk", "preemption": "swap", "num_swap_blocks": 100},
    "capacity": {"num_blocks": 14, "max_num_seqs": 3},
    "radix, worst case": {"prefix_index": "radix", "admission": "worst_case"},
    "shortest first": {"policy": "shortest_first", "num_blocks": 70},
}


def keeping(of: type[Scheduler], plans: list) -> type[Scheduler]:
    """The scheduler, writing down its plans."""

    class Keeping(of):
        def schedule(self):
            plan = super().schedule()
            plans.append(plan)
            return plan

    return Keeping


def small(trace, num_requests: int, shrink: int):
    """The head of a trace, lengths and times shrunk so that requests crowd a small pool."""
    return trace_of(
        *(
            (r.arrival / 8, max(1, r.num_prompt_tokens // shrink), max(1, r.num_output_tokens // 16))
            for r in trace.head(num_requests)
        )
    )


def engine_run(engine: LLMEngine, backend, trace, prompts) -> tuple[list[str], dict[str, list[float]]]:
    """Feed an engine on a virtual clock as the simulator does; who was refused, and everybody's token times."""
    waiting, refused, times = list(enumerate(trace)), [], {}
    while waiting or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests():
            backend.wait_until(waiting[0][1].arrival)
        while waiting and waiting[0][1].arrival <= backend.clock():
            number, request = waiting.pop(0)
            params = SamplingParams(temperature=0, max_tokens=request.num_output_tokens, ignore_eos=True)
            try:
                engine.add_request(str(number), prompts(number, request), params)
            except ValueError:
                refused.append(str(number))
        for output in engine.step():
            times[output.request_id] = output.metrics.token_times
    return refused, times


class TimedAudit(AuditBackend):
    """Exact tokens, and a clock that moves on by a quarter of a second with every forward pass."""

    now = 0.0

    def clock(self) -> float:
        return self.now

    def wait_until(self, time: float) -> None:
        self.now = max(self.now, time)

    def execute(self, batch):
        self.now += FixedTime.SECONDS
        return super().execute(batch)


STATIC = ("whole prompts", "capacity", "preempted")


@pytest.mark.parametrize(
    ("name", "scheduler"), [*((name, Scheduler) for name in CASES), *((name, StaticBatch) for name in STATIC)]
)
def test_the_engine_that_computes_real_tokens_makes_the_same_plans(name, scheduler):
    """Tokens, blocks and hits of the engine are real (audited); the simulator's are made up, and yet no plan differs."""
    trace = small(load_trace("synthetic_azure_conv.csv"), 60, 10)
    config = EngineConfig(
        **{"num_blocks": 400, "block_size": 4, "max_num_batched_tokens": 64, "max_num_seqs": 12} | CASES[name]
    )
    simulated, real = [], []
    simulator = Simulator(config, FixedTime(max_model_len=1 << 20), scheduler=keeping(scheduler, simulated))
    result = simulator.run(trace)
    backend = TimedAudit(vocab_size=1000)
    engine = LLMEngine(config, backend, scheduler=keeping(scheduler, real), clock=backend.clock)
    prompts = lambda number, request: [(37 * number + 11 * at) % 997 for at in range(request.num_prompt_tokens)]  # noqa: E731
    refused, times = engine_run(engine, backend, trace, prompts)
    assert len(real) > 50
    for step, (ours, theirs) in enumerate(zip(simulated, real)):
        assert ours == theirs, f"step {step}"
    assert len(simulated) == len(real)
    assert refused == [str(each.number) for each in result.rejected]
    assert {str(each.number): result.token_times(each) for each in result.served} == times
    assert engine.stats().num_preemptions == result.counters.num_preemptions
    if name in ("preempted", "swapped") and scheduler is Scheduler:
        assert result.counters.num_preemptions > 0
    if name == "swapped":
        assert result.counters.num_swapped_in_blocks > 0
    if name == "capacity":
        assert refused
        assert "capacity" in result.finish_reasons


@pytest.mark.parametrize("options", [{}, {"num_blocks": 300, "admission": "first_chunk"}])
def test_an_engine_on_the_simulated_backend_gives_the_same_times_to_the_last_bit(options):
    """Shared prefixes, roofline times; the engine makes arrays for each step, the simulator does not."""
    trace = load_trace("synthetic_shared_prefix_block16.jsonl").head(80)
    config = EngineConfig(**{"num_blocks": 5000, "max_num_batched_tokens": 512} | options)
    model, gpu = get_model("llama-3-8b"), get_gpu("h100-sxm")
    simulated, real = [], []
    one, two = SimulatedBackend(model, gpu), SimulatedBackend(model, gpu)
    result = Simulator(config, one, scheduler=keeping(Scheduler, simulated)).run(trace)
    engine = LLMEngine(config, two, scheduler=keeping(Scheduler, real), clock=two.clock)
    refused, times = engine_run(
        engine, two, trace, lambda number, request: request.prompt_token_ids(trace.block_tokens, model.vocab_size)
    )
    assert not refused
    assert simulated == real
    assert {str(each.number): result.token_times(each) for each in result.served} == times
    assert (one.now, one.flops, one.bytes_read) == (two.now, two.flops, two.bytes_read)
    assert result.counters.num_prefix_hit_tokens > 0
    engine.check_invariants()
