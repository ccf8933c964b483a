"""Models with latent attention run in the plainest way, no cache and no absorption, and by transformers with its cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32,
    "beta_slow": 1, "mscale": 0.7, "mscale_all_dim": 1.2,
}  # fmt: skip


def transformers_run(folder: Path) -> Callable[[Sequence[int]], tuple[np.ndarray, list[np.ndarray]]]:
    """ids[T] -> logits[T, V], and of each layer what transformers caches: [T, Dc + Dr], the latent and the rotary key."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def run(ids: Sequence[int]) -> tuple[np.ndarray, list[np.ndarray]]:
        out = model(input_ids=torch.tensor([list(ids)]), use_cache=True)
        layers = [torch.cat((x.keys[0, 0], x.values[0, 0]), dim=-1).numpy() for x in out.past_key_values.layers]
        return out.logits[0].numpy(), layers

    return run


def uncached_attend(model):
    """An `attend` for whole sequences, head by head, over keys and values multiplied out: no code of the engine's."""

    def attend(layer, q, latent, up):
        wrap = torch.from_numpy if isinstance(q, torch.Tensor) else np.asarray
        q, c, w_uk, w_uv = (np.asarray(x, dtype=np.float64) for x in (q, latent[:, 0], up.w_uk, up.w_uv))
        Dc = w_uk.shape[2]
        out = np.empty((len(q), len(w_uk), w_uv.shape[1]))
        future = np.triu(np.full((len(q), len(q)), -np.inf), 1)
        for head in range(len(w_uk)):
            keys = np.concatenate((c[:, :Dc] @ w_uk[head].T, c[:, Dc:]), axis=1)
            scores = q[:, head] @ keys.T * model.softmax_scale + future
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = weights / weights.sum(axis=1, keepdims=True) @ (c[:, :Dc] @ w_uv[head].T)
        return wrap(out.astype(np.float32) if wrap is torch.from_numpy else out)

    return attend


def uncached_logits(model, ids: Sequence[int]) -> np.ndarray:
    """Every row of one forward pass over a whole sequence."""
    return np.asarray(model.forward(ids, range(len(ids)), uncached_attend(model)))
