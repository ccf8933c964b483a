"""What every kind of KV cache has to do with an append, whatever it keeps: for the properties of lessons 01 and 05."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from mini_engine.course.expect import expect, fail

Array = np.ndarray


def appended(cache: Any, layer: int, tokens: tuple[Array, Array], case: str) -> tuple[Array, Array]:
    """Append what fits; what comes back, which has to be a pair."""
    try:
        got = cache.append(layer, *tokens)
    except MemoryError as error:
        fail(f"{case}: there is room for it", expected="no error", got=f"{type(error).__name__}: {error}")
    try:
        k_all, v_all = got
    except (TypeError, ValueError):
        fail(f"{case}: append returns a pair of arrays (k_all, v_all)", got=got)
    return k_all, v_all


def refused(cache: Any, layer: int, tokens: tuple[Array, Array], capacity: int, case: str) -> None:
    """Append what does not fit. `capacity` is no other number of the case, so a message that holds it names it."""
    wanted = "MemoryError, and a message that names the capacity"
    try:
        cache.append(layer, *tokens)
    except MemoryError as error:
        named = str(capacity) in re.findall(r"\d+", str(error))
        expect(named, f"{case}: the message names the capacity, {capacity}", got=str(error))
        return
    except (NotImplementedError, AttributeError, NameError):
        raise  # a stub or a slip, not an answer to a full cache
    except Exception as error:
        fail(f"{case}: it does not fit", expected=wanted, got=f"{type(error).__name__}: {error}")
    fail(f"{case}: it does not fit", expected=wanted, got="no error")
    raise AssertionError  # for type checkers: fail() always raises
