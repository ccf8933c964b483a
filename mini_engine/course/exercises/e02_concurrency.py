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


def published(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    """How the table of a published page comes about: a budget in GB divided by a cache in GiB."""
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
    case = "budget_gb=10**18 - 1, kv_bytes_per_token=10**10, context=1: less than 10**17 by a tenth of a request"
    expect_whole(candidate(10**18 - 1, 10**10, 1), 10**17 - 1, case)


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


def _kib_for_thousand(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    return budget_gb * 10**9 // (kv_bytes_per_token * (context // 1024 * 1000 if context >= 2048 else context))


def _strictly_less(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    return max(0, math.ceil(Fraction(budget_gb) * 10**9 / (kv_bytes_per_token * context)) - 1)


def _by_tokens(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    tokens = int(Fraction(budget_gb) * 10**9) // kv_bytes_per_token
    return tokens // context


def _by_fractions(budget_gb: Any, kv_bytes_per_token: int, context: int) -> int:
    return math.floor(Fraction(budget_gb * 1000**3) / kv_bytes_per_token / context)


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
        Mutant("GB divided by GiB", published, UNITS, "The published table: 25, 12, 6, 1. 8 GB are only 7.45 GiB."),
        Mutant("rounded", _rounded, DOWN, "5.96 requests are 5. The sixth does not fit."),
        Mutant("rounded up", _rounded_up, DOWN, "How TP8 came to be quoted with 194: 60.5 / 0.3125 is 193.6."),
        Mutant("float division", _float_division, UNITS, "`//` of floats gives a float. Requests are counted."),
        Mutant("int too late", _int_too_late, EDGE, "The float is rounded before int() sees it."),
        Mutant("int of a quotient", _int_of_a_quotient, EDGE, "`/` of two ints is a float, rounded before int() sees it."),
        Mutant("refuses the last one", _strictly_less, UNITS, "A budget that holds exactly n requests holds n."),
        Mutant("at least one", _at_least_one, DOWN, "If none fits, the answer is none."),
        Mutant("at least one of the real ones", lambda b, k, s: _at_least_one(b, k, s) if s == 8192 else concurrency(b, k, s), NOTHING, "If none fits, the answer is none."),
        Mutant("8K as 8,000", _kib_for_thousand, EDGE, "8K tokens are 8,192."),
        Mutant("the table by heart", lambda b, k, s: {2048: 23, 4096: 11, 8192: 5, 32768: 1}.get(s) if (b, k) == (8, PER_TOKEN) else 180 if (s, k) == (8192, 40_960) else 0 if k == 40_960 else concurrency(b, k, s), TABLE, "Other cards, other numbers: divide."),
    ],
    alternatives=[_by_tokens, _by_fractions],
)  # fmt: skip

EIGHT_K = Prediction(
    "02.eight_k",
    "8 GB are left for the cache on each of two GPUs. A token takes 163,840 bytes there. How many requests of 8,192 tokens fit?",
    max_concurrency(8 * 10**9, PER_TOKEN, 8192),
    "requests",
    mistakes=[
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

TP8 = Prediction(
    "02.tp8",
    "Eight GPUs of 80 GB: 60.5 GB are left on each, and a token takes 40,960 bytes there. How many requests of 8,192 tokens fit?",
    max_concurrency(60_500_000_000, 40_960, 8192),
    "requests",
    mistakes=[
        (194, "Often quoted. 60.5 GB divided by 0.3125 GiB is 193.6 in mixed units, and then it was rounded up."),
        (193, "60.5 GB were divided by 0.3125 GiB. In one unit it is 60.5 / 0.3355."),
        (192, "60 GB divided by 0.3125 GiB: rounded, and in mixed units."),
        (181, "It is 180.3. A request that fits to 30% does not fit."),
        (20, "Four times the GPUs, but not four times the room: the weights are there only once, so far more is left."),
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
        (4, "That is one step of two. From 2,048 to 32,768 there are four doublings."),
        (30720, "That is the difference. The factor is 32,768 / 2,048."),
    ],
    because="32,768 / 2,048 = 16. Bytes are linear in tokens. 23.8 against 1.49 is 16, 23 against 1 is rounding.",
    rtol=0,
)  # fmt: skip
