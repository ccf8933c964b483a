"""Lesson 02, the cache under tensor parallelism: heads are shared out, then copied; a latent is always copied."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from mini_engine.catalog import ModelSpec, get_model
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers02_per_gpu as answers
from mini_engine.course.exercises.answers02_per_gpu import kv_per_gpu
from mini_engine.course.exercises.whole_numbers import expect_whole

PerGpu = Callable[..., Any]


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
        heads = "1 K/V head" if spec.num_key_value_heads == 1 else f"{spec.num_key_value_heads} K/V heads"
        parts = f"{heads} of size {spec.head_dim}"
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
    for heads, tp in ((3, 2), (8, 3), (8, 5), (10, 4), (9, 4), (7, 5)):
        _case(candidate, toy(1, heads, 1), tp, note=": the fullest GPU decides")


def _copied(candidate: PerGpu) -> None:
    for heads, tp in ((1, 2), (2, 4), (8, 16), (8, 64)):
        _case(candidate, toy(1, heads, 1), tp, note=": no GPU can attend without a head")


def _latent(candidate: PerGpu) -> None:
    for layers, latent, rotary, width in ((1, 5, 3, 1), (1, 5, 3, 2), (3, 32, 8, 4)):
        for tp in (1, 3):
            _case(candidate, toy_latent(layers, latent, rotary), tp, width, ": a latent has no heads to share out")
    case = "1 layer, a latent of 5 + 3 = 8 numbers; tp=2, bytes_per_number is 2 when left out"
    expect_whole(candidate(toy_latent(1, 5, 3), 2), 16, case)
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
        Mutant("all heads on each GPU", answers.on_each, SHARED, "That is what copying the whole cache would cost."),
        Mutant("query heads", answers.query_heads, ONE, "Queries are not kept."),
        Mutant("rounds down", answers.floors, UNEVEN, "8 heads on 3 GPUs: one of them holds 3."),
        Mutant("divides for ever", answers.divides_for_ever, UNEVEN, "A head is not cut in two by this kind of parallelism."),
        Mutant("nothing beyond the heads", answers.none_left, COPIED, "Each GPU needs K and V for its query heads, so it gets a copy."),
        Mutant("splits the latent", answers.splits_the_latent, LATENT, "Every head reads the whole latent, on every GPU."),
        Mutant("num_key_value_heads of MLA", answers.latent_as_heads, LATENT, "The field is in the file and says nothing about the cache."),
        Mutant("K and V of a latent", answers.latent_twice, LATENT, "One vector serves as both: there is no factor of 2."),
        Mutant("a latent of 2 bytes", answers.latent_always_2_bytes, LATENT, "A latent may be kept in fp8 or in float32 as well."),
        Mutant("a latent of 576", answers.latent_of_576, LATENT, "576 is DeepSeek's. spec.latent_dim tells for any model."),
        Mutant("a latent without its rotary part", answers.latent_without_rotary, LATENT, "The rotary key is kept too: spec.latent_dim counts both."),
        Mutant("a latent of one layer", answers.latent_of_one_layer, LATENT, "Each layer keeps a latent of its own."),
        Mutant("always 2 bytes", answers.always_2_bytes, ONE, "Right for bf16 only."),
        Mutant("of all GPUs", answers.of_all_gpus, SHARED, "Asked is what one GPU holds."),
        Mutant("rounds half up", answers.rounds_half_up, UNEVEN, "9 heads on 4 GPUs: one of them holds 3."),
        Mutant("rounds to the nearest", answers.rounds_to_nearest, UNEVEN, "10 heads on 4 GPUs: one of them holds 3."),
        Mutant("float inside", answers.through_float, REAL, "A float holds whole numbers exactly only up to 2 to the power of 53."),
        Mutant("float32 inside", answers.through_float32, REAL, "24 bits hold whole numbers exactly only up to 16,777,216."),
    ],
    alternatives=[answers.by_parts, answers.dealt, answers.with_ceil],
)  # fmt: skip
