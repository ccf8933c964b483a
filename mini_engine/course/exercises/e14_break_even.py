"""Lesson 14, exercise 4: how fast the bus must be for a swap to beat computing again."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from mini_engine.catalog import get_gpu, get_model
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.expect import expect_close
from mini_engine.geometry import active_params, kv_bytes_per_token
from mini_engine.roofline import breakeven_pcie

BreakEven = Callable[..., Any]


def break_even(kv_bytes: float, params: float, peak: float, mfu: float, gpus: int = 1) -> float:
    """Bytes/s over the link of each GPU at which a swap, out and in, takes as long as computing again."""
    seconds = 2 * params / (gpus * peak * mfu)  # to compute a token
    return 2 * kv_bytes / gpus / seconds


def _without_gpus(kv_bytes: float, params: float, peak: float, mfu: float, gpus: int = 1) -> float:
    return kv_bytes * peak * mfu / params


def _by_the_engine(kv_bytes: float, params: float, peak: float, mfu: float, gpus: int = 1) -> float:
    return float(breakeven_pcie(kv_bytes, Fraction(peak) * gpus, mfu, params, gpus))


def _slowly(kv_bytes: float, params: float, peak: float, mfu: float, gpus: int) -> float:
    """By halving: the rate at which the two times are equal."""
    low, high = 1e-6, 1e18
    for _ in range(200):
        rate = (low * high) ** 0.5
        out_and_in = kv_bytes / gpus / rate + kv_bytes / gpus / rate
        again = 2 * params / gpus / (peak * mfu)
        low, high = (rate, high) if out_and_in > again else (low, rate)
    return float(f"{low:.12g}")


def _one_way(kv_bytes: float, params: float, peak: float, mfu: float, gpus: int = 1) -> float:
    return kv_bytes * peak * mfu / (2 * params)


def _one_flop(kv_bytes: float, params: float, peak: float, mfu: float, gpus: int = 1) -> float:
    return 2 * kv_bytes * peak * mfu / params


def _no_mfu(kv_bytes: float, params: float, peak: float, mfu: float, gpus: int = 1) -> float:
    return kv_bytes * peak / params


def _mfu_below(kv_bytes: float, params: float, peak: float, mfu: float, gpus: int = 1) -> float:
    return kv_bytes * peak / (mfu * params)


def _all_links(kv_bytes: float, params: float, peak: float, mfu: float, gpus: int = 1) -> float:
    return kv_bytes * peak * mfu * gpus / params


def _one_computes(kv_bytes: float, params: float, peak: float, mfu: float, gpus: int = 1) -> float:
    return kv_bytes * peak * mfu / params / gpus


def _seconds_for_rate(kv_bytes: float, params: float, peak: float, mfu: float, gpus: int = 1) -> float:
    return params / (kv_bytes * peak * mfu)


def _small(f: BreakEven) -> None:
    cases = ((1, 1, 1, 1.0), (1, 4, 1, 1.0), (10, 1, 1, 1.0), (10, 5, 1, 1.0), (10, 5, 100, 1.0))
    for kv, params, peak, mfu in cases:
        case = f"kv_bytes={kv}, params={params}, peak={peak}, mfu={mfu}, gpus=1: bytes/s"
        expect_close(f(kv, params, peak, mfu), _slowly(kv, params, peak, mfu, 1), case)


def _share(f: BreakEven) -> None:
    for mfu in (0.5, 0.25):
        case = f"kv_bytes=10, params=5, peak=100, mfu={mfu}, gpus=1: bytes/s"
        expect_close(f(10, 5, 100, mfu), _slowly(10, 5, 100, mfu, 1), case)


def _per_gpu(f: BreakEven) -> None:
    for gpus in (2, 8):
        case = f"kv_bytes=10, params=5, peak=100, mfu=0.5, gpus={gpus}: bytes/s of one link"
        expect_close(f(10, 5, 100, 0.5, gpus), _slowly(10, 5, 100, 0.5, gpus), case)


def _real(f: BreakEven) -> None:
    for name, gpu, gpus in (
        ("llama-3-8b", "h100-sxm", 1),
        ("llama-3-70b", "h100-sxm", 8),
        ("llama-2-13b", "a100-80gb-sxm", 1),
    ):
        spec, peak = get_model(name), float(get_gpu(gpu).bf16_flops)
        kv, params = kv_bytes_per_token(spec), active_params(spec)
        case = f"{name} on {gpus} {gpu}, mfu 0.5: bytes/s of one link"
        expect_close(float(f(kv, params, peak, 0.5, gpus)), _slowly(kv, params, peak, 0.5, gpus), case)


SMALL, SHARE, PER_GPU, REAL = (
    "out and in takes as long as computing again",
    "only the share mfu of the peak is reached",
    "each GPU computes its part, over its own link",
    "real models",
)

BREAK_EVEN = Exercise(
    id="14.break_even",
    title="The bandwidth at which both take as long",
    reference=break_even,
    properties=[Property(SMALL, _small), Property(SHARE, _share), Property(PER_GPU, _per_gpu), Property(REAL, _real)],
    mutants=[
        Mutant("one way", _one_way, SMALL, "The K and V leave, and come back."),
        Mutant("one FLOP a parameter", _one_flop, SMALL, "A multiplication and an addition."),
        Mutant("whole bytes", lambda kv_bytes, params, peak, mfu, gpus=1: kv_bytes * peak * mfu // params, SMALL, "/ divides, // rounds down."),
        Mutant("seconds for a rate", _seconds_for_rate, SMALL, "Bytes over seconds."),
        Mutant("no mfu", _no_mfu, SHARE, "Nobody reaches the peak."),
        Mutant("mfu below the line", _mfu_below, SHARE, "Slower computing makes a slower bus good enough."),
        Mutant("all links", _all_links, PER_GPU, "Asked is the rate of one link."),
        Mutant("one computes", _one_computes, PER_GPU, "All GPUs compute, and all copy."),
        Mutant("whole gigabytes", lambda kv_bytes, params, peak, mfu, gpus=1: _rounded(kv_bytes * peak * mfu / params), REAL, "Bytes/s, not rounded."),
    ],
    alternatives=[_without_gpus, _by_the_engine],
)  # fmt: skip


def _rounded(rate: float) -> float:
    return round(rate / 1e9) * 1e9 if rate > 1e6 else rate
