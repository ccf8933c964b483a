"""Answers to lesson 13's count of tokens that are read again: right ones, and the wrong ones that people write."""

from __future__ import annotations

from math import ceil


def reread_tokens(num_tokens: int, chunk: int) -> int:
    """The chunk that starts at token i reads the K/V of i earlier ones: chunk (0 + 1 + ... + (n - 1))."""
    n = -(-num_tokens // chunk)
    return chunk * n * (n - 1) // 2


def slow(num_tokens: int, chunk: int) -> int:
    """The oracle: chunk by chunk."""
    return sum(range(0, num_tokens, chunk))


def by_divmod(num_tokens: int, chunk: int) -> int:
    full, rest = divmod(num_tokens, chunk)
    last = full - (rest == 0)  # the number of chunks before the last one
    return chunk * last * (last + 1) // 2


def by_the_middle(num_tokens: int, chunk: int) -> int:
    last = (num_tokens - 1) // chunk * chunk
    return (last // chunk + 1) * last // 2


def nothing(num_tokens: int, chunk: int) -> int:
    return 0


def loop(num_tokens: int, chunk: int) -> int:
    total = start = 0
    while start < num_tokens:
        total += start
        start += chunk
    return total


def first_reads(num_tokens: int, chunk: int) -> int:
    n = -(-num_tokens // chunk)
    return chunk * n * (n + 1) // 2


def once_each(num_tokens: int, chunk: int) -> int:
    return (num_tokens - 1) // chunk * chunk


def twice(num_tokens: int, chunk: int) -> int:
    n = -(-num_tokens // chunk)
    return chunk * n * (n - 1)


def whole_chunks(num_tokens: int, chunk: int) -> int:
    n = num_tokens // chunk
    return chunk * n * (n - 1) // 2


def one_chunk_more(num_tokens: int, chunk: int) -> int:
    n = num_tokens // chunk + 1
    return chunk * n * (n - 1) // 2


def smooth(num_tokens: int, chunk: int) -> int:
    return num_tokens * (num_tokens - chunk) // (2 * chunk)


def floats(num_tokens: int, chunk: int) -> int:
    n = ceil(num_tokens / chunk)
    return int(chunk * n * (n - 1) / 2)


def ceil_of_a_float(num_tokens: int, chunk: int) -> int:
    n = ceil(num_tokens / chunk)
    return chunk * n * (n - 1) // 2


def a_float(num_tokens: int, chunk: int) -> float:
    n = -(-num_tokens // chunk)
    return chunk * n * (n - 1) / 2
