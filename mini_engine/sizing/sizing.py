"""One deployment, sized: a model on a GPU. The command, the panels and the lessons all call `size`."""

from __future__ import annotations

import dataclasses
import re
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
from mini_engine.geometry.shards import in_blocks, one_shard
from mini_engine.geometry.weight_reads import idle_params, lookup_params, reads
from mini_engine.roofline import batch_for_ridge, prefill_time, ridge_point, throughput_ceiling, tokens_per_s
from mini_engine.sizing.notes import cache_notes, notes_of
from mini_engine.sizing.result import CacheSizing, Sizing
from mini_engine.sizing.step import attention_flops, decode_step, kinds_of_layer, prefill_work
from mini_engine.units import GB, dtype_bytes


def size_cache(
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
) -> CacheSizing:
    """The K/V of `model` on `tp` GPUs, for which its weights need not be known. ValueError names the wrong argument."""
    model, gpu = model_spec("model", model), gpu_spec("gpu", gpu)
    tp, block = count("tp", tp, limit=10**6), count("block", block, limit=10**6)
    context, batch = count("context", context, limit=10**9), count("batch", batch, limit=10**9)
    dtype_bytes("dtype", dtype)
    shard = one_shard(model, tp)
    full = dataclasses.replace(shard, layer_windows=(None,) * model.num_attention_layers)
    windowed = [kv_bytes_hybrid.explain(shard, shard.layer_windows, context, kv_dtype)]
    sizing = CacheSizing(
        model=model,
        gpu=gpu,
        tp=tp,
        context=context,
        batch=batch,
        kv_dtype=kv_dtype,
        dtype=dtype,
        util=share("util", util),
        overhead=amount("overhead", overhead),
        block=block,
        memory=_memory(gpu, memory),
        kv_per_token=kv_bytes_per_token(model, kv_dtype),
        kv_per_token_per_gpu=kv_bytes_per_token_per_gpu(model, tp, kv_dtype),
        kv_total=kv_total_bytes(model, context, batch, kv_dtype),
        kv_per_sequence_per_gpu=kv_bytes_hybrid(shard, shard.layer_windows, context, kv_dtype),
        reserved_per_sequence_per_gpu=in_blocks(shard, context, block, kv_dtype),
        full_per_sequence_per_gpu=in_blocks(full, context, block, kv_dtype),
        working=(
            kv_total_bytes.explain(model, context, batch, kv_dtype),
            kv_bytes_per_token_per_gpu.explain(model, tp, kv_dtype),
        ),
        notes=(),
    )
    working = (*sizing.working, *(windowed if sizing.num_windowed_layers else []))
    return dataclasses.replace(sizing, working=working, notes=tuple(cache_notes(sizing)))


def size(
    model: ModelSpec,
    gpu: GPUSpec,
    *,
    num_params: Real | None = None,
    num_active_params: Real | None = None,
    **deployment: Any,
) -> Sizing:
    """Size `model` on some GPUs. ValueError names the argument that is not valid.

    `deployment`: the arguments of `size_cache`. tp, context, batch; kv_dtype, dtype (of the weights); util, the share of
    the card to use; overhead, bytes of activations and runtime per GPU; block, tokens per cache block; memory: "nominal",
    the size on the box, or "reported", what the driver shows.

    num_params: for models whose weights cannot be counted from their configuration, with num_active_params, what one
    token uses of them, for a mixture of experts (default: all but the experts that it does not use).
    """
    cache = size_cache(model, gpu, **deployment)
    tp, context, batch, kv_dtype, dtype = cache.tp, cache.context, cache.batch, cache.kv_dtype, cache.dtype
    total, active = _parameters(model, num_params, num_active_params)
    read = reads(model, total, active, batch)
    per_element = dtype_bytes("dtype", dtype)
    weights = Fraction(total * per_element, tp)
    flops = gpu.fp8_flops if dtype == "fp8" and gpu.fp8_flops else gpu.bf16_flops
    budget = kv_budget(cache.memory, weights, cache.overhead, cache.util)
    per_gpu, per_sequence = cache.kv_per_token_per_gpu, cache.kv_per_sequence_per_gpu

    computed = max(1, active - lookup_params(model))
    kinds = kinds_of_layer(model, one_shard(model, tp), context)
    steps = [
        decode_step(
            model,
            kinds,
            gpu,
            batch=batch,
            tp=tp,
            read_bytes=Fraction(number * per_element, tp),
            computed=computed,
            kv_dtype=kv_dtype,
            flops=flops,
        )
        for number in (read.least, read.expected)
    ]
    (step, step_working), (expected_step, _) = steps
    ridge = ridge_point(flops, gpu.memory_bandwidth)
    flops_per_sequence = Fraction(2 * computed + attention_flops(model, kinds), tp)
    read_bytes = Fraction(read.least * per_element, tp)
    work, prefill_working = prefill_work(model, context, computed)
    concurrency = max_concurrency(budget, per_gpu, context, cache.block)
    known = {field.name: getattr(cache, field.name) for field in dataclasses.fields(cache)}
    known["working"] = (
        *cache.working,
        *([weight_bytes.explain(model, dtype, tp)] if num_params is None else []),
        kv_budget.explain(cache.memory, weights, cache.overhead, cache.util),
        max_concurrency.explain(budget, per_gpu, context, cache.block),
        max_context.explain(budget, per_gpu, batch),
        step_working,
        tokens_per_s.explain(batch, step.total),
        prefill_working,
        prefill_time.explain(work, flops, tp),
    )
    sizing = Sizing(
        **known,
        num_params=total,
        num_active_params=active,
        reads=read,
        counted=num_params is None,
        active_deduced=num_params is not None and num_active_params is None and model.num_experts > 0,
        flops=flops,
        weights_per_gpu=weights,
        budget=budget,
        concurrency=concurrency,
        concurrency_windowed=budget // cache.reserved_per_sequence_per_gpu
        if cache.num_windowed_layers
        else concurrency,
        max_context=max_context(budget, per_gpu, batch),
        step=step,
        expected_step=expected_step,
        tokens_per_s=tokens_per_s(batch, step.total),
        throughput_ceiling=throughput_ceiling(gpu.memory_bandwidth, Fraction(per_sequence, context), context),
        batch_for_ridge=batch_for_ridge(
            read_bytes, Fraction(per_sequence, context), context, flops_per_sequence, ridge
        ),
        ridge=ridge,
        prefill=prefill_time(work, flops, tp),
    )
    return dataclasses.replace(sizing, notes=tuple(notes_of(sizing)))


def _memory(gpu: GPUSpec, memory: str) -> int:
    choice("memory", memory, ("nominal", "reported"))
    if memory == "nominal":
        return gpu.memory_bytes
    if gpu.reported_memory_bytes is None:
        raise ValueError(f"memory='reported': data/gpus.csv does not hold what the driver reports for {gpu.name}")
    return gpu.reported_memory_bytes


def uncounted(model: ModelSpec) -> str:
    """Why the parameters of `model` cannot be counted from its configuration; "" when they can."""
    try:
        params(model)
    except ValueError as error:
        return str(error).removeprefix("layers_without_kv: ").partition(";")[0]
    return ""


def parameters(name: str, value: Any) -> int:
    """A number of parameters, such as 80e9. ValueError names the argument `name`, and how to write what people mean."""
    try:
        return amount(name, value, minimum=1)
    except ValueError:
        letter = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmbt])\s*", value.lower()) if isinstance(value, str) else None
        if letter is None:
            raise
        power = {"k": 3, "m": 6, "b": 9, "t": 12}[letter[2]]
        raise ValueError(f"{name}={shown(value)} has a unit: write {letter[1]}e{power}") from None


def _parameters(model: ModelSpec, given: Real | None, active: Real | None) -> tuple[int, int]:
    """(all parameters, those active per token)."""
    if given is None and active is not None:
        raise ValueError(f"num_active_params={shown(active)} needs num_params too")
    if given is not None:
        total = parameters("num_params", given)
        if active is None:
            return total, max(1, total - idle_params(model))
        used = parameters("num_active_params", active)
        if used > total:
            raise ValueError(f"num_active_params={shown(active)} is more than num_params={shown(given)}")
        return total, used
    reason = uncounted(model)
    if reason:
        raise ValueError(f"{reason}: give the number of parameters, such as num_params=80e9")
    return params(model), active_params(model)


def vary(s: Sizing, **changes: object) -> Sizing:
    """The same sizing with some assumptions changed."""
    same: dict[str, Any] = {
        name: getattr(s, name) for name in ("tp", "context", "batch", "kv_dtype", "dtype", "util", "overhead", "block")
    }
    same["memory"] = "nominal" if s.memory == s.gpu.memory_bytes else "reported"
    if not s.counted:
        same |= {"num_params": s.num_params, "num_active_params": s.num_active_params}
    return size(s.model, s.gpu, **(same | changes))
