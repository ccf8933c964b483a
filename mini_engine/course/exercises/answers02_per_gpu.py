"""Answers to lesson 02's share of one GPU: right ones, written in several ways, and the wrong ones that people write."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from mini_engine.catalog import ModelSpec


def kv_per_gpu(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> int:
    """Bytes that one token takes on each of `tp` GPUs."""
    if spec.is_mla:
        return spec.num_hidden_layers * spec.latent_dim * bytes_per_number
    heads = -(-spec.num_key_value_heads // tp)
    return 2 * spec.num_hidden_layers * heads * spec.head_dim * bytes_per_number


def scaled(spec: ModelSpec, heads: Any, bytes_per_number: int) -> Any:
    if spec.is_mla:
        return spec.num_hidden_layers * spec.latent_dim * bytes_per_number
    return 2 * spec.num_hidden_layers * heads * spec.head_dim * bytes_per_number


def floors(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return scaled(spec, max(1, spec.num_key_value_heads // tp), bytes_per_number)


def divides_for_ever(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return math.ceil(scaled(spec, Fraction(spec.num_key_value_heads, tp), bytes_per_number))


def none_left(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return scaled(spec, -(-spec.num_key_value_heads // tp) if tp <= spec.num_key_value_heads else 0, bytes_per_number)


def on_each(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return scaled(spec, spec.num_key_value_heads, bytes_per_number)


def splits_the_latent(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    whole = kv_per_gpu(spec, tp, bytes_per_number)
    return -(-whole // tp) if spec.is_mla else whole


def latent_as_heads(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return 2 * spec.num_hidden_layers * -(-spec.num_key_value_heads // tp) * spec.head_dim * bytes_per_number


def latent_twice(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return (2 if spec.is_mla else 1) * kv_per_gpu(spec, tp, bytes_per_number)


def query_heads(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return scaled(spec, -(-spec.num_attention_heads // tp), bytes_per_number)


def through_float32(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return int(np.float32(kv_per_gpu(spec, tp, bytes_per_number)))


def through_float(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return int(2.0 * kv_per_gpu(spec, tp, bytes_per_number) / 2)


def latent_always_2_bytes(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return spec.num_hidden_layers * spec.latent_dim * 2 if spec.is_mla else kv_per_gpu(spec, tp, bytes_per_number)


def latent_of_576(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return spec.num_hidden_layers * 576 * bytes_per_number if spec.is_mla else kv_per_gpu(spec, tp, bytes_per_number)


def latent_without_rotary(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    if spec.is_mla:
        return spec.num_hidden_layers * (spec.kv_lora_rank or 0) * bytes_per_number
    return kv_per_gpu(spec, tp, bytes_per_number)


def latent_of_one_layer(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return spec.latent_dim * bytes_per_number if spec.is_mla else kv_per_gpu(spec, tp, bytes_per_number)


def always_2_bytes(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return kv_per_gpu(spec, tp, 2)


def of_all_gpus(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return tp * kv_per_gpu(spec, tp, bytes_per_number)


def rounds_half_up(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return scaled(spec, max(1, int(spec.num_key_value_heads / tp + 0.5)), bytes_per_number)


def rounds_to_nearest(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    return scaled(spec, max(1, round(spec.num_key_value_heads / tp)), bytes_per_number)


def dealt(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    if spec.is_mla:
        return spec.num_hidden_layers * spec.latent_dim * bytes_per_number
    gpus = [0] * tp
    for head in range(spec.num_key_value_heads):
        gpus[head % tp] += 1
    return 2 * spec.num_hidden_layers * max(gpus) * spec.head_dim * bytes_per_number


def with_ceil(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    numbers = spec.latent_dim if spec.is_mla else 2 * max(1, math.ceil(spec.num_key_value_heads / tp)) * spec.head_dim
    return numbers * spec.num_hidden_layers * bytes_per_number


def by_parts(spec: ModelSpec, tp: int, bytes_per_number: int = 2) -> Any:
    if spec.kv_lora_rank is not None:
        numbers = spec.kv_lora_rank + (spec.qk_rope_head_dim or 0)
    else:
        heads = max(1, (spec.num_key_value_heads + tp - 1) // tp)
        numbers = heads * spec.head_dim + heads * spec.head_dim
    return sum(numbers for _ in range(spec.num_hidden_layers)) * bytes_per_number
