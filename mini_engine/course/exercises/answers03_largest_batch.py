"""Answers to lesson 03's largest batch: right ones, written another way, and the wrong ones that people write."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from mini_engine.course.gpu_share import GPUShare


def largest_batch(gpu: GPUShare, S: int, seconds: float) -> int:
    """The largest batch of sequences of S >= 1 tokens whose cache fits and whose step takes at most `seconds`."""
    limit, per_sequence = Fraction(seconds), gpu.kv_bytes_per_token * S
    fits = gpu.kv_budget // per_sequence
    quick_to_read = (limit * gpu.bandwidth - gpu.weight_bytes) // per_sequence
    quick_to_compute = limit * gpu.peak // (gpu.flops_per_token + gpu.flops_per_score * S)
    return max(0, int(min(fits, quick_to_read, quick_to_compute)))


def by_trying(gpu: GPUShare, S: int, seconds: float) -> int:
    """The same by going up one sequence at a time, from the definition: the oracle."""
    B = 0
    while True:
        cache = gpu.kv_bytes_per_token * S * (B + 1)
        computing = Fraction((gpu.flops_per_token + gpu.flops_per_score * S) * (B + 1), gpu.peak)
        reading = Fraction(gpu.weight_bytes + cache, gpu.bandwidth)
        if cache > gpu.kv_budget or max(reading, computing) > seconds:
            return B
        B += 1


def changed(gpu: GPUShare, **changes: Any) -> GPUShare:
    return GPUShare(**{**vars(gpu), **changes})


def allowed(gpu: GPUShare, S: int, seconds: float, B: int) -> bool:
    cache = gpu.kv_bytes_per_token * S * B
    computing = (gpu.flops_per_token + gpu.flops_per_score * S) * B / gpu.peak
    return cache <= gpu.kv_budget and max((gpu.weight_bytes + cache) / gpu.bandwidth, computing) <= seconds


def doubling(gpu: GPUShare, S: int, seconds: float) -> int:
    low, high = 0, 1
    while allowed(gpu, S, seconds, high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if allowed(gpu, S, seconds, middle) else (low, middle)
    return low


def keeps_the_best(gpu: GPUShare, S: int, seconds: float) -> int:
    best = 0
    for B in range(1, gpu.kv_budget // (gpu.kv_bytes_per_token * S) + 1):
        cache = gpu.kv_bytes_per_token * S * B
        computing = (gpu.flops_per_token + gpu.flops_per_score * S) * B / gpu.peak
        if max((gpu.weight_bytes + cache) / gpu.bandwidth, computing) <= seconds:
            best = B
    return best


def counts_down(gpu: GPUShare, S: int, seconds: float) -> int:
    B = gpu.kv_budget // (gpu.kv_bytes_per_token * S)
    while B > 0 and not allowed(gpu, S, seconds, B):
        B -= 1
    return B


def largest_of_all(gpu: GPUShare, S: int, seconds: float) -> int:
    return max([B for B in range(1, 2000) if allowed(gpu, S, seconds, B)], default=0)


def up_to_ten_thousand(gpu: GPUShare, S: int, seconds: float) -> int:
    best = 0
    for B in range(1, 10_000):
        if allowed(gpu, S, seconds, B):
            best = B
    return best


def negative(gpu: GPUShare, S: int, seconds: float) -> int:
    per_sequence = gpu.kv_bytes_per_token * S
    computing = seconds * gpu.peak / (gpu.flops_per_token + gpu.flops_per_score * S)
    return min(
        gpu.kv_budget // per_sequence,
        int((seconds * gpu.bandwidth - gpu.weight_bytes) / per_sequence),
        int(computing),
    )


def no_kv_reads(gpu: GPUShare, S: int, seconds: float) -> int:
    if gpu.weight_bytes / gpu.bandwidth > seconds:
        return 0
    computing = seconds * gpu.peak // (gpu.flops_per_token + gpu.flops_per_score * S)
    return int(min(gpu.kv_budget // (gpu.kv_bytes_per_token * S), computing))


def adds_clocks(gpu: GPUShare, S: int, seconds: float) -> int:
    B = 0
    while True:
        cache = gpu.kv_bytes_per_token * S * (B + 1)
        computing = Fraction((gpu.flops_per_token + gpu.flops_per_score * S) * (B + 1), gpu.peak)
        if cache > gpu.kv_budget or Fraction(gpu.weight_bytes + cache, gpu.bandwidth) + computing > seconds:
            return B
        B += 1


def at_least_one(gpu: GPUShare, S: int, seconds: float) -> int:
    return max(1, largest_batch(gpu, S, seconds))


def strictly_below(gpu: GPUShare, S: int, seconds: float) -> int:
    B = largest_batch(gpu, S, seconds)
    cache, computing = gpu.kv_bytes_per_token * S * B, (gpu.flops_per_token + gpu.flops_per_score * S) * B
    at_limit = max((gpu.weight_bytes + cache) / gpu.bandwidth, computing / gpu.peak) == seconds
    return B - 1 if B and (at_limit or cache == gpu.kv_budget) else B
