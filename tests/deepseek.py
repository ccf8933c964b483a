"""Small random models with latent attention, written by transformers, and the plainest way to run one: no cache, no absorption."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

YARN = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32,
    "beta_slow": 1, "mscale": 0.7, "mscale_all_dim": 1.2,
}  # fmt: skip


def save_random_deepseek(
    folder: Path,
    family: str = "V2",
    *,
    dtype: torch.dtype = torch.float32,
    shard: str | None = None,
    seed: int = 0,
    **shape,
) -> Path:
    """A DeepSeek without experts. Weights are large enough for every part to matter in the logits."""
    import transformers

    torch.manual_seed(seed)
    sizes = {
        "vocab_size": 131, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": shape.get("num_attention_heads", 4), "kv_lora_rank": 24, "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 12, "v_head_dim": 10, "q_lora_rank": None, "max_position_embeddings": 256,
        "first_k_dense_replace": shape.get("num_hidden_layers", 3), "initializer_range": 0.15, "bos_token_id": None,
        "eos_token_id": 0,
    } | shape  # fmt: skip
    config = getattr(transformers, f"Deepseek{family}Config")(**sizes)
    model = getattr(transformers, f"Deepseek{family}ForCausalLM")(config)
    for name, parameter in model.named_parameters():
        if "norm" in name:  # transformers starts them at 1, which would hide a norm that is skipped
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    model.to(dtype).save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    return folder


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
