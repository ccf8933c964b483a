"""Decode attention over a paged cache as Triton kernels, and the kernel that fills the cache.

Without a GPU the kernels run in Triton's interpreter: slowly, on the CPU, for reading and testing. Which of the two is
decided once, before Triton is first imported (see `_mode`). Importing this package imports neither torch nor Triton.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_EXPORTS = {
    "TritonMissingError": "mini_engine.kernels._mode",
    "TritonModeError": "mini_engine.kernels._mode",
    "WildAccessError": "mini_engine.kernels.memory",
    "combine": "mini_engine.kernels.split_combine",
    "is_interpreted": "mini_engine.kernels._mode",
    "kernel_device": "mini_engine.kernels.launch",
    "memory_check": "mini_engine.kernels.memory",
    "paged_gqa_decode": "mini_engine.kernels.gqa_decode",
    "paged_mla_decode": "mini_engine.kernels.mla_decode",
    "write_kv": "mini_engine.kernels.cache_write",
}

__all__ = [
    "TritonMissingError",
    "TritonModeError",
    "WildAccessError",
    "combine",
    "is_interpreted",
    "kernel_device",
    "memory_check",
    "paged_gqa_decode",
    "paged_mla_decode",
    "tl",
    "triton",
    "write_kv",
]

if TYPE_CHECKING:
    import triton
    import triton.language as tl

    from mini_engine.kernels._mode import TritonMissingError, TritonModeError, is_interpreted
    from mini_engine.kernels.cache_write import write_kv
    from mini_engine.kernels.gqa_decode import paged_gqa_decode
    from mini_engine.kernels.launch import kernel_device
    from mini_engine.kernels.memory import WildAccessError, memory_check
    from mini_engine.kernels.mla_decode import paged_mla_decode
    from mini_engine.kernels.split_combine import combine


def __getattr__(name: str) -> Any:
    if name in ("triton", "tl"):  # for kernels of one's own: Triton in the mode chosen, its interpreter mended
        from mini_engine.kernels._mode import import_triton

        return import_triton() if name == "triton" else import_triton().language
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)
