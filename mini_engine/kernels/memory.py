"""Stop an interpreted kernel before it touches memory that is not its own.

A GPU may return garbage or stop with an error that names no line. The interpreter reads this very process's memory: an
address that is far off ends Python, and the notebook with it. Inside `memory_check` every address of every launch is looked
at first, and the first wrong one raises, at the kernel's line. An address inside the memory that a tensor is a view of counts
as that tensor's. Compiled kernels run as they are: for them there is `compute-sanitizer`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from mini_engine.kernels._mode import import_triton, is_interpreted


class WildAccessError(IndexError):
    """A kernel was about to read or write memory that belongs to none of its tensors."""


@dataclass
class Accesses:
    """What kernels read: byte addresses, one array a load, if they are recorded; masked lanes read nothing."""

    record: bool
    addresses: list[np.ndarray] = field(default_factory=list)
    memory: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # of the running kernel: first byte, one past the last

    def look(self, ptrs: Any, mask: Any, what: str) -> None:
        """WildAccessError unless all lanes that are not masked off lie in the kernel's tensors."""
        addresses = np.broadcast_to(ptrs.data, mask.data.shape)[mask.data.astype(bool)].astype(np.int64)
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
        name = min(away, key=lambda name: away[name], default="")
        if not name:
            return f"a {what}, and the kernel has no tensors"
        side = "before its first" if address < self.memory[name][0] else "past its last"
        return f"a {what} of {size} bytes outside every tensor: the nearest is {name}, {away[name]:,} bytes {side} byte"


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

    builder: Any = interpreter.InterpreterBuilder
    executor: Any = interpreter.GridExecutor
    load, store, call = builder.create_masked_load, builder.create_masked_store, executor.__call__

    def checked_load(self: Any, ptrs: Any, mask: Any, *options: Any) -> Any:
        accesses.look(ptrs, mask, "load")
        return load(self, ptrs, mask, *options)

    def checked_store(self: Any, ptrs: Any, value: Any, mask: Any, *options: Any) -> Any:
        accesses.look(ptrs, mask, "store")
        return store(self, ptrs, value, mask, *options)

    def checked_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(self.arg_names, args)) | kwargs
        accesses.memory = {name: _memory(x) for name, x in given.items() if isinstance(x, torch.Tensor)}
        return call(self, *args, **kwargs)

    builder.create_masked_load, builder.create_masked_store, executor.__call__ = (
        checked_load,
        checked_store,
        checked_call,
    )
    try:
        yield accesses
    except interpreter.InterpreterError as error:
        if isinstance(error.__cause__, WildAccessError):
            raise error.__cause__ from None
        raise
    finally:
        builder.create_masked_load, builder.create_masked_store, executor.__call__ = load, store, call


def _memory(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
