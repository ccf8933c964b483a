"""What a file format has to offer so that a model can be built from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from mini_engine.catalog import ModelSpec


class Checkpoint(Protocol):
    """Weights on disk under their Hugging Face names, read one at a time so that no second copy is ever held."""

    path: Path
    spec: ModelSpec

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor in the file(s)."""
        ...

    def read(self, name: str) -> np.ndarray:
        """One tensor as float16, float32 or float64."""
        ...

    def where(self, name: str) -> Path:
        """The file that holds the tensor, for messages."""
        ...
