"""What a KV cache saves: token-forwards and attention scores, counted."""

from __future__ import annotations

from collections.abc import Iterator

from mini_engine.arguments import count, flag
from mini_engine.explain import explained


@explained()
def forwards_without_cache(n: int, m: int) -> int:
    """Token-forwards to generate m tokens from a prompt of n when every step runs the whole sequence.

    m n + m (m - 1) / 2. Formula F22.
    """
    n, m = count("n", n), count("m", m)
    return m * n + m * (m - 1) // 2


@forwards_without_cache.working
def _(total: int, n: int, m: int) -> Iterator[str]:
    yield "n + (n + 1) + ... + (n + m - 1) = m n + m (m - 1) / 2"
    yield f"= {m:,} × {n:,} + {m:,} × {m - 1:,} / 2 = {total:,} token-forwards"


@explained()
def forwards_with_cache(n: int, m: int) -> int:
    """Token-forwards with a cache: n for the prompt, then one per token but the last, whose K/V nobody reads.

    n + m - 1. Formula F22.
    """
    return count("n", n) + count("m", m) - 1


@forwards_with_cache.working
def _(total: int, n: int, m: int) -> Iterator[str]:
    yield f"n + m - 1 = {n:,} + {m:,} - 1 = {total:,} token-forwards"


@explained()
def attn_pairs(n: int, m: int, cache: bool) -> int:
    """Attention scores (query-key pairs) per head and layer to generate m tokens from n, with or without a cache.

    Without: every step scores its whole triangle, the sum of s (s + 1) / 2 for s = n .. n + m - 1.
    With: the prompt's triangle once, then one row per step. It is still quadratic in the length; only the projections
    become linear. Formula F22.
    """
    n, m = count("n", n), count("m", m)
    if flag("cache", cache):
        return n * (n + 1) // 2 + sum_of_integers(n + 1, n + m - 1)
    return tetrahedral(n + m - 1) - tetrahedral(n - 1)


@attn_pairs.working
def _(total: int, n: int, m: int, cache: bool) -> Iterator[str]:
    if cache:
        yield "n (n + 1) / 2 + (n + 1) + ... + (n + m - 1)"
        yield f"= {n:,} × {n + 1:,} / 2 + {sum_of_integers(n + 1, n + m - 1):,} = {total:,} scores per head and layer"
    else:
        yield "the sum of s (s + 1) / 2 for s = n .. n + m - 1, which is T(n + m - 1) - T(n - 1) with T(k) = k (k + 1)(k + 2) / 6"
        yield f"= {tetrahedral(n + m - 1):,} - {tetrahedral(n - 1):,} = {total:,} scores per head and layer"


def sum_of_integers(first: int, last: int) -> int:
    """first + ... + last; 0 when there are none."""
    return (first + last) * (last - first + 1) // 2 if last >= first else 0


def tetrahedral(k: int) -> int:
    """The sum of s (s + 1) / 2 for s = 1 .. k."""
    return k * (k + 1) * (k + 2) // 6
