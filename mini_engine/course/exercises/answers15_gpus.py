"""Functions for lesson 15: GPUs for a service by hand, in several right ways, and the wrong ones that people write."""

from __future__ import annotations

from fractions import Fraction
from math import ceil


def gpus_needed(rate: float, stay: float, tokens: int, work: float, num_blocks: int, block_size: int) -> int:
    """GPUs whose memory holds all requests that are there at a time, and that have the time for them.

    rate: requests per second; stay: seconds that each is there; tokens: of one at its longest; work: GPU seconds that each
    takes; num_blocks: of one GPU. ValueError when one GPU cannot hold a single request.
    """
    seats = num_blocks // -(-tokens // block_size)
    if seats == 0:
        raise ValueError(f"a request of {tokens} tokens does not fit {num_blocks} blocks of {block_size}")
    return max(1, ceil(rate * stay / seats), ceil(rate * work))


def by_trying(rate: float, stay: float, tokens: int, work: float, num_blocks: int, block_size: int) -> int:
    """Right: one GPU more until both fit."""
    blocks = Fraction(ceil(Fraction(tokens, block_size)))
    if blocks > num_blocks:
        raise ValueError("not even one request fits")
    gpus = 1
    while gpus * (num_blocks // blocks) < rate * stay or gpus < rate * work:
        gpus += 1
    return gpus


def no_memory(rate: float, stay: float, tokens: int, work: float, num_blocks: int, block_size: int) -> int:
    return max(1, ceil(rate * work))


def no_time(rate: float, stay: float, tokens: int, work: float, num_blocks: int, block_size: int) -> int:
    return gpus_needed(rate, stay, tokens, 0, num_blocks, block_size)


def by_arrivals(rate: float, stay: float, tokens: int, work: float, num_blocks: int, block_size: int) -> int:
    """Takes those that come in a second for those that are there."""
    return gpus_needed(rate, 1, tokens, work, num_blocks, block_size)


def part_blocks(rate: float, stay: float, tokens: int, work: float, num_blocks: int, block_size: int) -> int:
    return gpus_needed(rate, stay, tokens, work, num_blocks * block_size, 1)


def both_added(rate: float, stay: float, tokens: int, work: float, num_blocks: int, block_size: int) -> int:
    return no_time(rate, stay, tokens, 0, num_blocks, block_size) + no_memory(
        rate, stay, tokens, work, num_blocks, block_size
    )


def rounded(rate: float, stay: float, tokens: int, work: float, num_blocks: int, block_size: int) -> int:
    seats = num_blocks // -(-tokens // block_size)
    return (
        max(1, round(rate * stay / max(1, seats)), round(rate * work))
        if seats
        else gpus_needed(rate, stay, tokens, work, num_blocks, block_size)
    )


def one_more(rate: float, stay: float, tokens: int, work: float, num_blocks: int, block_size: int) -> int:
    seats = num_blocks // -(-tokens // block_size)
    if not seats:
        raise ValueError("nothing fits")
    return max(int(rate * stay // seats), int(rate * work)) + 1


def halves_of_requests(rate: float, stay: float, tokens: int, work: float, num_blocks: int, block_size: int) -> int:
    """Spreads the blocks of one request over several GPUs."""
    return max(1, ceil(rate * stay * -(-tokens // block_size) / num_blocks), ceil(rate * work))


def none_for_nobody(rate: float, stay: float, tokens: int, work: float, num_blocks: int, block_size: int) -> int:
    seats = num_blocks // -(-tokens // block_size)
    if not seats:
        raise ValueError("nothing fits")
    return max(ceil(rate * stay / seats), ceil(rate * work))
