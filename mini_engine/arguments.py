"""Checks on what a caller passes in. Every error names the argument, its value and what is allowed."""

from __future__ import annotations

import math
import reprlib
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Rational
from numbers import Real as RealNumber
from typing import Any, TypeVar

N = TypeVar("N", int, Fraction)

Real = int | float | str | Decimal | Fraction
"""What `number` takes. Calculators compute with integers and fractions, whichever of these they are given."""

COUNT_LIMIT = 10**12
"""Tokens, layers, heads, requests: a count above a trillion is a slip."""
BYTES_LIMIT = 10**18
"""Sizes in bytes, and parameters: up to an exabyte."""
LEAST_POSITIVE = Fraction(1, 10**36)
"""What divides something may not be so small that the quotient means nothing."""
NUMBER_LIMIT = 10**36
"""Rates (bytes/s, FLOP/s) and amounts of work (FLOPs)."""


def count(name: str, value: Any, *, minimum: int = 1, limit: int = COUNT_LIMIT) -> int:
    """`value` as an int between `minimum` and `limit`; ValueError naming `name` for anything else."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name}={shown(value)} must be an integer of at least {minimum}")
    return _within(name, int(value), minimum, limit)


def amount(name: str, value: Any, *, minimum: int = 0, limit: int = BYTES_LIMIT) -> int:
    """Bytes or parameters as an int. A float such as 80e9 is taken when it holds a whole number."""
    number_ = number(name, value, minimum=minimum, limit=limit)
    if number_.denominator != 1:
        raise ValueError(f"{name}={shown(value)} must be a whole number")
    return number_.numerator


def number(name: str, value: Any, *, minimum: int = 0, positive: bool = False, limit: int = NUMBER_LIMIT) -> Fraction:
    """Any finite number as an exact fraction; a float counts as the decimal it is written as (0.1 is 1/10)."""
    try:
        if isinstance(value, bool):
            raise TypeError
        exact = _exact(value)
    except (TypeError, ValueError, OverflowError, ArithmeticError):
        raise ValueError(f"{name}={shown(value)} must be a finite number, such as 8, 0.5 or '1/3'") from None
    if positive and exact <= 0:
        raise ValueError(f"{name}={shown(value)} must be above 0")
    if positive and exact < LEAST_POSITIVE:
        raise ValueError(f"{name}={shown(value)} must be at least 1e-36")
    return _within(name, exact, minimum, limit)


def real(name: str, value: Any, *, minimum: int | None = None, limit: int = NUMBER_LIMIT) -> Any:
    """`value` unchanged when it is a finite number between `minimum` (default: -limit) and `limit`; for measured floats."""
    number(name, value, minimum=-limit if minimum is None else minimum, limit=limit)
    if isinstance(value, str):
        raise ValueError(f"{name}={shown(value)} must be a number, not a text")
    return value


def share(name: str, value: Any) -> Fraction:
    """A factor in (0, 1], exactly. Refuses a float that is not the decimal it is written as (0.9 is not 9/10)."""
    exact = number(name, value, positive=True)
    if exact > 1:
        raise ValueError(f"{name}={shown(value)} must be above 0 and at most 1")
    if isinstance(value, float) and Fraction(value) != exact:
        raise ValueError(
            f"{name}={value!r} is not exact as a binary float: give '{value}', Decimal('{value}') "
            f"or Fraction({exact.numerator}, {exact.denominator})"
        )
    return exact


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """`value` when it is one of `allowed`; ValueError listing them otherwise."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name}={shown(value)} must be one of {', '.join(allowed)}")
    return value


def flag(name: str, value: Any) -> bool:
    """`value` when it is True or False, not merely something that counts as either."""
    if not isinstance(value, bool):
        raise ValueError(f"{name}={shown(value)} must be True or False")
    return value


def listed(name: str, values: Any) -> list[Any]:
    """The members of a list, a tuple, an array or any other collection; ValueError for a text or a single value."""
    try:
        if isinstance(values, str | bytes):
            raise TypeError
        return list(values)
    except TypeError:
        raise ValueError(f"{name}={shown(values)} must be a list") from None


def ceil_div(numerator: int | Fraction, denominator: int | Fraction) -> int:
    """The least integer that is at least numerator / denominator, without a float on the way."""
    return math.ceil(Fraction(numerator) / Fraction(denominator))


def _exact(value: Any) -> Fraction:
    if isinstance(value, Integral):
        return Fraction(int(value))  # a NumPy integer inside a fraction would overflow
    if isinstance(value, Rational):
        return Fraction(value)
    if not isinstance(value, str | Decimal | RealNumber):  # an array of one element would turn into a float as well
        raise TypeError
    if isinstance(value, str) and "/" in value:
        return Fraction(value)
    decimal = value if isinstance(value, Decimal) else Decimal(value if isinstance(value, str) else repr(float(value)))
    if not decimal.is_finite() or abs(decimal.adjusted()) > 400:  # "1e999999999" would fill the memory as a fraction
        raise ValueError
    return Fraction(decimal)


def _within(name: str, value: N, minimum: int, limit: int) -> N:
    if value < minimum:
        least = str(minimum) if minimum > -(10**9) else f"-10**{len(str(minimum)) - 2}"
        raise ValueError(f"{name}={shown(value)} must be at least {least}")
    if limit < value:
        most = str(limit) if limit < 10**9 else f"10**{len(str(limit)) - 1}"
        raise ValueError(f"{name}={shown(value)} must be at most {most}")
    return value


def shown(value: Any) -> str:
    """A value for a message, in a few words at most: huge numbers by their size, long texts cut."""
    if isinstance(value, int | Fraction) and not isinstance(value, bool):
        if not -(10**24) < value < 10**24:  # Python refuses to print very long integers
            return f"{'-' if value < 0 else ''}a number over 10**24"
        return str(value) if len(str(value)) <= 60 else f"about {float(value):.6g}"
    try:
        return _SHORT.repr(value)
    except ValueError:  # a list that holds such an integer
        return f"a {type(value).__name__}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
