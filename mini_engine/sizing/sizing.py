"""One deployment, sized: a model on a GPU. The command, the panels and the lessons all call `size`."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

from mini_engine.arguments import Real, amount, choice, count, share, shown
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
    batch_for_ridge,
    decode_step_time,
    prefill_flops,
    prefill_time,
    ridge_point,
    throughput_ceiling,
    tokens_per_s,
)
from mini_engine.sizing.notes import notes_of
from mini_engine.sizing.result import Sizing
from mini_engine.sizing.shards import decode_head_dim, in_blocks, one_shard, prefill_head_dim
from mini_engine.units import GB, dtype_bytes


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
    num_active_params: Real | None = None,
) -> Sizing:
    """Size `model` on `tp` GPUs. ValueError names the argument that is not valid.

    memory: "nominal", the size on the box, or "reported", what the driver shows. overhead: bytes of activations and
    runtime per GPU. num_params: for models whose weights cannot be counted from their configuration, with
    num_active_params, what one token uses of them, for a mixture of experts (default: all).
    """
    model, gpu = model_spec("model", model), gpu_spec("gpu", gpu)
    tp, block = count("tp", tp, limit=10**6), count("block", block, limit=10**6)
    context, batch = count("context", context, limit=10**9), count("batch", batch, limit=10**9)
    overhead, util = amount("overhead", overhead), share("util", util)
    dtype_bytes("dtype", dtype)
    card = _memory(gpu, memory)
    total, active, read = _parameters(model, num_params, num_active_params, batch)
    weights = Fraction(total * dtype_bytes("dtype", dtype), tp)
    flops = gpu.fp8_flops if dtype == "fp8" and gpu.fp8_flops else gpu.bf16_flops

    per_token, per_gpu = kv_bytes_per_token(model, kv_dtype), kv_bytes_per_token_per_gpu(model, tp, kv_dtype)
    shard = one_shard(model, tp)
    per_sequence = kv_bytes_hybrid(shard, shard.layer_windows, context, kv_dtype)
    reserved = in_blocks(shard, context, block, kv_dtype)
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
    work = prefill_flops(active, context, layers, heads, prefill_head_dim(model))

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
        prefill_flops.explain(active, context, layers, heads, prefill_head_dim(model)),
        prefill_time.explain(work, flops, tp),
    ]
    sizing = Sizing(
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
        num_read_params=read,
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
        notes=(),
    )
    return dataclasses.replace(sizing, notes=tuple(notes_of(sizing)))


def _memory(gpu: GPUSpec, memory: str) -> int:
    choice("memory", memory, ("nominal", "reported"))
    if memory == "nominal":
        return gpu.memory_bytes
    if gpu.reported_memory_bytes is None:
        raise ValueError(f"memory='reported': data/gpus.csv does not hold what the driver reports for {gpu.name}")
    return gpu.reported_memory_bytes


def _parameters(model: ModelSpec, given: Real | None, active: Real | None, batch: int) -> tuple[int, int, int]:
    """(all parameters, those active per token, those read by a step of `batch` tokens)."""
    if given is None and active is not None:
        raise ValueError(f"num_active_params={shown(active)} needs num_params too")
    if given is not None:
        total = amount("num_params", given, minimum=1)
        used = total if active is None else amount("num_active_params", active, minimum=1, limit=total)
        return total, used, min(total, used * batch)
    try:
        return params(model), active_params(model), active_params(model, batch)
    except ValueError as error:
        raise ValueError(f"{error}: num_params=80e9, or --params 80e9 on the command line") from None


def vary(s: Sizing, **changes: object) -> Sizing:
    """The same sizing with some assumptions changed."""
    same: dict[str, Any] = {
        name: getattr(s, name) for name in ("tp", "context", "batch", "kv_dtype", "dtype", "util", "overhead", "block")
    }
    same["memory"] = "nominal" if s.memory == s.gpu.memory_bytes else "reported"
    if not s.counted:
        same |= {"num_params": s.num_params, "num_active_params": s.num_active_params}
    return size(s.model, s.gpu, **(same | changes))
