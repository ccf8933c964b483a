"""The weights of a checkpoint in NumPy, and the operations that use them, written out."""

from __future__ import annotations

import numpy as np

from mini_engine.models.checkpoint import Checkpoint
from mini_engine.models.errors import CorruptModelError
from mini_engine.models.layout import EMBED, LM_HEAD, bias_name, not_finite, tensor_shapes


class NumpyWeights(dict[str, np.ndarray]):
    """Every tensor under its Hugging Face name. CorruptModelError for a value that is not finite."""

    def __init__(self, checkpoint: Checkpoint, dtype: np.dtype) -> None:
        super().__init__({name: checkpoint.read(name).astype(dtype) for name in tensor_shapes(checkpoint.spec)})
        for name, weight in self.items():
            if not np.isfinite(weight).all():
                raise CorruptModelError(not_finite(checkpoint, name, dtype))
        self.eps = checkpoint.spec.rms_norm_eps
        if checkpoint.spec.tie_word_embeddings:
            self[LM_HEAD] = self[EMBED]

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        """x[..., in] times a matrix [out, in], plus its bias if it has one -> [..., out]."""
        product = x @ self[name].T
        return product + self[bias_name(name)] if bias_name(name) in self else product

    def norm(self, x: np.ndarray, name: str, eps: float | None = None) -> np.ndarray:
        """x with its last dimension scaled to root mean square 1, then by a weight. Source: Zhang and Sennrich 2019."""
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + (self.eps if eps is None else eps)) * self[name]


def silu(x: np.ndarray) -> np.ndarray:
    """x * sigmoid(x), through tanh so that no large |x| overflows."""
    return x * (0.5 + 0.5 * np.tanh(0.5 * x))
