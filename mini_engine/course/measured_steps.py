"""Time products and real steps of the engine, and count what each computes and the least it reads: points for a roofline."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from mini_engine.backends import TorchBackend
from mini_engine.catalog import ModelSpec
from mini_engine.config import EngineConfig
from mini_engine.engine import LLMEngine
from mini_engine.geometry import kv_elems_per_token, param_breakdown
from mini_engine.models.linear import is_half_exact, pack_linear
from mini_engine.roofline import prefill_flops
from mini_engine.roofline.measure import Measured, best_seconds, one_thread
from mini_engine.sampling import SamplingParams


def step_work(spec: ModelSpec, new: Sequence[int], done: Sequence[int]) -> int:
    """FLOPs of a step that runs new[i] tokens of sequence i after done[i] earlier ones; each gets one row of logits."""
    parts = param_breakdown(spec)
    shape = spec.num_attention_layers, spec.num_attention_heads, spec.head_dim
    in_layers = sum(prefill_flops(parts.attention + parts.mlp, n, *shape, done=d) for n, d in zip(new, done))
    return in_layers + 2 * spec.vocab_size * spec.hidden_size * len(new)


def step_bytes(spec: ModelSpec, context: Sequence[int], weight_size: int, kv_size: int) -> int:
    """The least bytes a step reads: every matrix once, and the K/V of every token of every context once."""
    parts = param_breakdown(spec)
    weights = parts.attention + parts.mlp + spec.vocab_size * spec.hidden_size
    return weight_size * weights + kv_size * kv_elems_per_token(spec) * sum(context)


def measure_products(
    rows: Sequence[int], device: str = "cpu", *, size: int = 2048, weight_bytes: int = 1 << 27, repeats: int = 2
) -> list[Measured]:
    """M rows times a [size, size] weight, for each M in `rows`: what a layer does with M tokens, as the engine does it.

    As many weights as fill `weight_bytes` take turns, so that none is still in a cache when its turn comes.
    """
    import torch

    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    found = []
    with one_thread(), torch.inference_mode():
        weight = torch.ones(size, size, dtype=dtype, device=device)
        # Packed for a CPU, a weight takes 2 bytes a number; results and rows keep their own size.
        held = 2 if is_half_exact(weight) and "fbgemm" in torch.backends.quantized.supported_engines else dtype.itemsize
        layers = [pack_linear(weight.clone()) for _ in range(max(1, weight_bytes // (held * size * size)))]
        for M in rows:
            x = torch.ones(M, size, dtype=dtype, device=device)

            def all_layers(x: Any = x) -> None:
                for layer in layers:
                    layer(x)

            seconds = best_seconds(all_layers, device, repeats) / len(layers)
            moved = held * size * size + dtype.itemsize * 2 * M * size
            found.append(Measured(f"{M} rows", 2 * M * size * size, moved, seconds))
    return found


def measure_steps(
    model: Any, prefills: Sequence[int], batches: Sequence[int], context: int = 16, steps: int = 5
) -> list[Measured]:
    """One engine step for each prompt length, and the median of several decode steps for each batch size.

    On a CPU one thread is used and its own time counted. `context` is the prompt's length before decoding.
    """
    found = []
    with one_thread():
        _run(model, [4], 2)  # the first step of all prepares more than it should
        for length in prefills:
            (seconds,), _ = _run(model, [length], 1)
            work = step_work(model.spec, [length], [0])
            found.append(Measured(f"prefill {length}", work, _bytes(model, [length]), seconds))
        for batch in batches:
            _, times = _run(model, [context] * batch, steps + 1)
            held = context + steps // 2 + 1  # tokens in the cache in the middle of the run
            work = step_work(model.spec, [1] * batch, [held - 1] * batch)
            found.append(Measured(f"decode {batch}", work, _bytes(model, [held] * batch), median(times)))
    return found


def _run(model: Any, prompts: Sequence[int], max_tokens: int) -> tuple[list[float], list[float]]:
    """Seconds of the first step, which runs all prompts, and of the others, which decode."""
    longest = sum(prompts) + max_tokens * len(prompts)
    engine = LLMEngine(
        EngineConfig(
            num_blocks=longest // 16 + 2 * len(prompts),
            max_num_seqs=len(prompts),
            max_num_batched_tokens=max(sum(prompts), 16),
            enable_prefix_caching=False,
        ),
        TorchBackend(model),
    )
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    for i, length in enumerate(prompts):
        engine.add_request(f"{i}", [(7 * i + j) % 1000 for j in range(length)], params)
    seconds = []
    on_gpu = model.device.type == "cuda"
    clock = time.perf_counter if on_gpu else time.thread_time  # a step ends with tokens on the host, so it has no tail
    while engine.has_unfinished_requests():
        start = clock()
        engine.step()
        seconds.append(max(clock() - start, 1e-9))
    return seconds[:1], seconds[1:]


def _bytes(model: Any, context: Sequence[int]) -> int:
    return step_bytes(model.spec, context, model.embed.element_size(), model.dtype.itemsize)
