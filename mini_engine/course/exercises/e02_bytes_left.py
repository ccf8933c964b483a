"""Lesson 02, what is left on a node: gigabytes from data sheets, gibibytes from formulas, one subtraction."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises.whole_numbers import expect_whole

Left = Callable[..., Any]


def bytes_left(num_gpus: int, card_gb: int | Fraction, weight_bytes: int, cache_gib: int) -> int:
    """Bytes left on a node after one copy of the weights and a cache; negative when they do not fit."""
    return int(num_gpus * card_gb * 10**9) - weight_bytes - cache_gib * 2**30


def _case(
    candidate: Left, num_gpus: int, card_gb: int | Fraction, weight_bytes: int, cache_gib: int, note: str = ""
) -> None:
    card = Fraction(card_gb) * 1_000_000_000
    want = sum([card.numerator] * num_gpus) - weight_bytes - sum([1024**3] * cache_gib)
    size = (
        f"Fraction({card_gb.numerator:,}, {card_gb.denominator:,})" if isinstance(card_gb, Fraction) else f"{card_gb:,}"
    )
    case = f"num_gpus={num_gpus}, card_gb={size}, weight_bytes={weight_bytes:,}, cache_gib={cache_gib}{note}"
    expect_whole(candidate(num_gpus, card_gb, weight_bytes, cache_gib), want, case)


def _gb(candidate: Left) -> None:
    for size in (1, 80):
        _case(candidate, 1, size, 0, 0, ": a card's GB are 10^9 bytes")


def _cards(candidate: Left) -> None:
    for cards, size in ((2, 1), (3, 24), (8, 80)):
        _case(candidate, cards, size, 0, 0, ": each card adds its memory")


def _gib(candidate: Left) -> None:
    for size in (1, 5):
        _case(candidate, 1, 80, 0, size, ": the cache's GiB are 2^30 bytes")


def _weights(candidate: Left) -> None:
    for cards in (1, 2, 8):
        _case(candidate, cards, 80, 10**9 + 7, 0, ": the cards share one copy of the weights")


def _cache(candidate: Left) -> None:
    for cards in (2, 8):
        _case(candidate, cards, 80, 0, 3, ": cache_gib is the cache of the whole node")


def _exact(candidate: Left) -> None:
    for cards in (1, 8):
        _case(candidate, cards, REPORTED, 0, 0, ": what a driver reports, to the byte")
    _case(candidate, 2, REPORTED, 141_107_412_992, 1)
    _case(candidate, 1, Fraction(10**17 + 1, 10**9), 0, 0, ": to the byte")
    _case(candidate, 3, 10**9, 10**17 + 1, 0, ": to the byte")
    _case(candidate, 1, 10**9 + 1, 3, 1, ": to the byte")


def _negative(candidate: Left) -> None:
    _case(candidate, 1, 1, 2 * 10**9, 0, ": they do not fit, so the result is negative")
    _case(candidate, 1, 1, 0, 1, ": it does not fit, so the result is negative")


REPORTED = Fraction(85_520_809_984, 10**9)
"""GB of an H100 as its driver reports them."""

GB = "a card's GB are decimal"
CARDS = "every card counts"
GIB = "the cache's GiB are binary"
WEIGHTS = "the weights are there once"
CACHE = "the cache is subtracted once"
EXACT = "exact to the byte, with a Fraction too"
NEGATIVE = "too little is a negative number"


def _all_binary(num_gpus: int, card_gb: Any, weight_bytes: int, cache_gib: int) -> Any:
    return num_gpus * card_gb * 2**30 - weight_bytes - cache_gib * 2**30


def _all_decimal(num_gpus: int, card_gb: Any, weight_bytes: int, cache_gib: int) -> Any:
    return num_gpus * card_gb * 10**9 - weight_bytes - cache_gib * 10**9


def _one_card(num_gpus: int, card_gb: Any, weight_bytes: int, cache_gib: int) -> Any:
    return card_gb * 10**9 - weight_bytes - cache_gib * 2**30


def _weights_on_each(num_gpus: int, card_gb: Any, weight_bytes: int, cache_gib: int) -> Any:
    return num_gpus * (card_gb * 10**9 - weight_bytes) - cache_gib * 2**30


def _weights_of_one_share(num_gpus: int, card_gb: Any, weight_bytes: int, cache_gib: int) -> Any:
    return num_gpus * card_gb * 10**9 - weight_bytes // num_gpus - cache_gib * 2**30


def _cache_on_each(num_gpus: int, card_gb: Any, weight_bytes: int, cache_gib: int) -> Any:
    return num_gpus * (card_gb * 10**9 - cache_gib * 2**30) - weight_bytes


def _never_below_zero(num_gpus: int, card_gb: Any, weight_bytes: int, cache_gib: int) -> Any:
    return max(0, bytes_left(num_gpus, card_gb, weight_bytes, cache_gib))


def _in_floats(num_gpus: int, card_gb: Any, weight_bytes: int, cache_gib: int) -> Any:
    return num_gpus * float(card_gb) * 1e9 - weight_bytes - cache_gib * 2.0**30


def _int_too_late(num_gpus: int, card_gb: Any, weight_bytes: int, cache_gib: int) -> Any:
    return int(num_gpus * float(card_gb) * 1e9 - weight_bytes - cache_gib * 2**30)


def _gib_in_floats(num_gpus: int, card_gb: Any, weight_bytes: int, cache_gib: int) -> Any:
    return int((num_gpus * card_gb * 1e9 / 2**30 - weight_bytes / 2**30 - cache_gib) * 2**30)


def _rounded_floats(num_gpus: int, card_gb: Any, weight_bytes: int, cache_gib: int) -> Any:
    return round(num_gpus * card_gb * 1e9 - weight_bytes - cache_gib * 2**30)


def _int_of_floats(num_gpus: int, card_gb: Any, weight_bytes: int, cache_gib: int) -> Any:
    return int(num_gpus * card_gb * 1e9) - weight_bytes - cache_gib * 2**30


def _whole_gb(num_gpus: int, card_gb: Any, weight_bytes: int, cache_gib: int) -> Any:
    return num_gpus * int(card_gb) * 10**9 - weight_bytes - cache_gib * 2**30


def _one_card_at_a_time(num_gpus: int, card_gb: Any, weight_bytes: int, cache_gib: int) -> Any:
    left = -weight_bytes - (cache_gib << 30)
    for _ in range(num_gpus):
        left += card_gb * 1_000_000_000
    return left


def _in_gib(num_gpus: int, card_gb: Any, weight_bytes: int, cache_gib: int) -> Any:
    gib = num_gpus * card_gb * Fraction(10**9, 2**30) - Fraction(weight_bytes, 2**30) - cache_gib
    return int(gib * 2**30)


BYTES_LEFT = Exercise(
    id="02.bytes_left",
    title="What is left on a node",
    reference=bytes_left,
    properties=[
        Property(GB, _gb),
        Property(CARDS, _cards),
        Property(GIB, _gib),
        Property(WEIGHTS, _weights),
        Property(CACHE, _cache),
        Property(EXACT, _exact),
        Property(NEGATIVE, _negative),
    ],
    mutants=[
        Mutant("all binary", _all_binary, GB, "80 GB of a data sheet are 80,000,000,000 bytes, which is 74.5 GiB."),
        Mutant("all decimal", _all_decimal, GIB, "320 GiB are 343.6 GB: the unit hides 23 GB."),
        Mutant("one card", _one_card, CARDS, "The node has num_gpus cards."),
        Mutant("weights on each card", _weights_on_each, WEIGHTS, "Tensor parallelism splits the weights: every card holds its share of one copy."),
        Mutant("one share of the weights", _weights_of_one_share, WEIGHTS, "All shares together are the whole."),
        Mutant("cache on each card", _cache_on_each, CACHE, "cache_gib is the whole cache, spread over the cards."),
        Mutant("never below zero", _never_below_zero, NEGATIVE, "Then nobody learns how much is missing."),
        Mutant("floats", _in_floats, GB, "Bytes are whole numbers: 10**9 is an int, 1e9 is a float."),
        Mutant("int too late", _int_too_late, EXACT, "The float has rounded before int() sees it."),
        Mutant("GiB in floats", _gib_in_floats, EXACT, "A quotient of floats does not come back to the byte."),
        Mutant("rounded floats", _rounded_floats, EXACT, "A float holds whole numbers exactly only up to 2 to the power of 53."),
        Mutant("int of floats", _int_of_floats, EXACT, "1e9 is a float: write 10**9."),
        Mutant("whole GB", _whole_gb, EXACT, "85.52 GB are not 85 GB: half a GB would be lost on each card."),
    ],
    alternatives=[_one_card_at_a_time, _in_gib],
)  # fmt: skip
