"""`predict` asks for a number before a cell computes it, and explains the error that a wrong number stems from."""

from __future__ import annotations

import math
import re
import textwrap
import unicodedata
from collections.abc import Callable
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
SPELLINGS = {"KB": "kB", "byte": "B", "bytes": "B", "x": "times", "×": "times", "fold": "times"}
SPELLINGS |= {"字节": "B", "位": "bits", "倍": "times"}
DECIMAL_COMMA = re.compile(
    r"[+-]?(?:\d+,\d{1,2}|\d+,\d{4,}|0,\d+)(?:[eE][+-]?\d+)?"
)  # 20,9 or 0,066; 2,952 is in thousands
THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?!\d|,)")
NUMBER_AND_UNIT = re.compile(r"([+-]?[\d,_.]+(?:[eE][+-]?\d+)?(?:/\d+)?)\s*(.*)")
WIDTH = 86  # characters
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
    print(_folded(lines))


def _folded(lines: list[str]) -> str:
    """The lines under one another at the width of a notebook beside its list of files: a browser would cut inside a word."""
    rows = [
        row for line in lines for row in textwrap.wrap(line, WIDTH - 10, break_long_words=False, break_on_hyphens=False)
    ]
    return "\n".join(f"{'          ' if number else '[predict] '}{row}" for number, row in enumerate(rows))


def _answer(question: Prediction, value: Any, unit: str) -> list[str]:
    if value is None or value is ...:
        return [f"{question.id}: {question.question}", _how_to_answer(question)]
    text_unit, number = _read(value)
    unit = str(unit or text_unit or question.unit)
    unit = question.unit if unit.startswith("个") else SPELLINGS.get(unit, unit)  # 30 个请求: a count of what is asked
    if number is None:
        return [f"{question.id}: a finite number is needed, such as 12 or 1.5"]
    factor = _factor(unit, question.unit)
    if factor is None:
        any_bytes = f"a unit of bytes: {', '.join(BYTE_UNITS)}"
        wanted = any_bytes if question.unit in BYTE_UNITS else question.unit or "no unit"
        return [f"{question.id}: {unit!r} does not fit; the question asks for {wanted}"]
    guess, right = number * factor, Fraction(question.answer)
    rounding = ROUNDING if isinstance(value, float) else 0
    rtol = max(Fraction(question.rtol), rounding)
    is_right = _close(guess, right, rtol)
    digits = 6 if is_right else _telling_digits(number, lambda shown: not _close(shown * factor, right, rtol))
    shown_unit = unit if unit == "%" else f" {_counted(number, unit)}"
    given = f"{_show(number, digits)}{shown_unit}".rstrip()
    if is_right:
        return [f"{question.id}: {given} is right.", *filter(None, [question.because])]
    return [f"{question.id}: {given} is not it.", _why(question, number, unit, guess, right)]


def _how_to_answer(question: Prediction) -> str:
    if question.unit in BYTE_UNITS:
        units = f'in {question.unit} or with another unit of bytes as text, such as "7 kB"'
        return f"Put your number in place of None, {units}, and run the cell again."
    return f"Put your number{f' of {question.unit}' if question.unit else ''} in place of None and run the cell again."


def _why(question: Prediction, number: Fraction, unit: str, guess: Fraction, right: Fraction) -> str:
    near = Fraction(1, 50) if question.rtol else ROUNDING  # 0.07 for 0.0708 is the same slip
    wrong, why = min(question.mistakes, key=lambda mistake: abs(guess - Fraction(mistake[0])), default=(right, ""))
    if _close(guess, Fraction(wrong), max(Fraction(question.rtol), near)) and abs(guess - Fraction(wrong)) < abs(
        guess - right
    ):
        return why
    other = TWINS.get(unit)
    if other and _would_be_right(question, number, other):
        sizes = " and ".join(f"1 {u} is {BYTE_UNITS[u]:,} bytes" for u in (unit, other))
        return f"That is the number of {other}, not of {unit}: {sizes}."
    meant = next((u for u in BYTE_UNITS if _would_be_right(question, number, u)), None)
    if meant and unit == question.unit:
        return f'It would be right in {meant}. Then write the unit with it: "{_show(number)} {meant}".'
    if question.unit in BYTE_UNITS and _close(guess, right * 8, question.rtol):
        return "That is the number of bits: 8 of them make a byte."
    return _how_far(guess, right, counted=question.rtol == 0 and question.unit not in BYTE_UNITS)


def _would_be_right(question: Prediction, number: Fraction, unit: str) -> bool:
    """Whether this number is the answer in another unit; False where the question is not one of bytes."""
    factor = _factor(unit, question.unit)
    return factor is not None and _close(number * factor, Fraction(question.answer), question.rtol)


def _how_far(guess: Fraction, right: Fraction, *, counted: bool) -> str:
    """Words for a number that no known mistake explains: a count is off by a sum, a size by a factor."""
    small = guess < right
    if counted and guess.denominator == 1 and abs(guess - right) == 1:
        return (
            f"It is one too {'few' if small else 'many'}. Look at where you start, where you stop, and how you round."
        )
    if counted and guess.denominator != 1 and right in (math.floor(guess), math.ceil(guess)):
        return "The answer is a whole number. Does this one round down or up?"
    method = "Write down a small case step by step." if counted else "Check each number that goes in."
    if guess <= 0 or right <= 0:
        return f"It is too {'small' if small else 'large'}. {method}"
    ratio = max(guess, right) / min(guess, right)
    if ratio >= 10**6:
        return f"It is far too {'small' if small else 'large'}."
    if counted:
        if ratio.denominator == 1 and min(guess, right) > 1:  # every count is a multiple of 1
            return f"It is {_show(ratio)} times too {'small' if small else 'large'}. If a factor is wrong, which one?"
    elif _is_plain(ratio):
        return f"It is {_show(round(ratio * 2) / Fraction(2))} times too {'small' if small else 'large'}. Which factor is that?"
    elif ratio >= 2:
        return f"It is {_show(ratio, 2)} times too {'small' if small else 'large'}. {method}"
    near = "a little " if ratio < Fraction(11, 10) else ""
    return f"It is {near}too {'small' if small else 'large'}. {method}"


def _is_plain(ratio: Fraction) -> bool:
    """Whether one forgotten factor may be behind it: 1.5, 2 to 10, a power of two, or 20, 30 ... 100, 200 ..."""
    twice = round(ratio * 2)
    if twice < 3 or abs(ratio * 2 / twice - 1) > Fraction(1, 1000):
        return False
    whole, rest = divmod(twice, 2)
    leading = int(str(whole).rstrip("0"))
    return whole == 1 if rest else leading < 10 or whole & (whole - 1) == 0


def _read(value: Any) -> tuple[str, Fraction | None]:
    """The unit written beside the number, if any, and the number; None when there is none."""
    if isinstance(value, str):
        match = NUMBER_AND_UNIT.fullmatch(unicodedata.normalize("NFKC", value).strip())  # 12.5％ is 12.5%
        if not match:
            raise ValueError
        return match[2], Fraction(_without_commas(match[1]).replace("_", ""))
    if isinstance(value, (bool, complex)):
        return "", None
    if not isinstance(value, (int, float, Fraction, np.floating)) and hasattr(value, "item"):
        value = value.item()  # NumPy and torch: one number, or an error that predict() puts in words
    if isinstance(value, (float, np.floating)):
        # The digits as typed: 23.04 is not the binary fraction next to it.
        return "", Fraction(str(value)) if math.isfinite(value) else None
    return "", Fraction(value)


def _without_commas(digits: str) -> str:
    """Digits in Python's spelling. ValueError for a comma that neither parts thousands nor stands before decimals."""
    if DECIMAL_COMMA.fullmatch(digits):
        return digits.replace(",", ".")
    if "," in digits and not THOUSANDS.match(digits):
        raise ValueError
    return digits.replace(",", "")


def _factor(unit: str, wanted: str) -> Fraction | None:
    if unit in BYTE_UNITS and wanted in BYTE_UNITS:
        return Fraction(BYTE_UNITS[unit], BYTE_UNITS[wanted])
    return Fraction(1) if unit in (wanted, _singular(wanted)) else None


def _counted(number: Fraction, unit: str) -> str:
    return _singular(unit) if number == 1 and unit not in BYTE_UNITS else unit


def _singular(unit: str) -> str:
    """One of them: passes, token-forwards, queries, requests/s. Short units such as ms have no plural."""
    counted, slash, other = unit.partition("/")
    if slash:
        return f"{_singular(counted)}/{other}"
    if len(unit) < 4 or not unit.endswith("s"):
        return unit
    if unit.endswith("ies"):
        return unit[:-3] + "y"
    return unit[:-2] if unit.endswith(("sses", "xes", "ches", "shes")) else unit[:-1]


def _close(a: Fraction, b: Fraction, rtol: float | Fraction) -> bool:
    return abs(a - b) <= abs(b) * Fraction(rtol)


def _show(number: Fraction, digits: int = 4) -> str:
    if number.denominator == 1:
        return f"{number.numerator:,}" if abs(number) < 10**21 else "that very large number"
    return f"{float(number):,.{digits}g}" if abs(number) < 10**300 else "that very large number"


def _telling_digits(number: Fraction, tells: Callable[[Fraction], bool]) -> int:
    """How many digits to show of a wrong number, so that what is shown is wrong as well: 2,157.35, not 2,157."""
    if abs(number) >= 10**15:
        return 17
    fewest = max(6, len(str(int(abs(number)))) + 2)
    return next((n for n in range(fewest, 17) if tells(Fraction(f"{float(number):.{n}g}"))), 17)
