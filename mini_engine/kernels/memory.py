"""Stop an interpreted kernel before it touches memory that is not its own.

A GPU may return garbage or stop with an error that names no line. The interpreter reads this very process's memory: an
address that is far off ends Python, and the notebook with it. Inside `memory_check` every address of every launch is looked
at first, and the first wrong one raises, at the kernel's line. An address inside the memory that a tensor is a view of counts
as that tensor's. Compiled kernels run as they are: for them there is `compute-sanitizer`.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from mini_engine.kernels import interpreter_hooks as hooks
from mini_engine.kernels._mode import import_triton, is_interpreted
from mini_engine.kernels.interpreter_hooks import interpreter_hooks


class WildAccessError(IndexError):
    """A kernel was about to read or write memory that belongs to none of its tensors."""


@dataclass
class Accesses:
    """What kernels read: byte addresses, one array a load, if they are recorded; masked lanes read nothing."""

    record: bool
    addresses: list[np.ndarray] = field(default_factory=list)
    memory: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of the running kernel's tensors: first byte, one past the last."""

    def look(self, ptrs: Any, addresses: np.ndarray, what: str) -> None:
        """WildAccessError unless all addresses lie in the kernel's tensors."""
        size = max(1, ptrs.get_element_ty().primitive_bitwidth // 8)
        inside = np.zeros(addresses.shape, dtype=bool)
        for begin, end in self.memory.values():
            inside |= (addresses >= begin) & (addresses + size <= end)
        if not inside.all():
            raise WildAccessError(self._message(int(addresses[~inside][0]), size, what))
        if self.record and what == "load":
            self.addresses.append(addresses)

    def of(self, tensor: torch.Tensor) -> np.ndarray:
        """Sorted offsets, in elements from its first one, of what was read of a tensor's memory; each as often as read."""
        begin, end = _memory(tensor)
        every = np.concatenate([np.zeros(0, np.int64), *self.addresses])
        return np.sort((every[(every >= begin) & (every < end)] - tensor.data_ptr()) // tensor.element_size())

    def _message(self, address: int, size: int, what: str) -> str:
        away = {name: max(begin - address, address + size - end) for name, (begin, end) in self.memory.items()}
        nearest = min(away, key=lambda name: away[name], default="")
        if not nearest:
            return f"a {what}, and the kernel has no tensors"
        named = _named_in_the_kernels_line(tuple(away))
        name, how = (named, "through") if named else (nearest, "the nearest is")
        side = "before its first" if address < self.memory[name][0] else "past its last"
        return f"a {what} of {size} bytes outside every tensor: {how} {name}, {away[name]:,} bytes {side} byte"


@contextmanager
def memory_check(record: bool = False) -> Iterator[Accesses]:
    """Look at every address of the kernels that are interpreted meanwhile; WildAccessError before the first wrong one.

    record: also keep what they read, in the object that this gives.
    """
    accesses = Accesses(record)
    if not is_interpreted():
        yield accesses
        return
    import_triton()
    from triton.runtime import interpreter

    def look_at_launch(executor: Any, arguments: dict[str, Any], run: Callable[[], Any]) -> Any:
        accesses.memory = {name: _memory(x) for name, x in arguments.items() if isinstance(x, torch.Tensor)}
        return run()

    look = accesses.look
    try:
        with interpreter_hooks(
            lambda ptrs, lanes: look(ptrs, lanes, "load"),
            lambda ptrs, lanes: look(ptrs, lanes, "store"),
            look_at_launch,
        ):
            yield accesses
    except interpreter.InterpreterError as error:
        if isinstance(error.__cause__, WildAccessError):
            raise error.__cause__ from None
        raise


def _named_in_the_kernels_line(names: Sequence[str]) -> str:
    """The one of these arguments that the kernel's own code is using just now; "" if that names none, or several.

    An address does not tell what it was made from: the memory that it is nearest to may be another tensor's.
    """
    frame: Any = sys._getframe()
    while frame and (frame.f_code.co_filename in (__file__, hooks.__file__) or _is_tritons(frame)):
        frame = frame.f_back
    if frame is None:
        return ""
    begin, end, first, last = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    if begin is None or end is None or first is None or last is None:
        return ""
    lines = [linecache.getline(frame.f_code.co_filename, i) for i in range(begin, end + 1)]
    lines[-1] = lines[-1][:last]
    lines[0] = lines[0][first:]
    words = set(re.findall(r"\w+", "".join(lines)))
    named = [name for name in names if name in words]
    return named[0] if len(named) == 1 else ""


def _is_tritons(frame: Any) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "triton"


def _memory(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
