"""Wrong answers that differ from a right one in a line or two of text: the same kernel, class or loop with one mistake."""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Callable
from typing import Any

_count = 0


def planted(right: Callable[..., Any], *changes: tuple[str, str]) -> Any:
    """The function or class out of a copy of its module, in which each (old, new) text has been changed.

    The copy's source is kept where `inspect` finds it, since Triton compiles source. ValueError unless each old text stands
    in the module just once.
    """
    global _count
    text = inspect.getsource(sys.modules[right.__module__])
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"{old!r} stands {text.count(old)} times in {right.__module__}, not once")
        text = text.replace(old, new)
    _count += 1
    where = f"<{right.__module__}, changed {_count}>"
    linecache.cache[where] = (len(text), None, text.splitlines(keepends=True), where)
    namespace: dict[str, Any] = {"__name__": right.__module__}
    exec(compile(text, where, "exec"), namespace)
    return namespace[right.__name__]
