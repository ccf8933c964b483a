"""`predict` asks for a number before a cell computes it, and explains the error that a wrong number stems from."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np

from mini_engine.course.exercise import Prediction
from mini_engine.course.exercises import find

BYTE_UNITS = {
    "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
TWINS = {"kB": "KiB", "MB": "MiB", "GB": "GiB", "TB": "TiB"}  # confused with one another
TWINS |= {binary: decimal for decimal, binary in TWINS.items()}
SPELLINGS = {"KB": "kB", "byte": "B", "bytes": "B"}
NUMBER_AND_UNIT = re.compile(r"([+-]?[\d,_.]+(?:[eE][+-]?\d+)?(?:/\d+)?)\s*(.*)")
ROUNDING = Fraction(1, 10**12)  # of a float that was computed, such as 22.5 * 1.024


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
    if value is None or value is ...:
        return [f"{question.id}: {question.question}", _how_to_answer(question)]
    text_unit, number = _read(value)
    unit = str(unit or text_unit or question.unit)
    unit = SPELLINGS.get(unit, unit)
    if number is None:
        return [f"{question.id}: a finite number is needed, such as 12 or 1.5"]
    factor = _factor(unit, question.unit)
    if factor is None:
        any_bytes = f"a unit of bytes: {', '.join(BYTE_UNITS)}"
        wanted = any_bytes if question.unit in BYTE_UNITS else question.unit or "no unit"
        return [f"{question.id}: {unit!r} does not fit; the question asks for {wanted}"]
    given = f"{_show(number)} {_counted(number, unit)}".rstrip()
    guess, right = number * factor, Fraction(question.answer)
    rounding = ROUNDING if isinstance(value, float) else 0
    if _close(guess, right, max(Fraction(question.rtol), rounding)):
        return [f"{question.id}: {given} is right.", *filter(None, [question.because])]
    return [f"{question.id}: {given} is not it.", _why(question, number, unit, guess, right)]


def _how_to_answer(question: Prediction) -> str:
    if question.unit in BYTE_UNITS:
        units = f'in {question.unit} or with another unit of bytes as text, such as "7 kB"'
        return f"Put your number in place of None, {units}, and run the cell again."
    return f"Put your number{f' of {question.unit}' if question.unit else ''} in place of None and run the cell again."


def _why(question: Prediction, number: Fraction, unit: str, guess: Fraction, right: Fraction) -> str:
    for wrong, why in question.mistakes:
        if _close(guess, Fraction(wrong), max(Fraction(question.rtol), ROUNDING)):
            return why
    other = TWINS.get(unit)
    if other and _close(number * (_factor(other, question.unit) or 0), right, question.rtol):
        sizes = " and ".join(f"1 {u} is {BYTE_UNITS[u]:,} bytes" for u in (unit, other))
        return f"That is the number of {other}, not of {unit}: {sizes}."
    if question.unit in BYTE_UNITS and _close(guess, right * 8, question.rtol):
        return "That is the number of bits: 8 of them make a byte."
    return _how_far(guess, right, counted=question.rtol == 0 and question.unit not in BYTE_UNITS)


def _how_far(guess: Fraction, right: Fraction, *, counted: bool) -> str:
    """Words for a number that no known mistake explains: a count is off by a sum, a size by a factor."""
    small = guess < right
    if counted and guess.denominator == 1 and abs(guess - right) == 1:
        return f"It is one too {'few' if small else 'many'}. Look at the first step and at the last."
    if guess <= 0 or right <= 0:
        return f"It is too {'small' if small else 'large'}."
    ratio = max(guess, right) / min(guess, right)
    if ratio >= 10**6:
        return f"It is far too {'small' if small else 'large'}."
    whole = ratio.denominator == 1 and min(guess, right) > 1  # every count is a multiple of 1
    if whole if counted else ratio >= Fraction(11, 10):
        return f"It is {_show(ratio)} times too {'small' if small else 'large'}. Which factor is that?"
    near = "a little " if ratio < Fraction(11, 10) else ""
    method = "Write down a small case step by step." if counted else "Check each number that goes in."
    return f"It is {near}too {'small' if small else 'large'}. {method}"


def _read(value: Any) -> tuple[str, Fraction | None]:
    """The unit written beside the number, if any, and the number; None when there is none."""
    if isinstance(value, str):
        match = NUMBER_AND_UNIT.fullmatch(value.strip())
        if not match:
            raise ValueError
        return match[2], Fraction(match[1].replace(",", "").replace("_", ""))
    if isinstance(value, (bool, complex)):
        return "", None
    if not isinstance(value, (int, float, Fraction, np.floating)) and hasattr(value, "item"):
        value = value.item()  # NumPy and torch: one number, or an error that predict() puts in words
    if isinstance(value, (float, np.floating)):
        # The digits as typed: 23.04 is not the binary fraction next to it.
        return "", Fraction(str(value)) if math.isfinite(value) else None
    return "", Fraction(value)


def _factor(unit: str, wanted: str) -> Fraction | None:
    if unit in BYTE_UNITS and wanted in BYTE_UNITS:
        return Fraction(BYTE_UNITS[unit], BYTE_UNITS[wanted])
    return Fraction(1) if unit in (wanted, _singular(wanted)) else None


def _counted(number: Fraction, unit: str) -> str:
    return _singular(unit) if number == 1 and unit not in BYTE_UNITS else unit


def _singular(unit: str) -> str:
    """One of them: passes, token-forwards, queries. Short units such as ms have no plural."""
    if len(unit) < 4 or not unit.endswith("s"):
        return unit
    if unit.endswith("ies"):
        return unit[:-3] + "y"
    return unit[:-2] if unit.endswith(("sses", "xes", "ches", "shes")) else unit[:-1]


def _close(a: Fraction, b: Fraction, rtol: float | Fraction) -> bool:
    return abs(a - b) <= abs(b) * Fraction(rtol)


def _show(number: Fraction) -> str:
    if number.denominator == 1:
        return f"{number.numerator:,}" if abs(number) < 10**21 else "that very large number"
    return f"{float(number):,.4g}" if abs(number) < 10**300 else "that very large number"
