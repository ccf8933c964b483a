"""What an English text and its Chinese twin must share, and the hash that shows when the English has moved on."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator

FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)\s*$", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"(?<!`)(?P<ticks>`+)(?!`)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)", re.DOTALL)
CODE = re.compile(f"{FENCE.pattern}|{INLINE_CODE.pattern}", FENCE.flags)
# A dollar opens a formula when no space follows it, and closes one when no space stands before and no digit after: "$5" is a price.
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$(?=\S)([^$\n]+?)(?<=\S)\$(?!\d)", re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)|\b(?:src|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^(#{1,6})\s", re.MULTILINE)
TAG = re.compile(r"</?([a-zA-Z][a-zA-Z0-9]*)\b[^>]*>")

UNITS = {
    "B": "bytes|byte|字节|B", "kB": "kB|KB", "MB": "MB", "GB": "GB", "TB": "TB",
    "KiB": "KiB", "MiB": "MiB", "GiB": "GiB", "TiB": "TiB",
    "ns": "ns|纳秒", "µs": "µs|μs|us|微秒", "ms": "ms|毫秒|milliseconds|millisecond",
    "s": "seconds|second|秒|s", "min": "minutes|minute|min|分钟", "h": "hours|hour|小时",
    "%": "%|％|percent", "FLOP": "FLOPs|FLOP", "GFLOP": "GFLOPs|GFLOP", "TFLOP": "TFLOPs|TFLOP",
    "W": "W", "GHz": "GHz", "MHz": "MHz",
}  # fmt: skip
UNIT_OF = {spelling: unit for unit, spellings in UNITS.items() for spelling in spellings.split("|")}
ANY_UNIT = "|".join(sorted(UNIT_OF, key=len, reverse=True))
NUMBER_WITH_UNIT = re.compile(rf"(?<![\w.])(\d[\d,]*(?:\.\d+)?)[ \u00a0-]?({ANY_UNIT})((?:/s)?)(?![A-Za-z])")


def text_hash(text: str) -> str:
    """Eight hex digits that change whenever the English text does."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:8]


def differences(english: str, chinese: str, stamp: str | None) -> list[str]:
    """What the two texts do not share, in words; [] when they are twins and the stamp is that of this English text."""
    faults = []
    if stamp is None:
        faults.append('the Chinese text has no en="..." hash; look at both, then run build_lessons.py --stamp')
    elif stamp != text_hash(english):
        faults.append(
            f"the English text has changed since it was translated (hash {text_hash(english)}, stamped {stamp})"
        )
    for (what, ours), (_, theirs) in zip(_features(english), _features(chinese)):
        if ours != theirs:
            missing, added = list((ours - theirs).elements()), list((theirs - ours).elements())
            faults.append(f"{what} differ: only in English {missing}, only in Chinese {added}")
    return faults


def _features(text: str) -> Iterator[tuple[str, Counter[str]]]:
    yield "code blocks", Counter(m.group(0).strip() for m in FENCE.finditer(text))
    text = FENCE.sub("", text)
    yield "inline code", Counter(m["code"].strip() for m in INLINE_CODE.finditer(text))
    text = INLINE_CODE.sub("", text)
    yield "formulas", Counter((m.group(1) or m.group(2)).strip() for m in FORMULA.finditer(text))
    text = FORMULA.sub("", text)
    yield "links", Counter(m.group(1) or m.group(2) for m in LINK.finditer(text))
    text = LINK.sub("](", text)
    yield "heading levels", Counter(m.group(1) for m in HEADING.finditer(text))
    yield "HTML tags", Counter(m.group(0).partition(" ")[0].strip("<>") for m in TAG.finditer(text))
    numbers = ((m.group(1).replace(",", ""), UNIT_OF[m.group(2)] + m.group(3)) for m in NUMBER_WITH_UNIT.finditer(text))
    yield "numbers with units", Counter(" ".join(pair) for pair in numbers)
