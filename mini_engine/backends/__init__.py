"""Where tensors live: caches and the code that reads them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

# Imported on first use: naming the audit backend must not load torch.
_EXPORTS = {
    "AuditBackend": "mini_engine.backends.audit",
    "Backend": "mini_engine.backends.base",
    "BatchBuilder": "mini_engine.backends.batch",
    "BatchInput": "mini_engine.backends.base",
    "KVCorruption": "mini_engine.backends.audit",
    "NumpyBackend": "mini_engine.backends.numpy_backend",
    "SimulatedBackend": "mini_engine.backends.simulated",
    "StepResult": "mini_engine.backends.base",
    "TorchBackend": "mini_engine.backends.torch_backend",
    "TritonBackend": "mini_engine.backends.triton_backend",
}

__all__ = [
    "AuditBackend",
    "Backend",
    "BatchBuilder",
    "BatchInput",
    "KVCorruption",
    "NumpyBackend",
    "SimulatedBackend",
    "StepResult",
    "TorchBackend",
    "TritonBackend",
]

if TYPE_CHECKING:
    from mini_engine.backends.audit import AuditBackend, KVCorruption
    from mini_engine.backends.base import Backend, BatchInput, StepResult
    from mini_engine.backends.batch import BatchBuilder
    from mini_engine.backends.numpy_backend import NumpyBackend
    from mini_engine.backends.simulated import SimulatedBackend
    from mini_engine.backends.torch_backend import TorchBackend
    from mini_engine.backends.triton_backend import TritonBackend


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)
