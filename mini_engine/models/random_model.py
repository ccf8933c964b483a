"""A model of any shape with random weights: for tests and speed, where what it says does not matter."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mini_engine.catalog import ModelSpec
from mini_engine.models.families import family_of
from mini_engine.models.layout import check_spec, tensor_shapes

if TYPE_CHECKING:
    from mini_engine.models.decoder import DecoderModel
    from mini_engine.models.decoder_numpy import NumpyDecoder


class RandomCheckpoint:
    """A checkpoint that draws each tensor when it is read; the same spec and seed give the same weights."""

    def __init__(self, spec: ModelSpec, seed: int) -> None:
        """UnsupportedModelError for an architecture that cannot be built."""
        family_of(spec)
        check_spec(spec, spec.name or "the spec")
        self.path = Path(f"random-{seed}")
        self.spec = spec
        self.seed = seed
        self.shapes = tensor_shapes(spec)

    def read(self, name: str) -> np.ndarray:
        """float16, as weights are published. Norms are 1; a matrix has standard deviation 1 / sqrt(columns), which keeps
        activations near 1; a bias has 0.1.
        """
        shape = self.shapes[name]
        if len(shape) == 1 and not name.endswith(".bias"):
            return np.ones(shape, dtype=np.float16)
        generator = np.random.default_rng((self.seed, zlib.crc32(name.encode())))
        deviation = np.float32(shape[1] ** 0.5 if len(shape) == 2 else 10)
        return (generator.standard_normal(shape, dtype=np.float32) / deviation).astype(np.float16)

    def where(self, name: str) -> Path:
        return self.path


def random_model(
    spec: ModelSpec, seed: int = 0, *, backend: str = "torch", device: Any = None, dtype: Any = None
) -> DecoderModel | NumpyDecoder:
    """A model of this shape and architecture with random weights, on any device."""
    from mini_engine.models.loading import build_model

    return build_model(RandomCheckpoint(spec, seed), backend=backend, device=device, dtype=dtype)
