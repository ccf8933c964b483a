"""A memory checker for kernels in the interpreter: what they read, address by address, and a stop before what is not theirs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from mini_engine.kernels import is_interpreted


class WildAccessError(AssertionError):
    """A kernel touched memory that belongs to none of its tensors."""


@dataclass
class Accesses:
    """Byte addresses of everything read, one array a load; masked lanes read nothing."""

    addresses: list[np.ndarray] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)  # what the running kernel was given

    def of(self, tensor: torch.Tensor) -> np.ndarray:
        """Sorted offsets, in elements from its first one, of what was read of a tensor's storage; each as often as read."""
        storage = tensor.untyped_storage()
        every = np.concatenate([np.zeros(0, np.int64), *(a.ravel().astype(np.int64) for a in self.addresses)])
        begin = storage.data_ptr()
        inside = every[(every >= begin) & (every < begin + storage.nbytes())]
        return np.sort((inside - tensor.data_ptr()) // tensor.element_size())

    def check(self, addresses: np.ndarray, what: str) -> None:
        inside = np.zeros(addresses.shape, dtype=bool)
        for begin, end in self.ranges:
            inside |= (addresses >= begin) & (addresses < end)
        if not inside.all():
            raise WildAccessError(f"{what} at an address that belongs to none of the kernel's tensors")


@contextmanager
def checked() -> Iterator[Accesses]:
    """Record the loads of kernels that run meanwhile. WildAccessError, in time, where one leaves its tensors' memory.

    Compiled kernels run as they are.
    """
    accesses = Accesses()
    if not is_interpreted():
        yield accesses
        return
    from triton.runtime import interpreter

    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    load, store, call = builder.create_masked_load, builder.create_masked_store, executor.__call__

    def lanes(ptrs: Any, mask: Any) -> np.ndarray:
        return np.broadcast_to(ptrs.data, mask.data.shape)[mask.data.astype(bool)]

    def checked_load(self: Any, ptrs: Any, mask: Any, *options: Any) -> Any:
        read = lanes(ptrs, mask)
        accesses.check(read, "a load")
        accesses.addresses.append(read)
        return load(self, ptrs, mask, *options)

    def checked_store(self: Any, ptrs: Any, value: Any, mask: Any, *options: Any) -> Any:
        accesses.check(lanes(ptrs, mask), "a store")
        return store(self, ptrs, value, mask, *options)

    def checked_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        storages = [x.untyped_storage() for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
        accesses.ranges = [(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in storages]
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


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """torch.empty gives NaN meanwhile."""
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3).isnan().all()
        yield
    finally:
        torch.use_deterministic_algorithms(False)
