"""Lesson 02, what is left on a node: gigabytes from data sheets, gibibytes from formulas, one subtraction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises.whole_numbers import expect_whole

Left = Callable[..., Any]


def bytes_left(num_gpus: int, card_gb: int, weight_bytes: int, cache_gib: int) -> int:
    """Bytes left on a node after one copy of the weights and a cache; negative when they do not fit."""
    return num_gpus * card_gb * 10**9 - weight_bytes - cache_gib * 2**30


def _case(candidate: Left, num_gpus: int, card_gb: int, weight_bytes: int, cache_gib: int, note: str = "") -> None:
    want = sum([card_gb * 1_000_000_000] * num_gpus) - weight_bytes - sum([1024**3] * cache_gib)
    case = f"num_gpus={num_gpus}, card_gb={card_gb}, weight_bytes={weight_bytes:,}, cache_gib={cache_gib}{note}"
    expect_whole(candidate(num_gpus, card_gb, weight_bytes, cache_gib), want, case)


def _gb(candidate: Left) -> None:
    for cards, size in ((1, 1), (1, 80), (3, 24)):
        _case(candidate, cards, size, 0, 0, ": a card's GB are 10^9 bytes")


def _gib(candidate: Left) -> None:
    for size in (1, 5):
        _case(candidate, 1, 80, 0, size, ": the cache's GiB are 2^30 bytes")


def _weights(candidate: Left) -> None:
    for cards in (1, 2, 8):
        _case(candidate, cards, 80, 10**9 + 7, 0, ": the cards share one copy of the weights")


def _negative(candidate: Left) -> None:
    _case(candidate, 1, 1, 2 * 10**9, 0, ": they do not fit, so the result is negative")
    _case(candidate, 4, 80, 141_107_412_992, 320, ": they do not fit, so the result is negative")


GB = "a card's GB are decimal"
GIB = "the cache's GiB are binary"
WEIGHTS = "the weights are there once"
NEGATIVE = "too little is a negative number"


def _all_binary(num_gpus: int, card_gb: int, weight_bytes: int, cache_gib: int) -> int:
    return num_gpus * card_gb * 2**30 - weight_bytes - cache_gib * 2**30


def _all_decimal(num_gpus: int, card_gb: int, weight_bytes: int, cache_gib: int) -> int:
    return num_gpus * card_gb * 10**9 - weight_bytes - cache_gib * 10**9


def _weights_on_each(num_gpus: int, card_gb: int, weight_bytes: int, cache_gib: int) -> int:
    return num_gpus * (card_gb * 10**9 - weight_bytes) - cache_gib * 2**30


def _weights_of_one_share(num_gpus: int, card_gb: int, weight_bytes: int, cache_gib: int) -> int:
    return num_gpus * card_gb * 10**9 - weight_bytes // num_gpus - cache_gib * 2**30


def _never_below_zero(num_gpus: int, card_gb: int, weight_bytes: int, cache_gib: int) -> int:
    return max(0, bytes_left(num_gpus, card_gb, weight_bytes, cache_gib))


def _in_floats(num_gpus: int, card_gb: int, weight_bytes: int, cache_gib: int) -> float:
    return num_gpus * card_gb * 1e9 - weight_bytes - cache_gib * 2.0**30


def _one_card_at_a_time(num_gpus: int, card_gb: int, weight_bytes: int, cache_gib: int) -> int:
    left = -weight_bytes - (cache_gib << 30)
    for _ in range(num_gpus):
        left += card_gb * 1_000_000_000
    return left


BYTES_LEFT = Exercise(
    id="02.bytes_left",
    title="What is left on a node",
    reference=bytes_left,
    properties=[Property(GB, _gb), Property(GIB, _gib), Property(WEIGHTS, _weights), Property(NEGATIVE, _negative)],
    mutants=[
        Mutant("all binary", _all_binary, GB, "80 GB on the box are 80,000,000,000 bytes, which is 74.5 GiB."),
        Mutant("all decimal", _all_decimal, GIB, "320 GiB are 343.6 GB: the unit hides 23 GB."),
        Mutant(
            "weights on each card",
            _weights_on_each,
            WEIGHTS,
            "Tensor parallelism splits the weights: every card holds its share of one copy.",
        ),
        Mutant("one share of the weights", _weights_of_one_share, WEIGHTS, "All shares together are the whole."),
        Mutant("never below zero", _never_below_zero, NEGATIVE, "Then nobody learns how much is missing."),
        Mutant("floats", _in_floats, GB, "Bytes are whole numbers: 10**9 is an int, 1e9 is a float."),
    ],
    alternatives=[_one_card_at_a_time],
)
