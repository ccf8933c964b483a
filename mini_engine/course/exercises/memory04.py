"""How much memory a call takes at once, so that a property can tell arithmetic in place from arithmetic on copies."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from mini_engine.course.expect import expect


def peak_bytes(candidate: Callable[..., Any], *arguments: Any) -> int:
    """Bytes that the call holds at its peak, on top of its arguments, as NumPy and Python report them.

    The checker keeps one copy of each array, to see whether the call changes it: those are not counted.
    """
    kept = sum(a.nbytes for a in arguments if isinstance(a, np.ndarray))
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        candidate(*arguments)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        if not running:
            tracemalloc.stop()
    return peak - before - kept


def expect_frugal(
    candidate: Callable[..., Any], arguments: tuple[Any, ...], limit: int, case: str, meaning: str
) -> None:
    """Fail with `case` when the call takes more than `limit` bytes at once; `meaning` says what `limit` stands for."""
    taken = peak_bytes(candidate, *arguments)
    expect(taken <= limit, case, expected=f"at most {limit:,} bytes at once: {meaning}", got=f"{taken:,} bytes at once")
