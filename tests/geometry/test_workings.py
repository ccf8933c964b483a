"""A working adds up: every term that it calls equal is equal. And it is the text that somebody has read, in workings.txt."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

import pytest

from tests.geometry.valid_calls import ALL, Call
from tests.geometry.workings import BRANCHES, equations, texts, value

CALLS = [*ALL, *BRANCHES]
ROUNDED = 1.1e-3  # figures are printed with four digits or more, and both sides may be rounded
KEPT = Path(__file__).with_name("workings.txt")


@pytest.mark.parametrize("each", CALLS, ids=[f"{each}-{i}" for i, each in enumerate(CALLS)])
def test_what_a_working_calls_equal_is_equal(each: Call):
    text = each.function.explain(**each.arguments)
    found = list(equations(text))
    assert found or "never compute bound" in text or "no batch reaches the ridge" in text, text
    for left, right in found:
        assert value(left) == pytest.approx(value(right), rel=ROUNDED), f"{left} = {right}"


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("= 2 × 80 × 8 × 128 = 163,840 elements", "= 2 × 80 × 8 × 127 = 163,840 elements"),
        ("memory: 81,920 B = 0.08192 MB", "memory: 81,920 B = 0.8192 MB"),
        ("= 8 B, / 4 GB/s = 0.000002 ms", "= 8 B, / 3 GB/s = 0.000002 ms"),
        ("= min(2,000 // 16, 2,099 // 16) × 16 = 2,000 tokens", "= min(2,000 // 16, 209 // 16) × 16 = 2,000 tokens"),
        ("163,840 B = 0.0001638 GB = 0.0001526 GiB (160 KiB)", "163,840 B = 0.0001638 GB = 0.0001526 GiB (16 KiB)"),
    ],
)
def test_what_does_not_add_up_is_noticed(line: str, wrong: str):
    for text, right in ((line, True), (wrong, False)):
        found = [(value(a), value(b)) for a, b in equations(f"f: a sum\n  {text}")]
        assert found
        assert all(a == pytest.approx(b, rel=ROUNDED) for a, b in found) == right, found


def test_workings_are_those_that_were_read():
    """After a change that you want: python -m tests.geometry.workings > tests/geometry/workings.txt, and read the difference."""
    for printed, kept in zip_longest(texts(CALLS), KEPT.read_text(encoding="utf-8").rstrip("\n").split("\n\n")):
        assert printed == kept
