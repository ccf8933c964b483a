"""Answers about time: what a decode step waits for, and what fewer bytes or fewer parameters change."""

from __future__ import annotations

from fractions import Fraction

from mini_engine.catalog import get_model
from mini_engine.geometry import active_params, kv_bytes_per_token, kv_bytes_quant, kv_elems_per_token, params
from mini_engine.geometry.weight_reads import reads
from mini_engine.sizing.result import Sizing, sequences
from mini_engine.sizing.sizing import vary
from mini_engine.units import format_bytes, format_seconds, significant


def idle(s: Sizing) -> str:
    """Why is the GPU mostly idle while decoding?"""
    reading, computing = s.step.weights + s.step.kv, s.step.compute
    bytes_read, work = reading * s.gpu.memory_bandwidth, computing * s.flops
    figures = (
        f"A step of {sequences(s.batch)} reads {'at least ' if s.model.num_experts else ''}{format_bytes(round(bytes_read))} on each GPU and does "
        f"{significant(work)} FLOP with them: {significant(work / bytes_read)} FLOP per byte, where this GPU could do "
        f"{significant(s.ridge)} in the time a byte takes. Reading takes {format_seconds(reading)}, computing "
        f"{format_seconds(computing)}"
    )
    if s.step.bound == "compute":
        return f"Here it is not: this step is bound by its arithmetic. {figures}, so the memory waits instead."
    return f"{figures}, so the arithmetic units are busy {float(computing / s.step.total):.1%} of the step at best."


def quantization(s: Sizing) -> str:
    """Why does quantization make decoding faster?"""
    here, fp8 = vary(s, dtype="bf16"), vary(s, dtype="fp8")
    faster = significant(here.step.total / fp8.step.total, 3)
    if here.step.bound == "compute":
        reason = (
            f"Because a decode step usually waits for bytes. Here it waits for arithmetic, {format_seconds(here.step.compute)} "
            f"in bf16, and gains only what the GPU computes faster in 8 bits: {format_seconds(fp8.step.total)} a step, "
            f"{faster} times as fast."
        )
    else:
        reason = (
            f"Because a decode step waits for bytes. With bf16 weights a step of {sequences(s.batch)} takes at least "
            f"{format_seconds(here.step.total)} ({format_seconds(here.step.weights)} of it reading weights, "
            f"{format_seconds(here.step.kv)} K/V); with 8-bit weights {format_seconds(fp8.step.total)}, {faster} times as fast."
        )
    if not fp8.weights_fit:
        return f"{reason} Even so {fp8.obstacle}: {format_bytes(fp8.weights_per_gpu)} of weights per GPU."
    before = format_bytes(here.budget) if here.weights_fit else "nothing, as bf16 weights do not even fit"
    return f"{reason} It also leaves {format_bytes(fp8.budget)} per GPU for K/V instead of {before}."


def experts(s: Sizing) -> str:
    """Why do mixtures of experts suit decoding?"""
    m = s.model
    if not m.num_experts:
        read = f"{s.reads.least:,} of its {s.num_params:,} parameters, all but the input embedding table"
        if s.reads.least == s.num_params:
            read = f"all its {s.num_params:,} parameters"
        return f"{m.name or 'This model'} is dense: every step reads {read}. {_a_mixture()}"
    because = "Because a decode step waits for weights, and a token needs only those of the experts it is routed to."
    kv = f"The KV cache does not depend on the experts at all: {kv_bytes_per_token(m, s.kv_dtype):,} B per token."
    share = significant(Fraction(s.num_active_params, s.num_params), 3)
    step = f"A step of 1 sequence reads {s.reads.least:,}, as the embedding table is only looked up."
    if s.batch > 1:
        step = (
            f"Tokens of one step may need different experts: a step of {s.batch:,} sequences reads {s.reads.least:,} to "
            f"{s.reads.most:,}, and {s.reads.expected:,} on average if every expert is equally likely."
        )
    return (
        f"{because} {m.name} uses {s.num_active_params:,} of {s.num_params:,} parameters for a token, {share} of all. "
        f"{step} {kv}"
    )


def _a_mixture() -> str:
    m = get_model("mixtral-8x7b")
    few, of = active_params(m), params(m)
    many = reads(m, of, few, 4)
    return (
        f"{m.name}, a mixture, has {of:,} parameters and uses {few:,} of them for a token, "
        f"{significant(Fraction(few, of), 3)} of all, so one sequence waits for that much less. Tokens of one step may "
        f"need different experts: 4 of them read {many.expected:,} on average, if every expert is equally likely."
    )


def accuracy(s: Sizing) -> str:
    """Does quantizing the KV cache cost accuracy?"""
    int8, int4 = kv_bytes_quant(s.model, 8, 128, 2), kv_bytes_quant(s.model, 4, 32, 2)
    elems = kv_elems_per_token(s.model)
    step8, step4 = Fraction(1, 2 * 127), Fraction(1, 2 * 7)
    where = (
        "Its rotary part reacts most to rounding, so engines tend to keep that in 16 bits."
        if s.model.is_mla
        else "Keys have a few channels of large values, so one scale for each channel of K matters."
    )
    return (
        "It rounds, so yes, by an amount that only a test on your task can tell. Symmetric codes are off by at most "
        f"half a step: with 8 bits {step8} of the group's largest value ({float(step8):.2%}), with 4 bits {step4} "
        f"({float(step4):.1%}). That buys {significant(int8, 9)} B per token, {significant(int8 * 8 / elems, 5)} bits "
        f"per element with a 16-bit scale for every 128, or {significant(int4, 9)} B, {significant(int4 * 8 / elems, 5)} "
        f"bits with a scale for every 32; in bf16 it is {kv_bytes_per_token(s.model):,} B. {where}"
    )
