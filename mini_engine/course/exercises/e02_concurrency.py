"""Lesson 02, how many requests fit: a division, and the three ways in which it goes wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from mini_engine.course.exercise import Exercise, Mutant, Prediction, Property
from mini_engine.course.exercises.whole_numbers import expect_whole
from mini_engine.geometry import max_concurrency

Requests = Callable[..., Any]
PER_TOKEN = 163_840
"""Bytes of one token of Llama-3-70B on each of two GPUs, in bf16."""


def concurrency(budget_gb: int | Fraction, kv_bytes_per_token: int, context: int) -> int:
    """Requests of `context` tokens whose K and V fit into `budget_gb` gigabytes, at `kv_bytes_per_token` bytes a token."""
    return budget_gb * 10**9 // (kv_bytes_per_token * context)


def on_the_slide(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    """How the slide's 25, 12, 6 and 1 come about: a budget in GB divided by a cache in GiB."""
    cache_gib = kv_bytes_per_token * context / 2**30
    return math.floor(budget_gb / cache_gib)


def count_by_adding(budget: Fraction, kv_bytes_per_token: int, context: int) -> int:
    """Requests let in one at a time until the next does not fit: the oracle. `budget` in bytes."""
    requests, used = 0, kv_bytes_per_token * context
    while used <= budget:
        requests, used = requests + 1, used + kv_bytes_per_token * context
    return requests


def _case(candidate: Requests, budget_gb: int | Fraction, per_token: int, context: int, note: str = "") -> None:
    want = count_by_adding(Fraction(budget_gb) * 1_000_000_000, per_token, context)
    case = f"budget_gb={budget_gb}, kv_bytes_per_token={per_token:,}, context={context:,}{note}"
    expect_whole(candidate(budget_gb, per_token, context), want, case)


def _units(candidate: Requests) -> None:
    for gb in (1, 2, 100):
        _case(candidate, gb, 1_000_000, 1000, ": 1 GB is exactly one request of 10^9 bytes")


def _down(candidate: Requests) -> None:
    for gb in (Fraction(199, 100), Fraction(1999, 1000), Fraction(1, 2)):
        _case(candidate, gb, 1_000_000, 1000, ": part of a request is none")


def _edge(candidate: Requests) -> None:
    for per_token, context, requests in ((1, 3, 7), (163_840, 8192, 5), (10**15 + 7, 999, 3)):
        exact = Fraction(per_token * context * requests, 10**9)
        _case(candidate, exact, per_token, context, f": exactly {requests} requests")
        _case(candidate, exact - Fraction(1, 10**9), per_token, context, f": one byte short of {requests}")
        _case(candidate, exact - Fraction(1, 10**10), per_token, context, f": a tenth of a byte short of {requests}")
    _case(candidate, 3 * 10**17 + 2, 10**26 + 666_666_667, 1, ": one byte short of 3")  # three of them end in ...001


def _nothing(candidate: Requests) -> None:
    for gb in (0, Fraction(1, 1000)):
        _case(candidate, gb, PER_TOKEN, 8192)


def _table(candidate: Requests) -> None:
    for context, want in ((2048, 23), (4096, 11), (8192, 5), (32768, 1)):
        expect_whole(
            candidate(8, PER_TOKEN, context), want, f"budget_gb=8, kv_bytes_per_token=163,840, context={context:,}"
        )
    for context, want in ((2048, 721), (4096, 360), (8192, 180), (32768, 45)):
        case = f"budget_gb=121/2, kv_bytes_per_token=40,960, context={context:,}"
        expect_whole(candidate(Fraction(121, 2), 40_960, context), want, case)


def _rounded(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    return round(budget_gb * 10**9 / (kv_bytes_per_token * context))


def _rounded_up(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    return math.ceil(budget_gb * 10**9 / (kv_bytes_per_token * context))


def _float_division(budget_gb: Any, kv_bytes_per_token: int, context: int) -> float:
    return float(budget_gb) * 1e9 // (kv_bytes_per_token * context)


def _int_too_late(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    return int(float(budget_gb) * 1e9 / float(kv_bytes_per_token * context))


def _int_of_a_quotient(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    return int(budget_gb * 10**9 / (kv_bytes_per_token * context))


def _at_least_one(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    return max(1, concurrency(budget_gb, kv_bytes_per_token, context))


def _whole_gb(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    return int(budget_gb) * 10**9 // (kv_bytes_per_token * context)


def _to_the_nearest_byte(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    return round(budget_gb * 10**9) // (kv_bytes_per_token * context)


def _cache_in_gib(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    return budget_gb * 10**9 // 2**30 // (Fraction(kv_bytes_per_token * context, 2**30))


def _kib_for_thousand(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    return budget_gb * 10**9 // (kv_bytes_per_token * (context // 1024 * 1000 if context >= 2048 else context))


def _strictly_less(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    return max(0, math.ceil(Fraction(budget_gb) * 10**9 / (kv_bytes_per_token * context)) - 1)


def _by_tokens(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    tokens = int(Fraction(budget_gb) * 10**9) // kv_bytes_per_token
    return tokens // context


def _by_fractions(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    return math.floor(Fraction(budget_gb * 1000**3) / kv_bytes_per_token / context)


def _one_at_a_time(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    left, requests = budget_gb * 10**9, 0
    while left >= kv_bytes_per_token * context:
        left -= kv_bytes_per_token * context
        requests += 1
    return requests


def _in_gb(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    return math.floor(budget_gb / Fraction(kv_bytes_per_token * context, 10**9))


UNITS = "a GB is 10^9 bytes"
DOWN = "never rounded up"
EDGE = "exact at the edge"
NOTHING = "too small a budget holds none"
TABLE = "the table for Llama-3-70B"

CONCURRENCY = Exercise(
    id="02.concurrency",
    title="How many requests fit",
    reference=concurrency,
    properties=[
        Property(UNITS, _units),
        Property(DOWN, _down),
        Property(EDGE, _edge),
        Property(NOTHING, _nothing),
        Property(TABLE, _table),
    ],
    mutants=[
        Mutant("GB divided by GiB", on_the_slide, UNITS, "So the slide came to 25, 12, 6, 1. 8 GB are only 7.45 GiB."),
        Mutant("rounded", _rounded, DOWN, "5.96 requests are 5. The sixth does not fit."),
        Mutant("rounded up", _rounded_up, DOWN, "60.5 GB / 0.3125 GiB is 193.6, and 194 when rounded up. It is 180."),
        Mutant("float division", _float_division, UNITS, "`//` of floats gives a float. Requests are counted."),
        Mutant("int too late", _int_too_late, EDGE, "The float is rounded before int() sees it."),
        Mutant("int of a quotient", _int_of_a_quotient, EDGE, "`/` of two ints is a float, rounded before int() sees it."),
        Mutant("whole GB", _whole_gb, EDGE, "Round once, at the end: 1.999 GB are more than 1 GB."),
        Mutant("to the nearest byte", _to_the_nearest_byte, EDGE, "Rounded to the nearest, the budget may grow. It never may."),
        Mutant("whole GiB", _cache_in_gib, UNITS, "1 GB is 0.93 GiB. Round once, at the end."),
        Mutant("refuses the last one", _strictly_less, UNITS, "A budget that holds exactly n requests holds n."),
        Mutant("at least one", _at_least_one, DOWN, "If none fits, the answer is none."),
        Mutant("at least one of the real ones", lambda b, k, s: _at_least_one(b, k, s) if s == 8192 else concurrency(b, k, s), NOTHING, "If none fits, the answer is none."),
        Mutant("8K as 8,000", _kib_for_thousand, EDGE, "8K tokens are 8,192."),
        Mutant("the table by heart", lambda b, k, s: {2048: 23, 4096: 11, 8192: 5, 32768: 1}.get(s) if (b, k) == (8, PER_TOKEN) else 180 if (s, k) == (8192, 40_960) else 0 if k == 40_960 else concurrency(b, k, s), TABLE, "Other cards, other numbers: divide."),
    ],
    alternatives=[_by_tokens, _by_fractions, _one_at_a_time, _in_gb],
)  # fmt: skip

EIGHT_K = Prediction(
    "02.eight_k",
    "8 GB are left for the cache on each of two GPUs. A token takes 163,840 bytes there. How many requests of 8,192 tokens fit?",
    max_concurrency(8 * 10**9, PER_TOKEN, 8192),
    "requests",
    mistakes=[
        (5.96, "That is before rounding down. A request fits whole or not at all."),
        (6, "Close, and the classic slip. 8,192 tokens are 1.25 GiB, and 8 GB are 7.45 GiB, not 8. A sixth does not fit."),
        (7, "Nothing rounds up here: each request needs 1.34 GB, and there are 8."),
        (11, "That is for 4,096 tokens, or for a cache in 8 bits."),
        (12, "That is for 4,096 tokens, with 8 GB taken for 8 GiB."),
        (10, "Each GPU holds half the heads of every request, so the second GPU adds no second 8 GB to a request's share."),
        (2, "163,840 bytes are the share of one GPU. Do not count it for both."),
        (48828, "Those are the tokens that fit. Divide by the tokens of a request."),
    ],
    because="8,000,000,000 // (163,840 x 8,192) = 5, with 0.96 of a request to spare.",
    rtol=0,
)  # fmt: skip

FOUR_TIMES = (
    "That is four times the room for four times the GPUs. It is far more: each GPU holds fewer weights, so 60.5 GB are "
    "left on it, not 8."
)

TP8 = Prediction(
    "02.tp8",
    "Eight GPUs of 80 GB: 60.5 GB are left on each, and a token takes 40,960 bytes there. How many requests of 8,192 tokens fit?",
    max_concurrency(60_500_000_000, 40_960, 8192),
    "requests",
    mistakes=[
        (194, "60.5 GB divided by 0.3125 GiB is 193.6 in mixed units, and then it was rounded up."),
        (193, "60.5 GB were divided by 0.3125 GiB. In one unit it is 60.5 / 0.3355."),
        (192, "60 GB divided by 0.3125 GiB: rounded, and in mixed units."),
        (180.3, "That is before rounding down. A request fits whole or not at all."),
        (181, "It is 180.3. A request that fits to 30% does not fit."),
        *((n, FOUR_TIMES) for n in (20, 22, 23, 24, 23.84)),
        *((n, "That is eight GPUs with 8 GB left on each. Far more is left: each holds only an eighth of the weights.") for n in (40, 47)),
        (1442, "The eight GPUs share each request. Their budgets do not add up to eight times as many."),
        (1476968, "Those are the tokens that fit. Divide by the tokens of a request."),
    ],
    because="60,500,000,000 // (40,960 x 8,192) = 180. Each GPU holds an eighth of the weights, so much more is left.",
    rtol=0,
)  # fmt: skip

SIXTEEN = Prediction(
    "02.sixteen",
    "By which factor does room for requests shrink when contexts grow from 2,048 to 32,768 tokens? Before rounding down.",
    32768 // 2048,
    "times",
    mistakes=[
        (25, "That is 25 requests against 1, after both were rounded down. The room itself shrinks in proportion to the tokens."),
        (23, "That is 23 requests against 1, after both were rounded down. The room itself shrinks in proportion to the tokens."),
        (256, "That is a square. Attention scores grow like that, the cache does not."),
        (4, "Four is how often the length doubles. Each doubling halves the room: 2 x 2 x 2 x 2."),
        (8, "From 2,048 to 32,768 the length doubles four times, not three. Each doubling halves the room."),
        (15, "That is how much the length grows by, in units of the old one. The factor is 32,768 / 2,048."),
        (0.0625, "That is what is left of the room, one part in 16. The question asks for the factor."),
        (30720, "That is the difference. The factor is 32,768 / 2,048."),
    ],
    because="32,768 / 2,048 = 16. Bytes are linear in tokens. 23.8 against 1.49 is 16, 23 against 1 is rounding.",
    rtol=0.01,  # 23.8 / 1.49 is right too
)  # fmt: skip
