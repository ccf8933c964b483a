"""Lesson 03, batching with K/V: the largest batch whose step is quick enough and whose cache fits."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from mini_engine.course.exercise import Exercise, Mutant, Prediction, Property
from mini_engine.course.expect import expect_equal
from mini_engine.course.gpu_share import GPUShare, half_70b
from mini_engine.roofline import batch_for_ridge, ridge_point, throughput_ceiling

Largest = Callable[[GPUShare, int, float], int]


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


def toy(budget: int, peak: int, weights: int = 64, per_score: int = 1) -> GPUShare:
    """Round numbers: 4 bytes of K/V a token, 32 FLOPs a token, 16 bytes/s."""
    return GPUShare("a toy GPU", weights, 4, 32, per_score, budget, peak, 16)


# share, tokens per sequence, seconds. Every clock comes out exact in binary.
SLOW_READS = [(toy(10**6, 10**6), 4, 10.5), (toy(10**6, 10**6, weights=16), 4, 2.5), (toy(10**6, 10**6), 64, 64.0)]
SMALL_BUDGET = [(toy(70, 10**6), 4, 1000.0), (toy(95, 10**6), 4, 1000.0), (toy(804, 10**6), 2, 1000.0)]
SLOW_COMPUTE = [(toy(10**6, 16), 4, 16.5), (toy(10**6, 16, per_score=4), 8, 65.0)]
NOTHING = [(toy(15, 10**6), 4, 100.0), (toy(10**6, 10**6), 4, 4.0), (toy(10**6, 1), 4, 30.0), (toy(0, 10**6), 1, 9.0)]
EXACT = [(toy(160, 10**6), 4, 100.0), (toy(10**6, 10**6), 4, 6.0), (toy(10**6, 16), 4, 9.0)]
PUBLISHED = [(half_70b(), 1024, 0.0272), (half_70b(), 8192, 0.0277), (half_70b(), 100, 0.030)]


def _agrees(cases: list[tuple[GPUShare, int, float]]) -> Callable[[Largest], None]:
    def run(candidate: Largest) -> None:
        for gpu, S, seconds in cases:
            words = (
                f"S={S}, at most {seconds:g} s; weights {gpu.weight_bytes:,} B, K/V {gpu.kv_bytes_per_token:,} B a token, "
                f"budget {gpu.kv_budget:,} B,\n{gpu.flops_per_token:,} FLOPs a token, {gpu.flops_per_score:,} a score, "
                f"peak {gpu.peak:.4g} FLOP/s, bandwidth {gpu.bandwidth:.4g} B/s"
            )
            expect_equal(candidate(gpu, S, seconds), by_trying(gpu, S, seconds), words)

    return run


def _changed(gpu: GPUShare, **changes: Any) -> GPUShare:
    return GPUShare(**{**vars(gpu), **changes})


def _doubling(gpu: GPUShare, S: int, seconds: float) -> int:
    def allowed(B: int) -> bool:
        cache = gpu.kv_bytes_per_token * S * B
        computing = (gpu.flops_per_token + gpu.flops_per_score * S) * B / gpu.peak
        return cache <= gpu.kv_budget and max((gpu.weight_bytes + cache) / gpu.bandwidth, computing) <= seconds

    low, high = 0, 1
    while allowed(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low


def _no_kv_reads(gpu: GPUShare, S: int, seconds: float) -> int:
    if gpu.weight_bytes / gpu.bandwidth > seconds:
        return 0
    computing = seconds * gpu.peak // (gpu.flops_per_token + gpu.flops_per_score * S)
    return int(min(gpu.kv_budget // (gpu.kv_bytes_per_token * S), computing))


def _adds_clocks(gpu: GPUShare, S: int, seconds: float) -> int:
    B = 0
    while True:
        cache = gpu.kv_bytes_per_token * S * (B + 1)
        computing = Fraction((gpu.flops_per_token + gpu.flops_per_score * S) * (B + 1), gpu.peak)
        if cache > gpu.kv_budget or Fraction(gpu.weight_bytes + cache, gpu.bandwidth) + computing > seconds:
            return B
        B += 1


def _at_least_one(gpu: GPUShare, S: int, seconds: float) -> int:
    return max(1, largest_batch(gpu, S, seconds))


def _strictly_below(gpu: GPUShare, S: int, seconds: float) -> int:
    B = largest_batch(gpu, S, seconds)
    cache, computing = gpu.kv_bytes_per_token * S * B, (gpu.flops_per_token + gpu.flops_per_score * S) * B
    at_limit = max((gpu.weight_bytes + cache) / gpu.bandwidth, computing / gpu.peak) == seconds
    return B - 1 if B and (at_limit or cache == gpu.kv_budget) else B


READS, FITS, COMPUTES = (
    "a batch whose reads take too long is refused",
    "a batch that does not fit is refused",
    "a batch that computes too long is refused",
)
NONE, LIMITS, REAL = (
    "0 when not even one will do",
    "the limits themselves are allowed",
    "half of a 70B model on an H100",
)

LARGEST_BATCH = Exercise(
    id="03.largest_batch",
    title="The largest batch within a time and a budget",
    reference=largest_batch,
    properties=[
        Property(READS, _agrees(SLOW_READS)),
        Property(FITS, _agrees(SMALL_BUDGET)),
        Property(COMPUTES, _agrees(SLOW_COMPUTE)),
        Property(NONE, _agrees(NOTHING)),
        Property(LIMITS, _agrees(EXACT)),
        Property(REAL, _agrees(PUBLISHED)),
    ],
    mutants=[
        Mutant("weights only", _no_kv_reads, READS, "Every sequence's K/V is read in every step."),
        Mutant("K/V only", lambda g, S, t: largest_batch(_changed(g, weight_bytes=0), S, t), READS, "The weights are read too."),
        Mutant("no budget", lambda g, S, t: largest_batch(_changed(g, kv_budget=10**15), S, t), FITS, "The cache of the whole batch has to fit."),
        Mutant("budget in tokens", lambda g, S, t: min(largest_batch(_changed(g, kv_budget=10**15), S, t), g.kv_budget // g.kv_bytes_per_token), FITS, "Each sequence holds S tokens."),
        Mutant("no computing", lambda g, S, t: largest_batch(_changed(g, peak=10**15), S, t), COMPUTES, "From some batch on computing takes longer than reading."),
        Mutant("no scores", lambda g, S, t: largest_batch(_changed(g, flops_per_score=0), S, t), COMPUTES, "Attention computes with every cached token."),
        Mutant("clocks added", _adds_clocks, COMPUTES, "Reading and computing overlap."),
        Mutant("at least one", _at_least_one, NONE, "Sometimes nothing fits, or nothing is quick enough."),
        Mutant("strictly below", _strictly_below, LIMITS, "At most means that the limit itself is allowed."),
        Mutant("one too many", lambda g, S, t: largest_batch(g, S, t) + 1, READS, "That one takes too long, or does not fit."),
        Mutant("gives up at 256", lambda g, S, t: min(256, largest_batch(g, S, t)), REAL, "256 is a habit, not a limit: short contexts allow more."),
    ],
    alternatives=[by_trying, _doubling],
)  # fmt: skip

_HALF = half_70b()


def _batch(S: int, gpu: GPUShare = _HALF) -> int | None:
    per_sequence = gpu.flops_per_token + gpu.flops_per_score * S
    ridge = ridge_point(gpu.peak, gpu.bandwidth)
    return batch_for_ridge(gpu.weight_bytes, gpu.kv_bytes_per_token, S, per_sequence, ridge)


COMPUTE_BATCH = Prediction(
    "03.compute_batch",
    "The 70B model on two H100s, 1,024 tokens each: from which batch on is a whole decode step compute bound?",
    _batch(1024) or 0,
    "sequences",
    mistakes=[
        (295, "That leaves out the K/V. Each sequence brings FLOPs, and bytes of its own that have to be read."),
        (296, "That leaves out the K/V. Each sequence brings FLOPs, and bytes of its own that have to be read."),
        (319, "That is the threshold of one product without K/V. Here each sequence brings bytes of its own."),
        (418, "That is where the K/V has as many bytes as the weights. Computing catches up later."),
        (947, "Close. The quotient is 947.45, and sequences are whole."),
    ],
    because="Each sequence brings 71.3e9 FLOPs, and its K/V needs 49.5e9 of them at the ridge: 947.45, so 948.",
    rtol=0,
)

_H200 = half_70b("h200-sxm")

CEILING = Prediction(
    "03.ceiling",
    "Two H200s, the 70B model, 8,192 tokens each, as many sequences as you like: how many tokens a second at most?",
    float(throughput_ceiling(_H200.bandwidth, _H200.kv_bytes_per_token, 8192)),
    "tokens/s",
    mistakes=[
        (4.8e12 / 70e9, "That is one sequence with an empty cache. More sequences share the weights."),
        (
            2 * 4.8e12 / (163840 * 8192),
            "Both GPUs read at once, each its own half of the same K/V. Count one half once.",
        ),
        (4.8e12 / (327680 * 8192), "Each GPU holds half of the KV heads: 163,840 B a token, not 327,680 B."),
        (989e12 / 70e9, "That is the limit of computing. Reading K/V is the lower one."),
        (4.8e12 / 163840, "That is for one cached token each. Every new token reads all 8,192."),
        (3.35e12 / (163840 * 8192), "That is the ceiling of two H100s. An H200 reads 4.8e12 bytes/s."),
    ],
    because="4.8e12 / (163,840 x 8,192) = 3,576: each new token has to read its own sequence's K/V.",
)

LONGEST = Prediction(
    "03.longest",
    "The same two H200s: what is the longest context at which some batch is still compute bound?",
    max(S for S in range(1, 4096) if _batch(S, _H200)),
    "tokens",
    mistakes=[
        (1487, "That holds for two H100s. An H200 reads faster, so its ridge is lower and the end is further out."),
        (2158, "One too many. At 2,158 tokens every sequence brings more bytes than its FLOPs can pay for."),
        (2073, "That leaves out the FLOPs of attention itself. They help a little."),
        (4496, "That takes all of the model's FLOPs and one GPU's K/V. Each GPU computes half."),
        (1057, "That takes one GPU's FLOPs and both GPUs' K/V. Each GPU reads half."),
    ],
    because="70e9 + 1,310,720 S = 206.04 x 163,840 S gives S = 2,157.4.",
    rtol=0,
)
