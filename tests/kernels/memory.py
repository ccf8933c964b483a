"""What a kernel reads, address by address, as the interpreter sees it; and memory that is poisoned when it is allocated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch


@dataclass
class Reads:
    """Byte addresses of everything read, one array a load; masked lanes read nothing."""

    addresses: list[np.ndarray] = field(default_factory=list)

    def of(self, tensor: torch.Tensor) -> np.ndarray:
        """Sorted offsets, in elements from its first one, of what was read of a tensor's storage; each as often as read."""
        storage = tensor.untyped_storage()
        every = np.concatenate([np.zeros(0, np.int64), *(a.ravel().astype(np.int64) for a in self.addresses)])
        begin = storage.data_ptr()
        inside = every[(every >= begin) & (every < begin + storage.nbytes())]
        return np.sort((inside - tensor.data_ptr()) // tensor.element_size())


@contextmanager
def recorded() -> Iterator[Reads]:
    """Record the loads of kernels that run meanwhile in the interpreter."""
    from triton.runtime.interpreter import InterpreterBuilder

    reads, original = Reads(), InterpreterBuilder.create_masked_load

    def load(self, ptrs, mask, other, *options):  # type: ignore[no-untyped-def]
        reads.addresses.append(np.broadcast_to(ptrs.data, mask.data.shape)[mask.data])
        return original(self, ptrs, mask, other, *options)

    InterpreterBuilder.create_masked_load = load
    try:
        yield reads
    finally:
        InterpreterBuilder.create_masked_load = original


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """torch.empty gives NaN meanwhile."""
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3).isnan().all()
        yield
    finally:
        torch.use_deterministic_algorithms(False)
