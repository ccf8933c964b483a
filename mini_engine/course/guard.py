"""What a learner's code may not do while it is being checked: change the checker, its inputs, or fill the page with text."""

from __future__ import annotations

import builtins
import contextlib
import inspect
import io
import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mini_engine.course.budget import OutOfSteps, StepBudget
from mini_engine.course.exercise import Exercise


class InputChanged(BaseException):
    """The candidate changed an argument in place. A BaseException, so that no property swallows it."""


class Watched:
    """A function with its calls written down: the last call in words, and an error when an argument was changed in place."""

    def __init__(self, function: Callable[..., Any], exercise: Exercise, budget: StepBudget) -> None:
        self._function, self._may_change, self._budget = function, exercise.may_change, budget
        self._names = [p.name for p in inspect.signature(exercise.reference).parameters.values()]
        name = getattr(function, "__name__", None)
        self.__name__ = name if type(name) is str else type(function).__name__
        self.last_call = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the learner's function. InputChanged when it changes what it may not."""
        names = [*self._names, *(f"argument {i}" for i in range(len(self._names), len(args)))]
        arguments = {**dict(zip(names, args)), **kwargs}
        self.last_call = f"{self.__name__}({', '.join(f'{n}={_brief(v)}' for n, v in arguments.items())})"
        before = {n: frozen(v) for n, v in arguments.items() if n not in self._may_change}
        result = self._function(*args, **kwargs)
        if self._budget.exceeded:  # the function swallowed the error that said so
            raise OutOfSteps
        for name, value in before.items():
            if frozen(arguments[name]) != value:
                raise InputChanged(f"the call changed its argument `{name}` in place; work on a copy")
        return result


def frozen(value: Any) -> Any:
    """A value that compares equal as long as the arrays and containers inside `value` hold the same things."""
    if type(value) is np.ndarray:
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(frozen, value))
    if isinstance(value, dict):
        return dict, tuple((frozen(k), frozen(v)) for k, v in value.items())
    if isinstance(value, (set, frozenset)):
        return frozenset(map(frozen, value))
    if isinstance(value, bytearray):
        return bytes(value)
    return value if isinstance(value, (int, float, str, bytes)) else id(value)


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if type(value).__name__ == "Tensor" and type(value).__module__ == "torch":
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    try:
        text = getattr(value, "__name__", None) or repr(value)
    except BaseException:
        text = type(value).__name__
    return text if len(text) <= 60 else text[:60] + " ..."


class Originals:
    """What a candidate may replace, as it is now: `restore` puts it back.

    That is the functions and classes of `mini_engine`, NumPy, `math` and Python, and the tables of the exercises.
    The recursion limit and NumPy's reaction to floating-point errors go back too, without a word.

    It catches a candidate that swaps a comparison or the reference while it runs. It is no prison: a notebook's own
    process cannot be one, and a teacher grades with the checks of the source, not of the submission.
    """

    def __init__(self) -> None:
        modules = [
            m for name, m in list(sys.modules.items()) if name.partition(".")[0] == "mini_engine" and m is not None
        ]
        self._saved: list[tuple[Any, str, Any]] = []
        self._tables: list[tuple[str, Any, Any]] = []
        self._limit, self._errors = sys.getrecursionlimit(), np.geterr()
        for module in [*modules, np, np.random, np.linalg, math, builtins]:
            has_tables = module.__name__.startswith("mini_engine.course.exercises.")
            for name, value in list(vars(module).items()):
                if callable(value) or isinstance(value, Exercise):
                    self._saved.append((module, name, value))
                    self._save_inside(value)
                elif has_tables and isinstance(value, (dict, list, tuple, set, str, int)) and not name.startswith("__"):
                    self._saved.append((module, name, value))
                    if isinstance(value, (dict, list, set)):
                        self._tables.append((f"{module.__name__}.{name}", value, value.copy()))

    def _save_inside(self, value: Any) -> None:
        if isinstance(value, Exercise):
            for fixed in (value, *value.properties):
                self._saved += [(fixed, name, held) for name, held in vars(fixed).items()]
            return
        home = str(getattr(value, "__module__", "")).partition(".")[0]
        if home != "mini_engine":
            return
        if isinstance(value, types.FunctionType):
            self._saved += [
                (value, name, getattr(value, name)) for name in ("__code__", "__defaults__", "__kwdefaults__")
            ]
        elif isinstance(value, type):
            self._saved += [
                (value, name, member) for name, member in vars(value).items() if isinstance(member, types.FunctionType)
            ]

    def restore(self) -> list[str]:
        """Put every original back; the names of those that had been replaced."""
        replaced = []
        for owner, name, value in self._saved:
            now = getattr(owner, name) if isinstance(owner, types.FunctionType) else vars(owner).get(name)
            if now is not value:
                put = type.__setattr__ if isinstance(owner, type) else object.__setattr__
                put(owner, name, value)  # past a frozen dataclass's own __setattr__
                replaced.append(f"{getattr(owner, '__name__', owner)}.{name}")
        for name, table, held in self._tables:
            if not _holds(table, held):
                table.clear()
                table.extend(held) if isinstance(table, list) else table.update(held)
                replaced.append(name)
        sys.setrecursionlimit(self._limit)
        np.seterr(**self._errors)
        return replaced


def _holds(table: Any, held: Any) -> bool:
    """Whether the table holds the very same objects as before, in the same order."""
    now, before = ([*t.items()] if isinstance(t, dict) else [*t] for t in (table, held))
    if isinstance(table, dict):
        now, before = ([part for pair in pairs for part in pair] for pairs in (now, before))
    return [id(x) for x in now] == [id(x) for x in before]


class _ShortText(io.TextIOBase):
    """A stream that keeps the first characters and counts the rest."""

    def __init__(self, keep: int) -> None:
        self.keep, self.text, self.dropped = keep, "", 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        room = self.keep - len(self.text)
        self.text += text[:room]
        self.dropped += max(len(text) - room, 0)
        return len(text)


@contextlib.contextmanager
def printed_text(keep: int = 400) -> Iterator[_ShortText]:
    """Collect what the block prints, on both streams, instead of showing it."""
    sink = _ShortText(keep)
    with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        yield sink
