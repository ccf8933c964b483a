"""Traces and machines small enough to follow by hand."""

from __future__ import annotations

from collections.abc import Sequence

from mini_engine.backends import SimulatedBackend
from mini_engine.cache import CacheOp
from mini_engine.catalog import get_gpu, get_model
from mini_engine.config import EngineConfig
from mini_engine.scheduling import Chunk
from mini_engine.simulator import SimulationResult, Simulator
from mini_engine.workload import Trace, TraceRequest


class FixedTime(SimulatedBackend):
    """A machine on which every step takes a quarter of a second, and moving blocks no time: sums of it are exact."""

    SECONDS = 0.25

    def __init__(self, vocab_size: int = 1 << 62, max_model_len: int = 4096) -> None:
        super().__init__(get_model("llama-3-8b"), get_gpu("h100-sxm"))
        self.vocab_size, self.max_model_len = vocab_size, max_model_len

    def step_seconds(self, chunks: Sequence[Chunk], num_logits: int) -> float:
        return self.SECONDS

    def apply_ops(self, ops: Sequence[CacheOp]) -> None:
        pass


def trace_of(*requests: tuple[float, int, int]) -> Trace:
    """A trace of (arrival, prompt tokens, output tokens)."""
    return Trace("by_hand", tuple(TraceRequest(*each) for each in requests))


def run(trace: Trace, backend: SimulatedBackend | None = None, *, record: bool = True, **options) -> SimulationResult:
    """Serve a trace with a small pool on a machine of fixed step times, or on `backend`."""
    parts = {name: options.pop(name) for name in ("scheduler", "kv_manager") if name in options}
    config = EngineConfig(**{"num_blocks": 64, "block_size": 4, "max_num_batched_tokens": 16, **options})
    simulator = Simulator(config, backend or FixedTime(), record=record, **parts)
    result = simulator.run(trace)
    check_books(simulator, trace, result)
    return result


def check_books(simulator: Simulator, trace: Trace, result: SimulationResult) -> None:
    """What holds for every run, whatever the options."""
    pool, config = simulator.kv_manager.pool, simulator.config
    assert pool.num_free == config.num_blocks, "a block leaked"
    assert all(pool.ref_count(block) == 0 for block in range(1, config.num_blocks + 1))
    assert not simulator.scheduler.requests
    numbers = sorted([each.number for each in result.served] + [each.number for each in result.rejected])
    assert numbers == list(range(len(trace))), "a request was lost or served twice"
    assert list(result.step_ends) == sorted(result.step_ends), "the clock ran backwards"
    for each in result.served:
        wanted = trace.requests[each.number]
        assert (each.num_prompt_tokens, each.arrival) == (wanted.num_prompt_tokens, wanted.arrival)
        room = simulator.max_model_len - wanted.num_prompt_tokens
        if each.finish_reason == "length":
            assert each.num_output_tokens == min(wanted.num_output_tokens, room)
        assert each.start is None or each.start >= each.arrival
        times = result.token_times(each)
        assert times == sorted(times)
        assert all(time > each.arrival for time in times)
