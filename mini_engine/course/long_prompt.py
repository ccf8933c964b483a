"""Eight readers and a long prompt on a large machine: how long it takes by the formula, and served in the simulator."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from mini_engine.backends.step_cost import StepCost
from mini_engine.catalog import ModelSpec, get_gpu, get_model
from mini_engine.geometry import active_params
from mini_engine.roofline import prefill_flops, prefill_time
from mini_engine.scheduling import Chunk
from mini_engine.simulator import SimulationResult, simulate
from mini_engine.workload import Trace, TraceRequest

MODEL, GPU, TP = "llama-3.1-70b", "h100-sxm", 8  # the shape of Llama-3-70B, which takes 8,192 tokens at most
READERS, PROMPT, ANSWER, LONG = 8, 200, 300, 32_768  # a reader's prompt and answer; the long prompt


def prompt_flops(spec: ModelSpec, num_tokens: int, done: int = 0) -> int:
    """FLOPs of `num_tokens` prompt tokens after `done` others (formula F19)."""
    shape = spec.num_attention_layers, spec.num_attention_heads, spec.head_dim
    return prefill_flops(active_params(spec), num_tokens, *shape, done=done)


def prompt_seconds(model: str, gpus: int, num_tokens: int, done: int = 0) -> float:
    """Seconds of H100s at half their peak for so many prompt tokens after `done` others."""
    flops = prompt_flops(get_model(model), num_tokens, done)
    return float(prefill_time(flops, get_gpu(GPU).bf16_flops, gpus, Fraction(1, 2)))


def readers_and_prompt(long: int, readers: int, answer: int, arrival: float) -> Trace:
    """People who read answers of so many tokens, and a long prompt that comes in after a while."""
    reading = [TraceRequest(0.0, PROMPT, answer) for _ in range(readers)]
    return Trace(f"{readers} readers", (*reading, TraceRequest(arrival if readers else 0.0, long, 20)))


def serve_readers(
    budget: int | None,
    long: int = LONG,
    readers: int = READERS,
    *,
    answer: int = ANSWER,
    arrival: float = 1.0,
    **options: Any,
) -> SimulationResult:
    """That trace on a 70B model, TP8, H100: prompts whole (budget None), or in chunks of a token budget."""
    trace = readers_and_prompt(long, readers, answer, arrival)
    return simulate(trace, record=True, **{**_machine(budget), **options})


def _machine(budget: int | None) -> dict[str, Any]:
    whole = {"batching": "iteration"} if budget is None else {"max_num_batched_tokens": budget}
    return {"model": MODEL, "gpu": GPU, "tp": TP, "prefix_cache": False, **whole}


def eight_prompts(budget: int | None) -> SimulationResult:
    """Eight prompts of 8,192 tokens at once, on the same machine, and nobody reads."""
    trace = Trace("eight prompts", tuple(TraceRequest(0.0, 8192, 1) for _ in range(8)))
    return simulate(trace, **_machine(budget))


def waits(result: SimulationResult) -> tuple[float, float]:
    """(the longest gap between two tokens of a reader, the long prompt's time to its first token), seconds."""
    *readers, long = sorted(result.times(), key=lambda each: each.num_prompt_tokens)
    return float(max((max(each.itl) for each in readers), default=0)), float(long.ttft)


def last_step_seconds(num_tokens: int) -> float:
    """Seconds of the costliest step of so many tokens: a token for each reader, the rest a chunk that ends the long prompt."""
    num_new = max(0, num_tokens - READERS)
    chunks = [Chunk(f"{i}", 0, PROMPT + ANSWER - 1, 1) for i in range(min(READERS, num_tokens))]
    if num_new:
        chunks.append(Chunk("long", 0, LONG - num_new, num_new))
    cost = StepCost(get_model(MODEL), get_gpu(GPU), tp=TP)
    return cost.seconds(cost.work(chunks, len(chunks)), len(chunks))
