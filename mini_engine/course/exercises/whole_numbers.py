"""Comparison for exercises that ask for a whole number: any exact kind of number is right, a float is not."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from mini_engine.course.expect import fail, show


def expect_whole(got: Any, want: int, case: str) -> None:
    """Fail with `case` unless `got` is `want` as an int, a NumPy integer or a Fraction. A float is named as one."""
    exact = type(got) in (int, Fraction) or (isinstance(got, np.integer) and type(got).__module__ == "numpy")
    if exact and got == want:
        return
    note = "  (a float: it is not exact for large numbers)" if isinstance(got, (float, np.floating)) else ""
    fail(case, expected=f"{want:,}", got=f"{int(got):,}" if exact and int(got) == got else f"{show(got)}{note}")
