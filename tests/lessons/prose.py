"""Find the numbers in lesson prose that stand for a result, in English and in Chinese, and those that nothing backs."""

from __future__ import annotations

import re

from tools.lessons.twins import CODE, NUMBER_WITH_UNIT, UNIT_OF

COUNTED = (
    "tokens|token-forwards|token|sequences|requests|parameters|elements|scores|blocks|bits|"
    "FLOP per byte|FLOP/B|times|个 ?token|个序列|个请求|个参数|个元素|个块|倍"
)
COUNT = re.compile(rf"(?<![\w.])(\d[\d,]*(?:\.\d+)?)[ -]?({COUNTED})(?![A-Za-z])")
DECORATION = re.compile(r"\*\*|__|(?<=\d)[*_]|\\(?:,|;|!|mathrm|text|textbf)|[{}$~]|&nbsp;|<[^>]*>")


def plain(text: str) -> str:
    """The text without code and markup, so that **320** KiB and $320\\,\\text{KiB}$ read as they look."""
    text = CODE.sub(" ", text).replace("{,}", ",").replace(r"\%", "%")
    return re.sub(
        r"[ \u00a0\u202f]+", " ", DECORATION.sub(lambda m: "" if m[0] in ("**", "__", "*", "_") else " ", text)
    )


def measures(text: str) -> list[tuple[str, str]]:
    """(number, unit) for every number with a unit of bytes, time, share or work; how long a lesson takes is none."""
    found = [(m[1], UNIT_OF[m[2]] + m[3]) for m in NUMBER_WITH_UNIT.finditer(plain(text))]
    return [(number, unit) for number, unit in found if unit not in ("min", "h")]


def counts(text: str) -> list[tuple[str, str]]:
    """(number, noun) for every count too particular to be an example: with a decimal point, or of four digits and more."""
    found = [(m[1], m[2]) for m in COUNT.finditer(plain(text))]
    return [(number, noun) for number, noun in found if "." in number or len(number.replace(",", "")) > 3]


def loose_numbers(text: str, printed: str, code: str, facts: list[tuple[str, str]]) -> list[str]:
    """Numbers of `text` that no cell prints and no fact holds. A count may also be rounded, or stand in the code as an input does."""
    loose = [f"{n} {u}" for n, u in measures(text) if (n, u) not in facts and not stands_in(n, printed)]
    known = {number for number, _ in facts}
    seen = f"{printed}\n{code}"
    return loose + [
        f"{n} {u}" for n, u in counts(text) if n not in known and not (stands_in(n, seen) or is_rounded(n, printed))
    ]


def is_rounded(number: str, printed: str) -> bool:
    """Whether a printed number of more decimals is this one when rounded: 750.125 makes 750.1 times."""
    decimals = len(number.partition(".")[2])
    longer = (
        m[0]
        for m in re.finditer(r"(?<![\d.,])\d[\d,]*\.\d+(?![\d.])", printed)
        if len(m[0].partition(".")[2]) > decimals
    )
    return decimals > 0 and any(f"{float(each.replace(',', '')):,.{decimals}f}" == number for each in longer)


def stands_in(number: str, text: str) -> bool:
    """Whether the number stands in the text as a whole, with or without thousands separators."""
    bare = number.replace(",", "")
    digits, _, decimals = bare.partition(".")
    spaced = f"{int(digits):,}" + ("." + decimals if decimals else "")
    return any(
        re.search(rf"(?<![\d.,_]){re.escape(each)}(?!\d|[.,_]\d)", text.replace("_", "")) for each in {bare, spaced}
    )
