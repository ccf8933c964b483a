"""Lesson 02, the cache under tensor parallelism: heads are shared out, then copied; a latent is always copied."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from mini_engine.catalog import ModelSpec, get_model
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises.whole_numbers import expect_whole

PerGpu = Callable[..., Any]


def kv_per_gpu(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> int:
    """Bytes that one token takes on each of `tp` GPUs."""
    if spec.is_mla:
        return spec.num_hidden_layers * spec.latent_dim * bytes_per_number
    heads = -(-spec.num_key_value_heads // tp)
    return 2 * spec.num_hidden_layers * heads * spec.head_dim * bytes_per_number


def deal_heads(spec: ModelSpec, tp: int) -> int:
    """K/V heads on the fullest of `tp` GPUs, dealt like cards; a GPU without one gets a copy: the oracle."""
    hands = [0] * tp
    for head in range(spec.num_key_value_heads):
        hands[head % tp] += 1
    return max(max(hands), 1)


def toy(layers: int, heads: int, size: int) -> ModelSpec:
    """A small model with grouped heads."""
    return ModelSpec(
        num_hidden_layers=layers,
        hidden_size=64,
        num_attention_heads=16 * heads,
        num_key_value_heads=heads,
        head_dim=size,
        intermediate_size=64,
        vocab_size=64,
        max_position_embeddings=64,
    )


def toy_latent(layers: int, latent: int, rotary: int) -> ModelSpec:
    """A small model that keeps a latent of `latent` numbers and a rotary key of `rotary`."""
    return dataclasses.replace(
        toy(layers, 2, 24),
        architecture="DeepseekV2ForCausalLM",
        kv_lora_rank=latent,
        qk_rope_head_dim=rotary,
        qk_nope_head_dim=16,
        v_head_dim=16,
    )


def _layers(spec: ModelSpec) -> str:
    return "1 layer" if spec.num_hidden_layers == 1 else f"{spec.num_hidden_layers} layers"


def _case(candidate: PerGpu, spec: ModelSpec, tp: int, width: int = 1, note: str = "") -> None:
    if spec.is_mla:
        parts = f"a latent of {spec.kv_lora_rank} + {spec.qk_rope_head_dim} = {spec.latent_dim} numbers"
        want = spec.num_hidden_layers * ((spec.kv_lora_rank or 0) + (spec.qk_rope_head_dim or 0)) * width
    else:
        parts = f"{spec.num_key_value_heads} K/V heads of {spec.head_dim}"
        want = spec.num_hidden_layers * 2 * deal_heads(spec, tp) * spec.head_dim * width
    case = f"{spec.name or 'a toy'}: {_layers(spec)}, {parts}; tp={tp}, bytes_per_number={width}{note}"
    expect_whole(candidate(spec, tp, width), want, case)


def _one_gpu(candidate: PerGpu) -> None:
    for shape in ((1, 1, 1), (3, 1, 1), (1, 4, 1), (2, 4, 5)):
        for width in (1, 2):
            _case(candidate, toy(*shape), 1, width)
    expect_whole(
        candidate(toy(1, 1, 1), 1), 4, "1 layer, 1 K/V head of size 1, tp=1; bytes_per_number is 2 when left out"
    )


def _shared(candidate: PerGpu) -> None:
    for heads, tp in ((2, 2), (8, 2), (8, 4), (8, 8)):
        _case(candidate, toy(1, heads, 1), tp)


def _uneven(candidate: PerGpu) -> None:
    for heads, tp in ((3, 2), (8, 3), (8, 5), (10, 4)):
        _case(candidate, toy(1, heads, 1), tp, note=": the fullest GPU decides")


def _copied(candidate: PerGpu) -> None:
    for heads, tp in ((1, 2), (2, 4), (8, 16), (8, 64)):
        _case(candidate, toy(1, heads, 1), tp, note=": no GPU can attend without a head")


def _latent(candidate: PerGpu) -> None:
    for layers, latent, rotary, width in ((1, 5, 3, 1), (1, 5, 3, 2), (3, 32, 8, 4)):
        for tp in (1, 3):
            _case(candidate, toy_latent(layers, latent, rotary), tp, width, ": a latent has no heads to share out")
    for name in ("deepseek-v2-lite", "deepseek-v3"):
        for tp in (1, 2, 8, 256):
            for width in (1, 2):
                _case(candidate, get_model(name), tp, width, ": a latent has no heads to share out")


def _real(candidate: PerGpu) -> None:
    for tp, want in ((1, 327_680), (2, 163_840), (4, 81_920), (8, 40_960), (16, 40_960)):
        expect_whole(candidate(get_model("llama-3-70b"), tp), want, f"Llama-3-70B, tp={tp}, 2 bytes a number")
    want = 2 * 99 * 3333 * (10**12 - 1)
    case = "99 layers, 9,999 K/V heads of 10**12 - 1, tp=3, 1 byte a number"
    expect_whole(candidate(toy(99, 9_999, 10**12 - 1), 3, 1), want, case)


ONE = "on one GPU it is the whole cache"
SHARED = "K/V heads are shared out"
UNEVEN = "the fullest GPU decides"
COPIED = "beyond the K/V heads they are copied"
LATENT = "a latent is on every GPU, whole"
REAL = "Llama-3-70B and large numbers, to the byte"


def _scaled(spec: ModelSpec, heads: Any, bytes_per_number: int) -> Any:
    if spec.is_mla:
        return spec.num_hidden_layers * spec.latent_dim * bytes_per_number
    return 2 * spec.num_hidden_layers * heads * spec.head_dim * bytes_per_number


def _floors(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return _scaled(spec, max(1, spec.num_key_value_heads // tp), bytes_per_number)


def _divides_for_ever(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return math.ceil(_scaled(spec, Fraction(spec.num_key_value_heads, tp), bytes_per_number))


def _none_left(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return _scaled(spec, -(-spec.num_key_value_heads // tp) if tp <= spec.num_key_value_heads else 0, bytes_per_number)


def _on_each(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return _scaled(spec, spec.num_key_value_heads, bytes_per_number)


def _splits_the_latent(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    whole = kv_per_gpu(spec, tp, bytes_per_number)
    return -(-whole // tp) if spec.is_mla else whole


def _latent_as_heads(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return 2 * spec.num_hidden_layers * -(-spec.num_key_value_heads // tp) * spec.head_dim * bytes_per_number


def _latent_twice(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return (2 if spec.is_mla else 1) * kv_per_gpu(spec, tp, bytes_per_number)


def _query_heads(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return _scaled(spec, -(-spec.num_attention_heads // tp), bytes_per_number)


def _through_float32(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    import numpy as np

    return int(np.float32(kv_per_gpu(spec, tp, bytes_per_number)))


def _through_float(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return int(2.0 * kv_per_gpu(spec, tp, bytes_per_number) / 2)


def _latent_always_2_bytes(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return spec.num_hidden_layers * spec.latent_dim * 2 if spec.is_mla else kv_per_gpu(spec, tp, bytes_per_number)


def _latent_of_576(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return spec.num_hidden_layers * 576 * bytes_per_number if spec.is_mla else kv_per_gpu(spec, tp, bytes_per_number)


def _latent_without_rotary(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    if spec.is_mla:
        return spec.num_hidden_layers * (spec.kv_lora_rank or 0) * bytes_per_number
    return kv_per_gpu(spec, tp, bytes_per_number)


def _latent_of_one_layer(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return spec.latent_dim * bytes_per_number if spec.is_mla else kv_per_gpu(spec, tp, bytes_per_number)


def _always_2_bytes(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return kv_per_gpu(spec, tp, 2)


def _of_all_gpus(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return tp * kv_per_gpu(spec, tp, bytes_per_number)


def _rounds_to_nearest(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return _scaled(spec, max(1, round(spec.num_key_value_heads / tp)), bytes_per_number)


def _dealt(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    if spec.is_mla:
        return spec.num_hidden_layers * spec.latent_dim * bytes_per_number
    gpus = [0] * tp
    for head in range(spec.num_key_value_heads):
        gpus[head % tp] += 1
    return 2 * spec.num_hidden_layers * max(gpus) * spec.head_dim * bytes_per_number


def _with_ceil(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    numbers = spec.latent_dim if spec.is_mla else 2 * max(1, math.ceil(spec.num_key_value_heads / tp)) * spec.head_dim
    return numbers * spec.num_hidden_layers * bytes_per_number


def _by_parts(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    if spec.kv_lora_rank is not None:
        numbers = spec.kv_lora_rank + (spec.qk_rope_head_dim or 0)
    else:
        heads = max(1, (spec.num_key_value_heads + tp - 1) // tp)
        numbers = heads * spec.head_dim + heads * spec.head_dim
    return sum(numbers for _ in range(spec.num_hidden_layers)) * bytes_per_number


KV_PER_GPU = Exercise(
    id="02.kv_per_gpu",
    title="The share of one GPU",
    reference=kv_per_gpu,
    properties=[
        Property(ONE, _one_gpu),
        Property(SHARED, _shared),
        Property(UNEVEN, _uneven),
        Property(COPIED, _copied),
        Property(LATENT, _latent),
        Property(REAL, _real),
    ],
    mutants=[
        Mutant("all heads on each GPU", _on_each, SHARED, "That is what copying the whole cache would cost."),
        Mutant("query heads", _query_heads, ONE, "Queries are not kept."),
        Mutant("rounds down", _floors, UNEVEN, "8 heads on 3 GPUs: one of them holds 3."),
        Mutant("divides for ever", _divides_for_ever, UNEVEN, "A head is not cut in two by this kind of parallelism."),
        Mutant("nothing beyond the heads", _none_left, COPIED, "Each GPU needs K and V for its query heads, so it gets a copy."),
        Mutant("splits the latent", _splits_the_latent, LATENT, "Every head reads the whole latent, on every GPU."),
        Mutant("num_key_value_heads of MLA", _latent_as_heads, LATENT, "The field is in the file and says nothing about the cache."),
        Mutant("K and V of a latent", _latent_twice, LATENT, "One vector serves as both: there is no factor of 2."),
        Mutant("a latent of 2 bytes", _latent_always_2_bytes, LATENT, "A latent may be kept in fp8 or in float32 as well."),
        Mutant("a latent of 576", _latent_of_576, LATENT, "576 is DeepSeek's. spec.latent_dim tells for any model."),
        Mutant("a latent without its rotary part", _latent_without_rotary, LATENT, "The rotary key is kept too: spec.latent_dim counts both."),
        Mutant("a latent of one layer", _latent_of_one_layer, LATENT, "Each layer keeps a latent of its own."),
        Mutant("always 2 bytes", _always_2_bytes, ONE, "Right for bf16 only."),
        Mutant("of all GPUs", _of_all_gpus, SHARED, "Asked is what one GPU holds."),
        Mutant("rounds to the nearest", _rounds_to_nearest, UNEVEN, "10 heads on 4 GPUs: one of them holds 3."),
        Mutant("float inside", _through_float, REAL, "A float holds whole numbers exactly only up to 2 to the power of 53."),
        Mutant("float32 inside", _through_float32, REAL, "24 bits hold whole numbers exactly only up to 16,777,216."),
    ],
    alternatives=[_by_parts, _dealt, _with_ceil],
)  # fmt: skip
