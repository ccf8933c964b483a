"""`predict` asks for a number before a cell computes it, and explains the error that a wrong number stems from."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from mini_engine.course.exercise import Prediction
from mini_engine.course.exercises import find

BYTE_UNITS = {
    "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
TWINS = {"kB": "KiB", "MB": "MiB", "GB": "GiB", "TB": "TiB"}  # confused with one another
TWINS |= {binary: decimal for decimal, binary in TWINS.items()}


def predict(id: str, value: Any = None, unit: str = "") -> None:
    """Ask the question `id`; with a `value`, say whether it is right and, if not, where such a number comes from.

    unit: the unit of `value`; the question's own when left out. Bytes may be given in any unit from B to TiB.
    Prints lines that start with [predict] or a space. Never raises, whatever `value` is.
    """
    try:
        lines = _answer(find(Prediction, id), value, unit)
    except KeyError as error:
        lines = [str(error.args[0])]
    except Exception as error:
        lines = [f"this cannot be read as a number ({type(error).__name__}); write 12 or 1.5"]
    print("\n".join(["[predict] " + lines[0], *("          " + line for line in lines[1:])]))


def _answer(question: Prediction, value: Any, unit: str) -> list[str]:
    if value is None:
        return [
            f"{question.id}: {question.question}",
            f'Put your number in: predict("{question.id}", ...{_unit_hint(question)})',
        ]
    text_unit, number = _read(value)
    unit = str(unit or text_unit or question.unit)
    if number is None:
        return [f"{question.id}: a finite number is needed, such as 12 or 1.5"]
    factor = _factor(unit, question.unit)
    if factor is None:
        wanted = "a unit of bytes, from B to TiB" if question.unit in BYTE_UNITS else question.unit or "no unit"
        return [f"{question.id}: {unit!r} does not fit; the question asks for {wanted}"]
    given, guess, right = f"{_show(number)} {unit}".rstrip(), number * factor, Fraction(question.answer)
    if _close(guess, right, question.rtol):
        return [f"{question.id}: {given} is right.", *filter(None, [question.because])]
    return [f"{question.id}: {given} is not it.", _why(question, number, unit, guess, right)]


def _unit_hint(question: Prediction) -> str:
    return f', unit="{question.unit}"' if question.unit else ""


def _why(question: Prediction, number: Fraction, unit: str, guess: Fraction, right: Fraction) -> str:
    for wrong, why in question.mistakes:
        if _close(guess, Fraction(wrong), question.rtol):
            return why
    other = TWINS.get(unit)
    if other and _close(number * (_factor(other, question.unit) or 0), right, question.rtol):
        sizes = " and ".join(f"1 {u} is {BYTE_UNITS[u]:,} bytes" for u in (unit, other))
        return f"That is the number of {other}, not of {unit}: {sizes}."
    if question.unit in BYTE_UNITS and _close(guess, right * 8, question.rtol):
        return "That is the number of bits: 8 of them make a byte."
    if guess <= 0 or right <= 0:
        return f"It is too {'small' if guess < right else 'large'}."
    ratio = max(guess, right) / min(guess, right)
    times = f"{_show(ratio)} times" if ratio < 10**6 else "far"
    return f"It is {times} too {'small' if guess < right else 'large'}. Which factor is that?"


def _read(value: Any) -> tuple[str, Fraction | None]:
    """The unit written beside the number, if any, and the number; None when there is none."""
    if isinstance(value, str):
        number, _, unit = value.strip().replace(",", "").replace("_", "").partition(" ")
        value = number.rstrip("".join({c for u in (*BYTE_UNITS, "%") for c in u}))
        unit = unit.strip() or number[len(value) :]
        return unit, Fraction(value)
    if isinstance(value, (bool, complex)):
        return "", None
    if not isinstance(value, (int, float, Fraction)) and hasattr(value, "item"):
        value = value.item()  # NumPy and torch: one number, or an error that predict() puts in words
    if isinstance(value, float) and not math.isfinite(value):
        return "", None
    return "", Fraction(value)


def _factor(unit: str, wanted: str) -> Fraction | None:
    if unit in BYTE_UNITS and wanted in BYTE_UNITS:
        return Fraction(BYTE_UNITS[unit], BYTE_UNITS[wanted])
    return Fraction(1) if unit == wanted else None


def _close(a: Fraction, b: Fraction, rtol: float) -> bool:
    return abs(a - b) <= abs(b) * Fraction(rtol)


def _show(number: Fraction) -> str:
    if number.denominator == 1:
        return f"{number.numerator:,}" if abs(number) < 10**21 else "that very large number"
    return f"{float(number):,.4g}" if abs(number) < 10**300 else "that very large number"
