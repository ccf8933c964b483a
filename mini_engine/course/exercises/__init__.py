"""Exercises and predictions, one module a lesson (`e01_kv_cache.py` for lesson 01), imported when first asked for."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import pkgutil
from types import ModuleType
from typing import TypeVar

from mini_engine.course.exercise import Exercise, Prediction
from mini_engine.kernels import TritonMissingError

T = TypeVar("T", Exercise, Prediction)


def lesson_modules(lesson: str = "") -> list[ModuleType]:
    """The exercise modules, of one lesson ("01") or of all, in order; those with kernels only where Triton is installed."""
    found = []
    for name in sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name.startswith(f"e{lesson}")):
        with contextlib.suppress(TritonMissingError):
            found.append(importlib.import_module(f"{__name__}.{name}"))
    return found


def all_of(kind: type[T], lesson: str = "") -> list[T]:
    """Every `Exercise` or `Prediction`, in the order in which the modules define them."""
    found = [value for module in lesson_modules(lesson) for value in vars(module).values() if isinstance(value, kind)]
    return list({value.id: value for value in found}.values())


def find(kind: type[T], id: str) -> T:
    """The exercise or prediction called `id`. KeyError names the near ids."""
    lesson = str(id).partition(".")[0]
    for value in all_of(kind, lesson if lesson.isdigit() else ""):
        if value.id == id:
            return value
    known = [value.id for value in all_of(kind)]
    near = difflib.get_close_matches(str(id), known, n=3) or known[:8]
    raise KeyError(f"no {kind.__name__.lower()} {id!r}; near: {', '.join(near) or 'none defined'}")
