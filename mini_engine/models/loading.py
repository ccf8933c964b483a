"""`load_model`: from a name or a path to a model that runs and its tokenizer."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mini_engine.catalog import ModelSpec
from mini_engine.models.checkpoint import Checkpoint
from mini_engine.models.errors import CorruptModelError
from mini_engine.models.paths import find_model

if TYPE_CHECKING:
    import torch

    from mini_engine.models.decoder import DecoderModel
    from mini_engine.models.decoder_numpy import NumpyDecoder
    from mini_engine.models.gguf_file import GGUFFile
    from mini_engine.models.hf_folder import HFFolder
    from mini_engine.models.tokenizer import Tokenizer


@dataclass(frozen=True)
class LoadedModel:
    """A model, its tokenizer, its shape, and where it came from."""

    model: DecoderModel | NumpyDecoder
    tokenizer: Tokenizer
    spec: ModelSpec
    path: Path


def open_checkpoint(name_or_path: str | os.PathLike[str]) -> HFFolder | GGUFFile:
    """Open a Hugging Face folder or a GGUF file and check its configuration and headers; no weight is read yet."""
    # What reads a format is imported with the first such file: random models need neither.
    path = find_model(name_or_path)
    if path.is_dir():
        from mini_engine.models.hf_folder import HFFolder

        return HFFolder(path)
    if path.suffix == ".gguf":
        from mini_engine.models.gguf_file import GGUFFile

        return GGUFFile(path)
    raise CorruptModelError(
        f"{path}: expected a folder with config.json or a .gguf file; give the folder that holds this file"
    )


def load_model(
    name_or_path: str | os.PathLike[str], *, backend: str = "torch", device: Any = None, dtype: Any = None
) -> LoadedModel:
    """Load weights and tokenizer of "smollm2-135m", "tiny-gqa", "tiny-mla", a Hugging Face folder or a .gguf file.

    Defaults: torch in float32 on the CPU, NumPy in float64. Raises ModelNotFoundError, UnsupportedModelError, CorruptModelError.
    """
    checkpoint = open_checkpoint(name_or_path)
    tokenizer = checkpoint.tokenizer()  # before the weights: it is quick to fail
    model = build_model(checkpoint, backend=backend, device=device, dtype=dtype)
    return LoadedModel(model, tokenizer, checkpoint.spec, checkpoint.path)


def load_weights(
    name_or_path: str | os.PathLike[str], *, backend: str = "torch", device: Any = None, dtype: Any = None
) -> DecoderModel | NumpyDecoder:
    """The model alone, for checkpoints that come without a tokenizer."""
    return build_model(open_checkpoint(name_or_path), backend=backend, device=device, dtype=dtype)


def build_model(
    checkpoint: Checkpoint, *, backend: str = "torch", device: Any = None, dtype: Any = None
) -> DecoderModel | NumpyDecoder:
    """Build the torch or the NumPy model from an open checkpoint. `dtype` is a name ("bfloat16") or the library's own dtype."""
    if backend == "numpy":
        from mini_engine.models.decoder_numpy import NumpyDecoder

        if device not in (None, "cpu"):
            raise ValueError(f"device={device!r}: the numpy backend runs on the CPU only; use backend='torch'")
        if dtype not in (None, "float64", "float32", np.float64, np.float32):
            raise ValueError(f"dtype={dtype!r} must be float64 or float32 for the numpy backend")
        return NumpyDecoder(checkpoint, dtype=dtype or np.float64)
    if backend != "torch":
        raise ValueError(f"backend={backend!r} must be 'torch' or 'numpy'")

    import torch

    from mini_engine.models.decoder import DecoderModel

    found = getattr(torch, dtype, dtype) if isinstance(dtype, str) else dtype
    if found not in (None, torch.float32, torch.bfloat16, torch.float16, torch.float64):
        raise ValueError(f"dtype={dtype!r} must be float32, bfloat16, float16 or float64")
    return DecoderModel(checkpoint, device=_torch_device(device), dtype=found or torch.float32)


def _torch_device(device: Any) -> torch.device:
    """The device of that name; ValueError when it is not one this engine runs on, or is not in this machine."""
    import torch

    try:
        found = torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError, ValueError):
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise ValueError(f"device={device!r}: must be 'cpu', 'cuda' or 'cuda:N'")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={device!r}: PyTorch sees no CUDA device here; use device='cpu'")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device={device!r}: the last CUDA device here is 'cuda:{torch.cuda.device_count() - 1}'")
    return found
