"""Comparisons for properties. They look at plain numbers only, so no object can pass by claiming to equal everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_SCALARS = (bool, int, float, str, bytes, type(None))


def show(value: Any, limit: int = 400) -> str:
    """A short text for a value: arrays with four digits, long things cut. Never raises."""
    try:
        if isinstance(value, np.ndarray):
            text = np.array2string(value, precision=4, threshold=24, edgeitems=2, suppress_small=True, separator=", ")
            text = f"{text}  shape {value.shape}, {value.dtype}"
        else:
            text = repr(value)
    except BaseException as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= limit else text[:limit] + " ..."


@contextmanager
def in_case(case: str) -> Iterator[None]:
    """Adds the case to what code raises meanwhile, if it is no verdict of a check."""
    try:
        yield
    except (AssertionError, NotImplementedError):
        raise
    except Exception as error:
        if len(error.args) < 2:
            error.args = (f"{error}\n{case}",)
        raise


def fail(case: str, **lines: Any) -> None:
    """Raise AssertionError with the case on the first line and the named values below, the rows of an array in line."""
    labels = {name: f"{name.replace('_', ' ')}:" for name in lines}
    width = max(map(len, labels.values()), default=0)
    rows = [case]
    for name, value in lines.items():
        text = value if isinstance(value, str) else show(value)
        first, *more = [line for line in text.splitlines() if line.strip()] or [""]
        rows += [f"{labels[name]:<{width}} {first}", *(f"{'':<{width}} {line}" for line in more)]
    raise AssertionError("\n".join(rows))


def expect(condition: bool, case: str, **lines: Any) -> None:
    """Fail with `case` and the named values unless `condition` is True (the truth of a learner's object does not count)."""
    if type(condition) not in (bool, np.bool_) or not condition:
        fail(case, **lines)


def expect_equal(got: Any, want: Any, case: str) -> None:
    """Exactly equal: same kind, same length, same values, all the way down. For counts, lists, tuples, dicts, text."""
    if not _same(got, want):
        fail(case, expected=show(want), got=f"{show(got)}{_kind_note(got, want)}")


def expect_close(
    got: Any, want: np.ndarray | float, case: str, *, rtol: float = 1e-9, atol: float = 0.0, same_dtype: bool = True
) -> None:
    """A NumPy array of the same shape and dtype whose numbers lie within `atol + rtol * max|want|` of `want`.

    The bound is relative to the largest magnitude, not to each entry, so that entries near zero need no special case.
    A NaN or infinity counts as equal only to the same.
    """
    target = np.asarray(want)
    if target.ndim and type(got) is not np.ndarray:
        fail(case, expected=f"a NumPy array of shape {target.shape}", got=show(got))
    if not target.ndim and not isinstance(got, (float, int, np.generic)) and type(got) is not np.ndarray:
        fail(case, expected=show(want), got=show(got))
    numbers = np.asarray(got)
    if numbers.dtype.kind not in "biuf":
        fail(case, expected=f"numbers of type {target.dtype}", got=f"{show(got)}, which holds {numbers.dtype}")
    if numbers.shape != target.shape:
        fail(case, expected=f"shape {target.shape}", got=f"shape {numbers.shape}")
    if same_dtype and target.ndim and numbers.dtype != target.dtype:
        fail(case, expected=f"dtype {target.dtype}", got=f"dtype {numbers.dtype}")
    finite = target[np.isfinite(target)]
    bound = atol + rtol * (float(np.abs(finite).max()) if finite.size else 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        wrong = ~(np.abs(numbers.astype(np.float64) - target) <= bound)
    wrong &= ~((numbers == target) | (np.isnan(numbers) & np.isnan(target)))
    if not wrong.any():
        return
    if not target.ndim:
        fail(case, expected=show(want), got=show(got))
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f"[{', '.join(map(str, first))}]"
    digits = next((n for n in range(6, 17) if f"{target[first]:.{n}g}" != f"{numbers[first]:.{n}g}"), 17)
    fail(
        case,
        expected=show(target),
        got=show(numbers),
        first_difference=f"at {where}: expected {target[first]:.{digits}g}, got {numbers[first]:.{digits}g} ({wrong.sum()} of {wrong.size} differ)",
    )


def expect_raises(kind: type[Exception], call: Callable[[], Any], case: str) -> Exception:
    """`call()` must raise `kind`; returns the exception. Anything else that it raises goes through unchanged."""
    try:
        got = call()
    except kind as error:
        if isinstance(error, NotImplementedError) and not issubclass(kind, NotImplementedError):
            raise  # a stub, not an answer: RuntimeError is a parent of NotImplementedError
        return error
    fail(case, expected=f"{kind.__name__} is raised", got=f"no error; it returned {show(got)}")
    raise AssertionError  # for type checkers: fail() always raises


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) and type(value).__module__ == "numpy" else value


def _same(got: Any, want: Any) -> bool:
    got, want = _plain(got), _plain(want)
    if isinstance(want, np.ndarray):
        same = type(got) is np.ndarray and got.shape == want.shape and got.dtype == want.dtype
        return bool(same and np.array_equal(got, want, equal_nan=want.dtype.kind == "f"))
    if type(got) is not type(want):
        return False
    if isinstance(want, (list, tuple)):
        return len(got) == len(want) and all(map(_same, got, want))
    if isinstance(want, dict):
        return (
            len(got) == len(want)
            and all(type(k) in _SCALARS for k in got)
            and all(k in got and _same(got[k], want[k]) for k in want)
        )
    if isinstance(want, (set, frozenset)):
        return all(type(k) in _SCALARS for k in got) and got == want
    if isinstance(want, _SCALARS):
        return bool(got == want)
    raise TypeError(
        f"expect_equal compares numbers, text, lists, tuples, dicts, sets and arrays, not {type(want).__name__}"
    )


def _kind_note(got: Any, want: Any) -> str:
    got, want = _plain(got), _plain(want)
    return "" if type(got) is type(want) else f"  ({type(got).__name__}, not {type(want).__name__})"
