"""Answers to lesson 03's threshold: right ones, written another way, and the wrong ones that people write."""

from __future__ import annotations

import math
from fractions import Fraction


def intensity(M: int, R: int, C: int) -> Fraction:
    """FLOP per byte, counted from the definition: the oracle."""
    return Fraction(2 * M * R * C, 2 * (M * R) + 2 * (R * C) + 2 * (M * C))


def can(R: int, C: int, ridge: Fraction) -> bool:
    return Fraction(R * C, R + C) > ridge


def by_counting(R: int, C: int, ridge: Fraction) -> int | None:
    if not can(R, C, ridge):
        return None
    M = 1
    while intensity(M, R, C) < ridge:
        M += 1
    return M


def by_reciprocals(R: int, C: int, ridge: Fraction) -> int | None:
    room = 1 / ridge - Fraction(1, R) - Fraction(1, C)
    return math.ceil(1 / room) if room > 0 else None


def float_reciprocals(R: int, C: int, ridge: Fraction) -> int | None:
    room = 1 / ridge - 1 / R - 1 / C
    return math.ceil(1 / room) if room > 1e-12 else None


def float_quotient(R: int, C: int, ridge: Fraction) -> int | None:
    gain = R * C - ridge * (R + C)
    return math.ceil(float(ridge) * R * C / gain) if gain > 0 else None


def float_and_a_little_off(R: int, C: int, ridge: Fraction) -> int | None:
    room = 1 - float(ridge) * (1 / R + 1 / C)
    return math.ceil(float(ridge) / room - 1e-9) if room > 1e-12 else None


def float_loop(R: int, C: int, ridge: Fraction) -> int | None:
    M = 1
    while can(R, C, ridge) and ridge > M * R * C / (M * R + R * C + M * C):
        M += 1
    return M if can(R, C, ridge) else None


def float_ridge(R: int, C: int, ridge: Fraction) -> int | None:
    M, rounded = 1, float(ridge)
    while can(R, C, ridge) and rounded * (M * R + R * C + M * C) > M * R * C:
        M += 1
    return M if can(R, C, ridge) else None


def float_limit(R: int, C: int, ridge: Fraction) -> int | None:
    return None if float(ridge) * (R + C) >= R * C else by_counting(R, C, ridge) or 10**9


def the_limit(R: int, C: int, ridge: Fraction) -> int | None:
    return math.ceil(ridge) if can(R, C, ridge) else None


def rounds_down(R: int, C: int, ridge: Fraction) -> int | None:
    gain = R * C - ridge * (R + C)
    return max(1, math.floor(ridge * R * C / gain)) if gain > 0 else None


def one_more(R: int, C: int, ridge: Fraction) -> int | None:
    gain = R * C - ridge * (R + C)
    return math.floor(ridge * R * C / gain) + 1 if gain > 0 else None


def square_only(R: int, C: int, ridge: Fraction) -> int | None:
    if not can(R, C, ridge):
        return None
    side = max(R, C)
    return math.ceil(ridge * side / (side - 2 * ridge))


def always_some(R: int, C: int, ridge: Fraction) -> int:
    gain = R * C - ridge * (R + C)
    return math.ceil(ridge * R * C / abs(gain)) if gain else 10**9


def forgets_output(R: int, C: int, ridge: Fraction) -> int | None:
    return math.ceil(ridge * R * C / (R * C - ridge * R)) if can(R, C, ridge) else None


def limit_is_d(R: int, C: int, ridge: Fraction) -> int | None:
    if min(R, C) <= ridge:
        return None
    gain = R * C - ridge * (R + C)
    return math.ceil(ridge * R * C / gain) if gain > 0 else 0


def limit_included(R: int, C: int, ridge: Fraction) -> int | None:
    gain = R * C - ridge * (R + C)
    if gain < 0:
        return None
    return math.ceil(ridge * R * C / gain) if gain else 10**12


def a_float(R: int, C: int, ridge: Fraction) -> float | None:
    gain = R * C - ridge * (R + C)
    return float(ridge * R * C / gain) if gain > 0 else None
