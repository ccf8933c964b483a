"""Lesson 11, right and wrong ways to find the number of heads at which MLA decode reaches a ridge."""

from __future__ import annotations

import math
from fractions import Fraction


def by_counting(d_c: int, d_r: int, ridge: Fraction, s_q: int = 1) -> int:
    """One head more until the work for a byte is enough: the oracle. Work and bytes of one token, 2-byte numbers."""
    n_h = 1
    while Fraction(2 * n_h * s_q * ((d_c + d_r) + d_c), 2 * (d_c + d_r)) < ridge:
        n_h += 1
    return n_h


def by_division(d_c: int, d_r: int, ridge: Fraction, s_q: int = 1) -> int:
    return math.ceil(ridge * (d_c + d_r) / (s_q * (2 * d_c + d_r)))


def factor_of_two(d_c: int, d_r: int, ridge: Fraction, s_q: int = 1) -> int:
    return math.ceil(ridge / (2 * s_q))


def scores_only(d_c: int, d_r: int, ridge: Fraction, s_q: int = 1) -> int:
    return math.ceil(ridge / s_q)


def a_latent_for_each_use(d_c: int, d_r: int, ridge: Fraction, s_q: int = 1) -> int:
    return math.ceil(ridge * (2 * d_c + d_r) / (s_q * (2 * d_c + d_r)))


def four_flops(d_c: int, d_r: int, ridge: Fraction, s_q: int = 1) -> int:
    return math.ceil(ridge * (d_c + d_r) / (2 * s_q * (2 * d_c + d_r)))


def one_query(d_c: int, d_r: int, ridge: Fraction, s_q: int = 1) -> int:
    return by_division(d_c, d_r, ridge)


def queries_multiply(d_c: int, d_r: int, ridge: Fraction, s_q: int = 1) -> int:
    return by_division(d_c, d_r, ridge * s_q)


def rounds_down(d_c: int, d_r: int, ridge: Fraction, s_q: int = 1) -> int:
    return max(1, math.floor(ridge * (d_c + d_r) / (s_q * (2 * d_c + d_r))))


def to_the_nearest(d_c: int, d_r: int, ridge: Fraction, s_q: int = 1) -> int:
    return max(1, round(ridge * (d_c + d_r) / (s_q * (2 * d_c + d_r))))


def one_more(d_c: int, d_r: int, ridge: Fraction, s_q: int = 1) -> int:
    return math.floor(ridge * (d_c + d_r) / (s_q * (2 * d_c + d_r))) + 1


def a_quotient(d_c: int, d_r: int, ridge: Fraction, s_q: int = 1) -> Fraction:
    return ridge * (d_c + d_r) / (s_q * (2 * d_c + d_r))


def a_whole_fraction(d_c: int, d_r: int, ridge: Fraction, s_q: int = 1) -> Fraction:
    return Fraction(by_division(d_c, d_r, ridge, s_q))


def in_floats(d_c: int, d_r: int, ridge: Fraction, s_q: int = 1) -> int:
    return math.ceil(float(ridge) / (s_q * ((2 * d_c + d_r) / (d_c + d_r))))
