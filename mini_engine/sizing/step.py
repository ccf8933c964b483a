"""The least time of a decode step and of a prefill, every kind of layer counted with the tokens it attends to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from mini_engine.catalog import GPUSpec, ModelSpec
from mini_engine.geometry.shards import decode_head_dim, prefill_head_dim
from mini_engine.roofline import DecodeStep, decode_step_time, prefill_flops
from mini_engine.units import dtype_bytes, format_seconds

NOT_READ = "the input embedding table, of which a token reads one row (a head tied to it reads it whole)"


@dataclass(frozen=True)
class Layers:
    """Attention layers that are alike: how many, the tokens each attends to, elements per token on one GPU, head size."""

    number: int
    tokens: int
    elems: int
    head_dim: int


def kinds_of_layer(model: ModelSpec, shard: ModelSpec, context: int) -> list[Layers]:
    """The attention layers of `model` by kind; `shard` is what one GPU holds of it."""
    found = Counter(
        (
            context if window is None else min(context, window),
            shard.latent_dim if shard.is_mla else 2 * heads * head_dim,
            decode_head_dim(model) if model.is_mla else head_dim,
        )
        for window, (heads, head_dim) in zip(shard.layer_windows, shard.kv_shapes, strict=True)
    )
    return [Layers(number, *kind) for kind, number in found.items()]


def attention_flops(model: ModelSpec, kinds: list[Layers]) -> int:
    """FLOPs of attention for one token of one sequence, on all GPUs together."""
    return sum(4 * kind.number * model.num_attention_heads * kind.head_dim * kind.tokens for kind in kinds)


def decode_step(
    model: ModelSpec,
    kinds: list[Layers],
    gpu: GPUSpec,
    *,
    batch: int,
    tp: int,
    read_bytes: Fraction,
    computed: int,
    kv_dtype: str,
    flops: int,
) -> tuple[DecodeStep, str]:
    """The step and its working: `decode_step_time` for each kind of layer, the weights counted with the first."""
    calls = [
        (
            read_bytes if first else 0,
            kind.number * kind.elems * dtype_bytes("kv_dtype", kv_dtype),
            kind.tokens,
            batch,
            gpu.memory_bandwidth,
            computed if first else 0,
            flops,
            kind.number,
            model.num_attention_heads,
            kind.head_dim,
            tp,
        )
        for first, kind in zip([True] + [False] * len(kinds), kinds)
    ]
    if len(calls) == 1:
        return decode_step_time(*calls[0]), f"{decode_step_time.explain(*calls[0])}; {NOT_READ}"
    parts = [decode_step_time(*call) for call in calls]
    weights, kv, compute = (sum(getattr(part, name) for part in parts) for name in ("weights", "kv", "compute"))
    bound = "compute" if compute > weights + kv else "memory"
    step = DecodeStep(Fraction(weights), Fraction(kv), Fraction(compute), max(weights + kv, compute), bound)
    lines = decode_step_time.explain(*calls[0]).splitlines()
    return step, "\n".join([lines[0], *_summed(step, kinds, calls), f"{lines[-1]}; {NOT_READ}"])


def _summed(step: DecodeStep, kinds: list[Layers], calls: list[tuple]) -> Iterator[str]:
    for kind, call in zip(kinds, calls, strict=True):
        weights, kv, compute = decode_step_time.steps(*call)[:3]
        if call is calls[0]:
            yield f"  {weights}"
        yield f"  {kind.number} layers that attend to {kind.tokens:,} tokens"
        yield f"    {kv}"
        yield f"    {compute}"
    yield (
        f"  max(weights + K/V = {format_seconds(step.weights + step.kv)}, compute = {format_seconds(step.compute)}) = "
        f"{format_seconds(step.total)}"
    )
    yield f"  bound by {step.bound}"


def prefill_work(model: ModelSpec, context: int, computed: int) -> tuple[int, str]:
    """FLOPs of the prefill of `context` tokens, and their working. Only the last token goes through the output head."""
    heads, head = model.num_attention_heads, min(computed, model.vocab_size * model.hidden_size)
    kinds = Counter(
        (context if window is None else min(context, window), prefill_head_dim(model) if model.is_mla else head_dim)
        for window, (_, head_dim) in zip(model.layer_windows, model.kv_shapes, strict=True)
    )
    work = 2 * (computed - head) * context + 2 * head
    lines = [
        "prefill of one prompt: 2 FLOP per parameter and token, 4 × head size per score; the head for the last token only",
        f"  matrices: 2 × {computed - head:,} × {context:,} + 2 × {head:,} = {work:,} FLOP",
    ]
    for (tokens, head_dim), number in kinds.items():
        scores = prefill_flops(0, tokens, number, heads, head_dim)
        scores += 4 * number * heads * head_dim * tokens * (context - tokens)  # a full window for each later token
        sees = "all earlier tokens" if tokens == context else f"at most {tokens:,} tokens"
        lines.append(f"  {number} layers whose tokens see {sees}: {scores:,} FLOP")
        work += scores
    return work, "\n".join([*lines, f"  = {work:,} FLOP", "  not included: softmax, norms, rotary embeddings"])
