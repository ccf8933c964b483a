"""Lesson 01, counting: how often a token runs through the model, with a cache and without one."""

from __future__ import annotations

from collections.abc import Callable

from mini_engine.course.exercise import Exercise, Mutant, Prediction, Property
from mini_engine.course.expect import expect, expect_equal, show
from mini_engine.geometry import attn_pairs

Count = Callable[[int, int, bool], int]


def token_forwards(n: int, m: int, cached: bool) -> int:
    """Token-forwards that produce m >= 1 tokens from a prompt of n >= 1 tokens: `mini_engine.geometry`, without limits."""
    return n + m - 1 if cached else m * n + m * (m - 1) // 2


def count_passes(n: int, m: int, cached: bool) -> int:
    """The same count by acting it out, one forward pass at a time: the oracle."""
    total = done = 0
    sequence = n
    for _ in range(m):
        total += sequence - (done if cached else 0)
        done = sequence
        sequence += 1
    return total


SMALL = [(n, m) for m in (1, 2, 3, 7) for n in (1, 2, 5)]


def _one_token(candidate: Count) -> None:
    for n in (1, 2, 9):
        for cached in (False, True):
            expect_equal(candidate(n, 1, cached), n, f"n={n}, m=1, cached={cached}: only the prompt runs")


def _agrees(cached: bool) -> Callable[[Count], None]:
    def run(candidate: Count) -> None:
        for n, m in SMALL:
            expect_equal(candidate(n, m, cached), count_passes(n, m, cached), f"n={n}, m={m}, cached={cached}")

    return run


def _an_int(candidate: Count) -> None:
    for cached in (False, True):
        got = candidate(2, 3, cached)
        expect(type(got) is int, f"n=2, m=3, cached={cached}: the type of the result", expected="int", got=_kind(got))


def _kind(got: object) -> str:
    return f"{type(got).__name__}{', which / gives' if isinstance(got, float) else ''}: {show(got)}"


LARGE = ((10**6, 3_000), (10**12 - 1, 20_013), (9 * 10**18, 5))
"""More than int32, float64 and int64 hold, in this order, and few enough passes for a loop over them."""


def _exact(candidate: Count) -> None:
    for n, m in LARGE:
        for cached in (False, True):
            expect_equal(candidate(n, m, cached), count_passes(n, m, cached), f"n={n:,}, m={m:,}, cached={cached}")


def _by_sums(n: int, m: int, cached: bool) -> int:
    whole = (n + n + m - 1) * m // 2
    return whole - (whole - n - m + 1) * cached


def _first_and_last_half(n: int, m: int, cached: bool) -> int:
    return (n + m) * (n + m - 1) // 2 - n * (n - 1) // 2 if not cached else n + (m - 1)


def _two_thousand(n: int, m: int, cached: bool) -> int:
    return n + m if cached else token_forwards(n, m, False)


def _always_the_final_length(n: int, m: int, cached: bool) -> int:
    return n + m - 1 if cached else m * (n + m - 1)


def _prompt_only(n: int, m: int, cached: bool) -> int:
    return n + m - 1 if cached else n * m


def _one_step_late(n: int, m: int, cached: bool) -> int:
    return n + m - 1 if cached else m * n + m * (m + 1) // 2


def _new_tokens_only(n: int, m: int, cached: bool) -> int:
    return m if cached else token_forwards(n, m, False)


def _by_passes(n: int, m: int, cached: bool) -> int:
    return n + sum(1 for _ in range(m - 1)) if cached else sum(range(n, n + m))


def _rounds_a_float(n: int, m: int, cached: bool) -> int:
    return n + m - 1 if cached else int(m * n + m * (m - 1) / 2)


def _true_division(n: int, m: int, cached: bool) -> float:
    return n + m - 1 if cached else m * n + m * (m - 1) / 2


def _wraps_round(bits: int) -> Count:
    """Python's numbers, cut to a machine's: what NumPy's integers do."""

    def count(n: int, m: int, cached: bool) -> int:
        half = 1 << (bits - 1)
        return (token_forwards(n, m, cached) + half) % (2 * half) - half

    return count


NO_CACHE = "without a cache, every pass runs the whole sequence"
CACHE = "with a cache, every token runs at most once"
INT = "the result is an int"
EXACT = "counts are exact integers, however large"

TOKEN_FORWARDS = Exercise(
    id="01.token_forwards",
    title="Count the token-forwards",
    reference=token_forwards,
    properties=[
        Property(INT, _an_int),
        Property("one new token needs the prompt and nothing else", _one_token),
        Property(NO_CACHE, _agrees(False)),
        Property(CACHE, _agrees(True)),
        Property(EXACT, _exact),
    ],
    mutants=[
        Mutant(
            "n + m",
            _two_thousand,
            CACHE,
            "The often quoted 2,000 for n = m = 1,000. The last token is returned, never run: 1,999.",
        ),
        Mutant(
            "one step late",
            _one_step_late,
            "one new token needs the prompt and nothing else",
            "The first pass runs n tokens, not n + 1.",
        ),
        Mutant("always the final length", _always_the_final_length, NO_CACHE, "Early passes are shorter."),
        Mutant("the prompt only", _prompt_only, NO_CACHE, "Generated tokens are run again too, once they exist."),
        Mutant("new tokens only", _new_tokens_only, CACHE, "The prompt has to run once before anything can be cached."),
        Mutant(
            "true division",
            _true_division,
            INT,
            "`/` gives a float. Counts want `//`.",
        ),
        Mutant(
            "rounds a float",
            _rounds_a_float,
            EXACT,
            "A float holds whole numbers exactly only up to 2**53, and int() comes too late.",
        ),
        Mutant(
            "int32 that wraps",
            _wraps_round(32),
            EXACT,
            "np.int32 has no place for 2 to the power of 31 and goes on below zero.",
        ),
        Mutant(
            "int64 that wraps",
            _wraps_round(64),
            EXACT,
            "np.int64 goes on below zero too, only later. Python's own int has no end.",
        ),
    ],
    alternatives=[_by_sums, _first_and_last_half, _by_passes],
)

WITHOUT_CACHE = Prediction(
    "01.without_cache",
    "A prompt of 1,000 tokens, 1,000 new tokens, no cache. How many token-forwards?",
    token_forwards(1000, 1000, False),
    "token-forwards",
    mistakes=[
        (1999, "That is the count with a cache. Without one, every pass reruns the whole sequence."),
        (2000, "That runs every token once. Without a cache, every pass reruns the whole sequence."),
        (
            1000 * 1000,
            "1,000 passes over the prompt. The new tokens are rerun too: the passes grow from 1,000 to 1,999.",
        ),
        (1000 * 1999, "Only the last pass has 1,999 tokens. The first has 1,000."),
        (1000 * 2000, "No pass has 2,000 tokens: the last new token is never run. And early passes are shorter."),
        (1_500_500, "Close. The first pass has 1,000 tokens, not 1,001: 1,000 + 1,001 + ... + 1,999."),
        (1_500_000, "Close. The passes go from 1,000 to 1,999, and their mean is 1,499.5."),
    ],
    because="1,000 + 1,001 + ... + 1,999 = 1,499,500.",
    rtol=0,
)

WITH_CACHE = Prediction(
    "01.with_cache",
    "The same prompt and output, with a cache. How many token-forwards?",
    token_forwards(1000, 1000, True),
    "token-forwards",
    mistakes=[
        (2000, "Often quoted, and one too many. The last new token is returned, and nothing needs its K and V."),
        (1000, "That is one of the two halves: 1,000 for the prompt, and then one for each new token but the last."),
        (999, "Those are the decode passes. The prompt runs too: 1,000 more."),
        (1998, "One too few: all 1,000 prompt tokens run, and 999 of the new ones."),
        (2001, "There are 2,000 tokens in all, and the last of them never runs."),
        (1001, "The prompt and one token. Each further token needs a pass of its own."),
    ],
    because="1,000 for the prompt, then 999: the last new token is returned and never run.",
    rtol=0,
)

PAIRS = Prediction(
    "01.pairs",
    "With the cache, n = m = 1,000: how many query-key scores does one head of one layer compute?",
    attn_pairs(1000, 1000, True),
    "scores",
    mistakes=[
        (1999, "Those are the queries. Each one is scored against every token before it and itself."),
        (1999 * 1999, "Twice too many: a query sees itself and the tokens before it, not those after it."),
        (2000 * 2000, "Twice too many: a query sees itself and the tokens before it, not those after it."),
        (2001000, "One query too many: the last new token is never run."),
        (1166666500, "That is the count without a cache."),
        (2000000, "Half of 2,000 times 2,000. But 1,999 queries run, and query i sees i keys: 1 + 2 + ... + 1,999."),
        (1000000, "1,000 times 1,000 pairs old tokens with new ones. Tokens of the same half see each other too."),
        (1498500, "Those are the 999 decode passes. The prompt's rows are scored too: 1 + 2 + ... + 1,000 = 500,500."),
        (
            1499500,
            "Those are the last prompt row and the 999 decode passes. The 999 prompt rows before them count too.",
        ),
        (1500000, "1,000 rows of 1,500 keys on average. There are 1,999 rows: the prompt's are scored too."),
        (1998001, "999 too few: each new token is scored against itself too."),
        (1997001, "1,999 too few: each query sees itself too."),
    ],
    because="Query i sees i keys: 1 + 2 + ... + 1,999 = 1,999,000. Still quadratic.",
    rtol=0,
)
