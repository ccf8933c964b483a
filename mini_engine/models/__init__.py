"""Models: find them, load them, run them in torch or NumPy; their tokenizers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mini_engine.data_files import data_dir
from mini_engine.models.detokenizer import IncrementalDetokenizer
from mini_engine.models.errors import CorruptModelError, ModelNotFoundError, UnsupportedModelError
from mini_engine.models.loading import LoadedModel, build_model, load_model, load_weights, open_checkpoint
from mini_engine.models.paths import available_models, find_model
from mini_engine.models.random_model import random_model

if TYPE_CHECKING:
    from mini_engine.models.decoder import DecoderModel
    from mini_engine.models.decoder_numpy import NumpyDecoder
    from mini_engine.models.tokenizer import Tokenizer

__all__ = [
    "CorruptModelError",
    "DecoderModel",
    "IncrementalDetokenizer",
    "LoadedModel",
    "ModelNotFoundError",
    "NumpyDecoder",
    "Tokenizer",
    "UnsupportedModelError",
    "available_models",
    "build_model",
    "data_dir",
    "find_model",
    "load_model",
    "load_weights",
    "open_checkpoint",
    "random_model",
]


# Imported on first use: torch takes seconds, and the tokenizer's library is not needed by models without one.
_LATER = {
    "DecoderModel": "mini_engine.models.decoder",
    "NumpyDecoder": "mini_engine.models.decoder_numpy",
    "Tokenizer": "mini_engine.models.tokenizer",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
