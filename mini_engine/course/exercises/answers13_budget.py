"""Answers to lesson 13's largest budget: right ones, and the wrong ones that people write."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

Seconds = Callable[[int], float]


def largest_budget(step_seconds: Seconds, limit: float, most: int) -> int:
    """Bisection: `low` is known to hold the limit (or is 0), `high` is known not to (or is most + 1)."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        if step_seconds(middle) <= limit:
            low = middle
        else:
            high = middle
    return low


def by_bisect(step_seconds: Seconds, limit: float, most: int) -> int:
    return bisect_right(range(1, most + 1), limit, key=step_seconds)


def by_powers(step_seconds: Seconds, limit: float, most: int) -> int:
    found, stride = 0, 1
    while stride * 2 <= most:
        stride *= 2
    while stride:
        if found + stride <= most and step_seconds(found + stride) <= limit:
            found += stride
        stride //= 2
    return found


def one_by_one(step_seconds: Seconds, limit: float, most: int) -> int:
    n = 0
    while n < most and step_seconds(n + 1) <= limit:
        n += 1
    return n


def doubles_first(step_seconds: Seconds, limit: float, most: int) -> int:
    """Looks for a budget that is over by doubling, and halves from there: up to twice as many calls."""
    high = 1
    while high <= most and step_seconds(high) <= limit:
        high *= 2
    low, high = high // 2, min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if step_seconds(middle) <= limit else (low, middle)
    return low


def by_thirds(step_seconds: Seconds, limit: float, most: int) -> int:
    low, high = 0, most + 1
    while high - low > 1:
        at = low + max(1, (high - low) // 3)
        low, high = (at, high) if step_seconds(at) <= limit else (low, at)
    return low


def powers_of_two(step_seconds: Seconds, limit: float, most: int) -> int:
    n = 1
    while 2 * n <= most and step_seconds(2 * n) <= limit:
        n *= 2
    return n if step_seconds(1) <= limit else 0


def straight_line(step_seconds: Seconds, limit: float, most: int) -> int:
    """Believes that the time is proportional to the tokens."""
    return max(0, min(most, int(limit / step_seconds(most) * most)))


def below_the_limit(step_seconds: Seconds, limit: float, most: int) -> int:
    return largest_budget(lambda n: step_seconds(n) + 1e-12 * (step_seconds(n) == limit), limit, most)


def first_over(step_seconds: Seconds, limit: float, most: int) -> int:
    return min(most, largest_budget(step_seconds, limit, most) + 1)


def never_the_most(step_seconds: Seconds, limit: float, most: int) -> int:
    return largest_budget(step_seconds, limit, most - 1)


def at_least_one(step_seconds: Seconds, limit: float, most: int) -> int:
    return max(1, largest_budget(step_seconds, limit, most))


def beyond(step_seconds: Seconds, limit: float, most: int) -> int:
    return largest_budget(step_seconds, limit, 2 * most)


def asks_for_zero(step_seconds: Seconds, limit: float, most: int) -> int:
    return largest_budget(step_seconds, limit, most) if step_seconds(0) <= limit else 0


def multiple_of_64(step_seconds: Seconds, limit: float, most: int) -> int:
    found = largest_budget(step_seconds, limit, most)
    return found // 64 * 64 if found > 64 else found
