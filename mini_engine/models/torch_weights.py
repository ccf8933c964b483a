"""Reading a checkpoint into torch, a tensor or a packed matrix at a time."""

from __future__ import annotations

import torch

from mini_engine.models.checkpoint import Checkpoint
from mini_engine.models.errors import CorruptModelError
from mini_engine.models.layout import bias_name, not_finite
from mini_engine.models.linear import Linear, pack_linear


class TorchWeights:
    """The weights of a checkpoint on one device and in one dtype, by name; no second copy of any is ever held."""

    def __init__(self, checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> None:
        self.checkpoint, self.device, self.dtype = checkpoint, device, dtype

    def tensor(self, *names: str) -> torch.Tensor:
        """Tensors read into one, stacked along the rows. CorruptModelError for a value that is not finite."""
        shapes = [self.checkpoint.shapes[name] for name in names]
        rows = [shape[0] for shape in shapes]
        whole = torch.empty((sum(rows), *shapes[0][1:]), device=self.device, dtype=self.dtype)
        for name, part in zip(names, whole.split(rows)):
            part.copy_(torch.as_tensor(self.checkpoint.read(name)))
            if not part.isfinite().all():
                raise CorruptModelError(not_finite(self.checkpoint, name, self.dtype))
        return whole

    def linear(self, *names: str) -> Linear:
        """Matrices [out, in] that read the same input as one function of it: one large product beats three small ones.

        Where the checkpoint has biases, they are added.
        """
        biases = [bias_name(name) for name in names if bias_name(name) in self.checkpoint.shapes]
        return pack_linear(self.tensor(*names), self.tensor(*biases) if biases else None)
