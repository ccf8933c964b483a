"""Interpreted or compiled: decided once, before Triton is first imported.

Triton decorates its own library when it is imported, for the interpreter or for the compiler, and cannot change its mind
afterwards. So `import_triton` must come first. `transformers` and `torch._dynamo` import Triton too: whoever needs them
beside the kernels calls `choose_mode` before (as `tests/conftest.py` does), or sets TRITON_INTERPRET.

TRITON_INTERPRET=1 or =0 in the environment decides. Without it, kernels are compiled if torch finds a GPU.
"""

from __future__ import annotations

import ctypes.util
import os
import sys
from pathlib import Path
from types import ModuleType

VARIABLE = "TRITON_INTERPRET"
DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # NVIDIA, Windows' Linux, AMD


class TritonMissingError(ImportError):
    """Triton is not installed."""


class TritonModeError(RuntimeError):
    """Triton was imported before its mode was chosen, in the other mode."""


def choose_mode() -> bool:
    """Decide, and leave the decision in TRITON_INTERPRET; True for the interpreter.

    Raises TritonModeError where Triton has been imported in the other mode.
    """
    given = os.environ.get(VARIABLE, "")
    interpreted = given.lower() in ("1", "true", "on", "yes", "y") if given else not _gpu_found()
    loaded = _loaded_mode()
    if loaded is not None and loaded != interpreted:
        raise TritonModeError(
            f"Triton has been imported {_name(loaded)}, and here it must be {_name(interpreted)}: import "
            f"mini_engine.kernels before anything that imports Triton (transformers and torch._dynamo do), or set "
            f"{VARIABLE}={int(interpreted)} before Python starts. In a notebook: restart the kernel first."
        )
    os.environ[VARIABLE] = str(int(interpreted))
    return interpreted


def import_triton() -> ModuleType:
    """Triton in the mode chosen. TritonMissingError where it is not installed, TritonModeError as `choose_mode`."""
    interpreted = choose_mode()
    try:
        import triton
    except ImportError as error:
        raise TritonMissingError(
            f"the kernels need Triton, which cannot be imported here ({error}). On Linux: pip install triton==3.7.1. "
            "Elsewhere use backend='torch'; everything but the kernels works without Triton."
        ) from error
    if interpreted:
        from mini_engine.kernels import bf16_shim

        bf16_shim.install()
    return triton


def is_interpreted() -> bool:
    """Whether kernels run in the interpreter, on the CPU."""
    return choose_mode()


def _gpu_found() -> bool:
    if ctypes.util.find_library("cuda") is None and not any(Path(driver).exists() for driver in DRIVERS):
        return False  # no need to wait for torch
    import torch

    return torch.cuda.is_available()  # of torch for AMD too


def _loaded_mode() -> bool | None:
    """Whether Triton, if it has been imported, was imported for the interpreter."""
    language = sys.modules.get("triton.language")
    if language is None or not hasattr(language, "sum"):
        return None
    return type(language.sum).__name__ == "InterpretedFunction"


def _name(interpreted: bool) -> str:
    return "for the interpreter" if interpreted else "for the compiler"
