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
        """The path that was made up: for error messages."""
        return self.path


class DeviceDrawnCheckpoint(RandomCheckpoint):
    """The same, drawn by the device that will hold it: seconds for billions of weights, where the host takes minutes.

    The numbers are others than `RandomCheckpoint`'s, and depend on the kind of device.
    """

    def __init__(self, spec: ModelSpec, seed: int, device: Any) -> None:
        super().__init__(spec, seed)
        self.device = device

    def read(self, name: str) -> Any:
        """The tensor of this name, float16, drawn on the device: the same for the same seed, name and device."""
        import torch

        shape = self.shapes[name]
        if len(shape) == 1 and not name.endswith(".bias"):
            return torch.ones(shape, dtype=torch.float16, device=self.device)
        generator = torch.Generator(self.device).manual_seed(zlib.crc32(f"{self.seed} {name}".encode()))
        deviation = shape[1] ** 0.5 if len(shape) == 2 else 10
        drawn = torch.randn(shape, generator=generator, dtype=torch.float32, device=self.device)
        return drawn.div_(deviation).half()


def random_model(
    spec: ModelSpec, seed: int = 0, *, backend: str = "torch", device: Any = None, dtype: Any = None,
    drawn_on_device: bool = False,
) -> DecoderModel | NumpyDecoder:  # fmt: skip
    """A model of this shape and architecture with random weights, on any device.

    drawn_on_device: see `DeviceDrawnCheckpoint`; for torch only.
    """
    from mini_engine.models.loading import build_model

    if drawn_on_device and backend != "torch":
        raise ValueError(f"drawn_on_device=True: weights of backend={backend!r} are drawn by the host")
    checkpoint = DeviceDrawnCheckpoint(spec, seed, device or "cpu") if drawn_on_device else RandomCheckpoint(spec, seed)
    return build_model(checkpoint, backend=backend, device=device, dtype=dtype)
