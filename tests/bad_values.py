"""Values that no calculator may take for a number, and how a refusal must look."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

NEVER = [
    float("nan"), float("inf"), -float("inf"), Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), np.float64("nan"),
    10**400, 10**5000, -(10**5000), 1e308, "", "many", "1e999999999", "1" * 5000, b"1", 1j, object(), len, np.array(3), [None],
    {"a": float("nan")},
]  # fmt: skip
"""Refused by every argument that is a number."""

SOMETIMES = [
    0,
    -1,
    1.5,
    None,
    "8",
    True,
    False,
    np.True_,
    np.int64(3),
    [1],
    (),
    {},
    [1.5, 2],
    np.array([1, 2]),
    Fraction(1, 3),
    1e-320,
]
"""Refused, or valid and then computed with: it depends on the argument."""


def is_refused(function: Callable[..., Any], arguments: dict[str, Any], name: str, bad: Any) -> None:
    """The call raises ValueError with one short sentence that names the argument."""
    with pytest.raises(ValueError, match=rf"\b{name}\b") as caught:
        function(**arguments | {name: bad})
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def is_refused_or_computed(function: Callable[..., Any], arguments: dict[str, Any], name: str, value: Any) -> None:
    """The same, or the result is printed without nan and inf."""
    try:
        result = function(**arguments | {name: value})
    except ValueError:
        is_refused(function, arguments, name, value)
    else:
        assert not re.search(r"\b(nan|inf)\b", f"{result} {result!r}"), (name, value)
