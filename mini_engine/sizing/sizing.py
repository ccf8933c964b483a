"""One deployment, sized: a model on a GPU, with every assumption a field.

The command, the panels and the lessons all call `size`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from mini_engine.arguments import Real, amount, ceil_div, choice, count, share
from mini_engine.catalog import GPUSpec, ModelSpec, gpu_spec, model_spec
from mini_engine.geometry import (
    active_params,
    kv_budget,
    kv_bytes_hybrid,
    kv_bytes_per_token,
    kv_bytes_per_token_per_gpu,
    kv_total_bytes,
    max_concurrency,
    max_context,
    params,
    weight_bytes,
)
from mini_engine.roofline import (
    DecodeStep,
    batch_for_ridge,
    decode_step_time,
    prefill_flops,
    prefill_time,
    ridge_point,
    throughput_ceiling,
    tokens_per_s,
)
from mini_engine.units import GB, dtype_bytes, format_rate


@dataclass(frozen=True)
class Sizing:
    """What fits and how fast it can be.

    Bytes are integers, times and rates fractions; `working` holds the arithmetic as text.
    """

    model: ModelSpec
    gpu: GPUSpec
    tp: int
    context: int
    batch: int
    kv_dtype: str
    dtype: str
    util: Fraction
    overhead: int
    block: int
    memory: int
    """Bytes of one card that were counted on."""
    num_params: int
    num_active_params: int
    """Per token."""
    counted: bool
    """Whether the parameters were counted from the configuration, not given."""
    flops: int
    """Peak of one card at the weights' precision."""

    kv_per_token: int
    """All GPUs' share of one token, without copies; every layer counted as full."""
    kv_per_token_per_gpu: int
    kv_total: int
    """batch × context, all layers full, without copies."""
    kv_per_sequence_per_gpu: int
    """One sequence of `context` tokens on one GPU, windows counted."""
    reserved_per_sequence_per_gpu: int
    """The same in whole blocks."""
    weights_per_gpu: Fraction
    budget: int
    """Bytes for K/V on one GPU."""
    concurrency: int
    """Sequences of `context` tokens, every layer full."""
    concurrency_windowed: int
    """The same when windowed layers give back what they no longer need."""
    max_context: int
    """Tokens each of `batch` sequences may have, every layer full."""
    fits: bool
    """Whether batch × context fits the budget, in whole blocks and with windows counted."""

    step: DecodeStep
    tokens_per_s: Fraction
    throughput_ceiling: Fraction | None
    batch_for_ridge: int | None
    ridge: Fraction
    prefill: Fraction
    """Seconds of the prefill of one prompt of `context` tokens at peak."""
    working: tuple[str, ...]
    notes: tuple[str, ...]


def size(
    model: ModelSpec,
    gpu: GPUSpec,
    *,
    tp: int = 1,
    context: int = 8192,
    batch: int = 1,
    kv_dtype: str = "bf16",
    dtype: str = "bf16",
    util: Real = 1,
    overhead: Real = 2 * GB,
    block: int = 16,
    memory: str = "nominal",
    num_params: Real | None = None,
) -> Sizing:
    """Size `model` on `tp` GPUs. ValueError names the argument that is not valid.

    memory: "nominal", the size on the box, or "reported", what the driver shows. overhead: bytes of activations and
    runtime per GPU. num_params: for models whose weights cannot be counted from their configuration.
    """
    model, gpu = model_spec("model", model), gpu_spec("gpu", gpu)
    tp, block = count("tp", tp, limit=10**6), count("block", block, limit=10**6)
    context, batch = count("context", context, limit=10**9), count("batch", batch, limit=10**9)
    overhead, util = amount("overhead", overhead), share("util", util)
    dtype_bytes("dtype", dtype)
    card = _memory(gpu, memory)
    total, active, read = _parameters(model, num_params, batch)
    weights = Fraction(total * dtype_bytes("dtype", dtype), tp)
    flops = gpu.fp8_flops if dtype == "fp8" and gpu.fp8_flops else gpu.bf16_flops

    per_token, per_gpu = kv_bytes_per_token(model, kv_dtype), kv_bytes_per_token_per_gpu(model, tp, kv_dtype)
    shard = one_shard(model, tp)
    per_sequence = kv_bytes_hybrid(shard, shard.layer_windows, context, kv_dtype)
    reserved = _in_blocks(shard, context, block, kv_dtype)
    budget = kv_budget(card, weights, overhead, util)

    head_dim = decode_head_dim(model)
    layers, heads = model.num_attention_layers, model.num_attention_heads
    read_bytes = Fraction(read * dtype_bytes("dtype", dtype), tp)
    step_arguments = (
        read_bytes,
        Fraction(per_sequence, context),
        context,
        batch,
        gpu.memory_bandwidth,
        active,
        flops,
        layers,
        heads,
        head_dim,
        tp,
    )
    step = decode_step_time(*step_arguments)
    ridge = ridge_point(flops, gpu.memory_bandwidth)
    flops_per_sequence = Fraction(2 * active + 4 * layers * heads * head_dim * context, tp)
    ridge_batch = batch_for_ridge(read_bytes, Fraction(per_sequence, context), context, flops_per_sequence, ridge)
    work = prefill_flops(active, context, layers, heads, _prefill_head_dim(model))

    concurrency = max_concurrency(budget, per_gpu, context, block)
    working = [
        kv_total_bytes.explain(model, context, batch, kv_dtype),
        kv_bytes_per_token_per_gpu.explain(model, tp, kv_dtype),
        *(
            [kv_bytes_hybrid.explain(shard, shard.layer_windows, context, kv_dtype)]
            if model.num_windowed_layers
            else []
        ),
        *([weight_bytes.explain(model, dtype, tp)] if num_params is None else []),
        kv_budget.explain(card, weights, overhead, util),
        max_concurrency.explain(budget, per_gpu, context, block),
        max_context.explain(budget, per_gpu, batch),
        decode_step_time.explain(*step_arguments),
        tokens_per_s.explain(batch, step.total),
        prefill_flops.explain(active, context, layers, heads, _prefill_head_dim(model)),
        prefill_time.explain(work, flops, tp),
    ]
    return Sizing(
        model=model,
        gpu=gpu,
        tp=tp,
        context=context,
        batch=batch,
        kv_dtype=kv_dtype,
        dtype=dtype,
        util=util,
        overhead=overhead,
        block=block,
        memory=card,
        num_params=total,
        num_active_params=active,
        counted=num_params is None,
        flops=flops,
        kv_per_token=per_token,
        kv_per_token_per_gpu=per_gpu,
        kv_total=kv_total_bytes(model, context, batch, kv_dtype),
        kv_per_sequence_per_gpu=per_sequence,
        reserved_per_sequence_per_gpu=reserved,
        weights_per_gpu=weights,
        budget=budget,
        concurrency=concurrency,
        concurrency_windowed=budget // reserved if model.num_windowed_layers else concurrency,
        max_context=max_context(budget, per_gpu, batch),
        fits=reserved * batch <= budget,
        step=step,
        tokens_per_s=tokens_per_s(batch, step.total),
        throughput_ceiling=throughput_ceiling(gpu.memory_bandwidth, Fraction(per_sequence, context), context),
        batch_for_ridge=ridge_batch,
        ridge=ridge,
        prefill=prefill_time(work, flops, tp),
        working=tuple(working),
        notes=tuple(_notes(model, gpu, tp, context, dtype, flops, None if num_params else read)),
    )


def one_shard(model: ModelSpec, tp: int) -> ModelSpec:
    """The model as one of `tp` GPUs sees its K/V: ceil(KV heads / tp) of every layer. A latent is not split."""
    if model.is_mla or tp == 1:
        return model
    shapes = tuple((ceil_div(heads, tp), head_dim) for heads, head_dim in model.kv_shapes)
    return dataclasses.replace(
        model, num_key_value_heads=ceil_div(model.num_key_value_heads, tp), layer_kv_shapes=shapes
    )


def _in_blocks(shard: ModelSpec, context: int, block: int, kv_dtype: str) -> int:
    """Bytes of one sequence when every layer holds whole blocks."""
    windows = [window and ceil_div(window, block) * block for window in shard.layer_windows]
    return kv_bytes_hybrid(shard, windows, ceil_div(context, block) * block, kv_dtype)


def decode_head_dim(model: ModelSpec) -> int:
    """The d in 4 d FLOPs per score of decoding. With MLA a score takes 2 (d_c + d_r) FLOPs and its value 2 d_c."""
    return model.head_dim if not model.is_mla else math.ceil(((model.kv_lora_rank or 0) + model.latent_dim) / 2)


def _prefill_head_dim(model: ModelSpec) -> int:
    """The same for prefill, which uses keys and values expanded per head."""
    return model.head_dim if not model.is_mla else math.ceil(model.expanded_dim / 2)


def _memory(gpu: GPUSpec, memory: str) -> int:
    choice("memory", memory, ("nominal", "reported"))
    if memory == "nominal":
        return gpu.memory_bytes
    if gpu.reported_memory_bytes is None:
        raise ValueError(f"memory='reported': data/gpus.csv does not hold what the driver reports for {gpu.name}")
    return gpu.reported_memory_bytes


def _parameters(model: ModelSpec, given: Real | None, batch: int) -> tuple[int, int, int]:
    """(all parameters, those active per token, those read by a step of `batch` tokens)."""
    if given is not None:
        total = amount("num_params", given, minimum=1)
        return total, total, total
    try:
        return params(model), active_params(model), active_params(model, batch)
    except ValueError as error:
        raise ValueError(f"{error}: num_params=80e9, or --params 80e9 on the command line") from None


def _notes(
    model: ModelSpec, gpu: GPUSpec, tp: int, context: int, dtype: str, flops: int, read: int | None
) -> Iterator[str]:
    if context > model.max_position_embeddings:
        yield f"the context of {context:,} is more than the {model.max_position_embeddings:,} positions the model was made for"
    if model.num_windowed_layers:
        yield (
            f"{model.num_windowed_layers} of {model.num_attention_layers} attention layers keep a window: "
            "concurrency is given both for an engine "
            "that keeps every layer in full and for one that gives windows back; FLOPs of attention are counted as "
            "if all layers were full"
        )
    if model.layers_without_kv:
        yield f"{len(model.layers_without_kv)} of {model.num_hidden_layers} layers have no K/V; their fixed state per sequence is not counted"
    if not model.is_mla and model.num_key_value_heads % tp:
        yield f"{tp} GPUs do not divide {model.num_key_value_heads} KV heads evenly: some heads are held more than once; an engine may refuse this"
    if model.is_mla and tp > 1:
        yield f"the latent cache is not split by heads: each of the {tp} GPUs holds all of it"
    if model.num_experts and read:
        yield f"a step reads at most {read:,} parameters, counting only the experts its tokens can be routed to"
    if (dtype == "fp8" and not gpu.fp8_flops) or dtype in ("fp32", "float32", "int8"):
        yield f"no peak for {dtype} on {gpu.name} in the table: compute is counted at the bf16 rate, {format_rate(flops, 'FLOP/s')}"
    if gpu.verified != "yes":
        yield f"the figures of {gpu.name} are not all verified ({gpu.verified}): {gpu.note}"
