"""Chunked prefill with a learner's parts inside: a mask in the NumPy backend, and the readers who feel a long prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from mini_engine.attention import softmax
from mini_engine.backends import NumpyBackend
from mini_engine.backends.step_cost import StepCost
from mini_engine.catalog import ModelSpec, get_gpu, get_model
from mini_engine.geometry import active_params
from mini_engine.roofline import prefill_flops, prefill_time
from mini_engine.scheduling import Chunk
from mini_engine.simulator import SimulationResult, simulate
from mini_engine.workload import Trace, TraceRequest

Mask = Callable[[int, int], np.ndarray]

MODEL, GPU, TP = "llama-3.1-70b", "h100-sxm", 8  # the shape of Llama-3-70B, which takes 8,192 tokens at most
READERS, ARRIVAL, LONG = 8, 1.0, 32_768


def masked_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, mask: np.ndarray) -> np.ndarray:
    """Attention where mask[t, s] says whether query t sees key s: q[T, H, D], k and v[S, K, D] -> [T, H, D]."""
    T, H, D = q.shape
    K = k.shape[1]
    scores = np.einsum("tkgd,skd->kgts", q.reshape(T, K, H // K, D), k) * scale
    weights = softmax(np.where(mask, scores, -np.inf))
    return np.einsum("kgts,skd->tkgd", weights, v).reshape(T, H, D)


class MaskedBackend(NumpyBackend):
    """The NumPy backend, with chunk_mask(done, num_new) saying what the tokens of a chunk see."""

    def __init__(self, model: Any, chunk_mask: Mask) -> None:
        super().__init__(model)
        self.chunk_mask = chunk_mask

    def _attention(self, q: np.ndarray, context: list[np.ndarray], up: Any, offset: int) -> np.ndarray:
        k, v = context
        return masked_attention(q, k, v, self.model.softmax_scale, self.chunk_mask(offset, len(q)))


def chunked_logits(model: Any, token_ids: Sequence[int], cuts: Sequence[int], chunk_mask: Mask) -> np.ndarray:
    """Logits [T, V] of a prompt that is computed in chunks, cut before the tokens `cuts`, over one growing cache."""
    cache: list[list[np.ndarray]] = [[] for _ in range(model.spec.num_hidden_layers)]
    rows = []
    for start, end in pairwise((0, *cuts, len(token_ids))):

        def attend(layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray, start: int = start) -> np.ndarray:
            cache[layer].append(np.stack([k, v]))
            keys, values = np.concatenate(cache[layer], axis=1)
            return masked_attention(q, keys, values, model.softmax_scale, chunk_mask(start, len(q)))

        rows.append(model.forward(np.asarray(token_ids[start:end]), np.arange(start, end), attend))
    return np.concatenate(rows)


def prompt_flops(spec: ModelSpec, num_tokens: int, done: int = 0) -> int:
    """FLOPs of `num_tokens` prompt tokens after `done` others (formula F19)."""
    shape = spec.num_attention_layers, spec.num_attention_heads, spec.head_dim
    return prefill_flops(active_params(spec), num_tokens, *shape, done=done)


def prompt_seconds(model: str, gpus: int, num_tokens: int, done: int = 0) -> float:
    """Seconds of H100s at half their peak for so many prompt tokens after `done` others."""
    flops = prompt_flops(get_model(model), num_tokens, done)
    return float(prefill_time(flops, get_gpu(GPU).bf16_flops, gpus, Fraction(1, 2)))


def readers_and_prompt(long: int = LONG, readers: int = READERS, answer: int = 300) -> Trace:
    """People who read their answers, and a long prompt that comes in when each of them has read for a second."""
    reading = [TraceRequest(0.0, 200, answer) for _ in range(readers)]
    return Trace(f"{readers} readers", (*reading, TraceRequest(ARRIVAL if readers else 0.0, long, 20)))


def serve_readers(budget: int | None, long: int = LONG, readers: int = READERS, **options: Any) -> SimulationResult:
    """That trace on a 70B model, TP8, H100: prompts whole (budget None), or in chunks of a token budget."""
    return simulate(readers_and_prompt(long, readers), record=True, **{**_machine(budget), **options})


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


def chunk_step_seconds(done: int, readers: int = READERS, context: int = 400) -> Callable[[int], float]:
    """f(n): seconds of a step of n tokens on that machine: a token for each reader, the rest a chunk after `done` tokens."""
    cost = StepCost(get_model(MODEL), get_gpu(GPU), tp=TP)

    def seconds(num_tokens: int) -> float:
        chunks = [Chunk(f"{i}", 0, context, 1) for i in range(min(readers, num_tokens))]
        if num_tokens > readers:
            chunks.append(Chunk("long", 0, done, num_tokens - readers))
        return cost.seconds(cost.work(chunks, len(chunks)), len(chunks))

    return seconds
