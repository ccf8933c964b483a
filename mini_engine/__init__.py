"""mini_engine: a working LLM inference engine, small enough to read in a day."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# Where each public name lives. Imported on first use: `import mini_engine` loads neither NumPy nor torch.
_EXPORTS = {
    "CompletionOutput": "mini_engine.outputs",
    "EngineConfig": "mini_engine.config",
    "GPUSpec": "mini_engine.catalog",
    "LLM": "mini_engine.llm",
    "LLMEngine": "mini_engine.engine",
    "ModelSpec": "mini_engine.catalog",
    "RequestOutput": "mini_engine.outputs",
    "SamplingParams": "mini_engine.sampling",
    "get_gpu": "mini_engine.catalog",
    "get_model": "mini_engine.catalog",
    "list_gpus": "mini_engine.catalog",
    "list_models": "mini_engine.catalog",
}

__all__ = [
    "LLM",
    "CompletionOutput",
    "EngineConfig",
    "GPUSpec",
    "LLMEngine",
    "ModelSpec",
    "RequestOutput",
    "SamplingParams",
    "__version__",
    "get_gpu",
    "get_model",
    "list_gpus",
    "list_models",
]

if TYPE_CHECKING:
    from mini_engine.catalog import GPUSpec, ModelSpec, get_gpu, get_model, list_gpus, list_models
    from mini_engine.config import EngineConfig
    from mini_engine.engine import LLMEngine
    from mini_engine.llm import LLM
    from mini_engine.outputs import CompletionOutput, RequestOutput
    from mini_engine.sampling import SamplingParams


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_EXPORTS))
