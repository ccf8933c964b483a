"""Independent truth for the models: transformers, and the rule by which two greedy texts count as the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mini_engine.attention import causal_attention
from mini_engine.catalog import ModelSpec

TIE = 1e-3  # logits closer than this may swap places between two correct implementations
ROW_TOLERANCE = 2e-5  # of the largest magnitude in a row of float32 logits


FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 8}),  # its class has 128 by default
}
"""model_type: the name of transformers' classes, and what a small one needs beside the sizes of all."""

_LATENT = {
    "num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12,
    "v_head_dim": 10, "q_lora_rank": None, "num_experts_per_tok": 2, "first_k_dense_replace": 9,  # no layer has experts
}  # fmt: skip
LATENT_FAMILIES = {"deepseek_v2": ("DeepseekV2", _LATENT), "deepseek_v3": ("DeepseekV3", _LATENT)}
"""The same for families with latent attention."""


def save_random_model(
    folder: Path,
    family: str = "llama",
    *,
    dtype: torch.dtype = torch.float32,
    shard: str | None = None,
    seed: int = 0,
    **shape,
) -> Path:
    """A small random model, written by transformers. Weights are large enough for every part to matter in the logits."""
    import transformers

    torch.manual_seed(seed)
    classes, own = (FAMILIES | LATENT_FAMILIES)[family]
    sizes = {
        "vocab_size": 131, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.15, "bos_token_id": None,
        "eos_token_id": 0, "tie_word_embeddings": False,
    } | own | shape  # fmt: skip
    config = getattr(transformers, f"{classes}Config")(**sizes)
    model = getattr(transformers, f"{classes}ForCausalLM")(config)
    for name, parameter in model.named_parameters():
        if "norm" in name:  # transformers starts them at 1, which would hide a norm that is skipped
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
        elif name.endswith(".bias"):  # and these at 0
            torch.nn.init.normal_(parameter)
    model.to(dtype).save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    return folder


def transformers_logits(folder: Path) -> Callable[..., np.ndarray]:
    """(ids[T], first_position=0) -> logits[T, V] of the folder's model, as transformers computes them in float32."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def logits(ids: Sequence[int], first_position: int = 0) -> np.ndarray:
        positions = torch.arange(first_position, first_position + len(ids))[None]
        return model(input_ids=torch.tensor([list(ids)]), position_ids=positions, use_cache=False).logits[0].numpy()

    return logits


def export_hf(checkpoint, folder: Path) -> Path:
    """Write a checkpoint's weights, as they are read, to a Hugging Face folder that transformers loads."""
    from safetensors.numpy import save_file

    spec: ModelSpec = checkpoint.spec
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "rope_parameters": {"rope_type": "default", "rope_theta": spec.rope_theta}, "eos_token_id": list(spec.eos_token_ids),
    } | {
        field: getattr(spec, field)
        for field in (
            "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
            "vocab_size", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings", "bos_token_id",
        )
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {name: np.ascontiguousarray(checkpoint.read(name)) for name in checkpoint.shapes}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


class GrowingCache:
    """The plainest cache: one sequence, appended to arrays that are copied every time. Serves both backends.

    With latent attention it keeps latents and expands all of them at every step.
    """

    def __init__(self, spec: ModelSpec, scale: float | None = None) -> None:
        self.scale = spec.head_dim**-0.5 if scale is None else scale
        self.kv: dict[int, tuple[np.ndarray, ...]] = {}

    def attend(self, layer, q, k, v):
        latent = not isinstance(v, np.ndarray | torch.Tensor)  # then k is the latent, and v what expands it
        new = (k,) if latent else (k, v)
        if layer in self.kv:
            join = torch.cat if isinstance(q, torch.Tensor) else np.concatenate
            new = tuple(join(pair) for pair in zip(self.kv[layer], new))
        self.kv[layer] = new
        keys, values = expanded(np.asarray(new[0][:, 0]), v) if latent else map(np.asarray, new)
        out = causal_attention(np.asarray(q), keys, values, self.scale, offset=len(keys) - len(q))
        return torch.from_numpy(out) if isinstance(q, torch.Tensor) else out


def expanded(latent: np.ndarray, up) -> tuple[np.ndarray, np.ndarray]:
    """latent[S, Dc + Dr] -> keys[S, H, Dn + Dr], of whose rotary part each head has a copy, and values[S, H, Dv]."""
    w_uk, w_uv = np.asarray(up.w_uk), np.asarray(up.w_uv)  # [H, Dn or Dv, Dc]
    width = w_uk.shape[2]
    own, values = (np.einsum("sc,hdc->shd", latent[:, :width], w) for w in (w_uk, w_uv))
    shared = np.broadcast_to(latent[:, None, width:], (len(latent), len(w_uk), latent.shape[1] - width))
    return np.concatenate((own, shared), axis=-1), values


def full_logits(model, ids: Sequence[int]) -> np.ndarray:
    """Every row of one forward pass over a whole sequence."""
    return np.asarray(model.forward(ids, range(len(ids)), GrowingCache(model.spec, model.softmax_scale).attend))


def greedy(model, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[list[int]]:
    """Greedy continuations: each prompt is prefilled alone, then all are decoded together, one row of a batch for each."""
    caches = [GrowingCache(model.spec) for _ in prompts]
    one_row_each = [slice(i, i + 1) for i in range(len(prompts))]

    def attend(layer, q, k, v):
        rows = [cache.attend(layer, q[row], k[row], v[row]) for cache, row in zip(caches, one_row_each)]
        return torch.cat(rows) if isinstance(q, torch.Tensor) else np.concatenate(rows)

    new: list[list[int]] = [[] for _ in prompts]
    for tokens, prompt, cache in zip(new, prompts, caches):
        logits = model.forward(prompt, range(len(prompt)), cache.attend, [len(prompt) - 1])
        tokens.append(int(np.asarray(logits)[0].argmax()))
    for step in range(num_tokens - 1):
        logits = model.forward([tokens[-1] for tokens in new], [len(prompt) + step for prompt in prompts], attend)
        for tokens, row in zip(new, np.asarray(logits)):
            tokens.append(int(row.argmax()))
    return new


def row_error(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference, relative to the largest magnitude of its row."""
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    assert ours.shape == theirs.shape, f"{ours.shape} against {theirs.shape}"
    assert np.isfinite(ours).all(), "logits are not finite"
    return float((np.abs(ours - theirs).max(axis=-1) / np.abs(theirs).max(axis=-1)).max())


def assert_same_greedy(
    generate: Callable[[list[int], int], list[int]],
    oracle_logits: Callable[[list[int]], np.ndarray],
    prompt: Sequence[int],
    num_tokens: int,
    tie: float = TIE,
) -> int:
    """Fail unless `generate(ids, n) -> n greedy tokens` follows the oracle for `num_tokens`; return the number of ties met.

    Where the oracle's logit for our token is within `tie` of its best one, either token is right, and the comparison
    resumes from the oracle's. One oracle pass checks all tokens up to the next tie.
    """
    agreed, ties = list(prompt), 0
    while (left := num_tokens - (len(agreed) - len(prompt))) > 0:
        ours = generate(agreed, left)
        assert len(ours) == left, f"asked for {left} tokens, got {len(ours)}"
        rows = oracle_logits(agreed + ours)[len(agreed) - 1 : -1]
        for i, (token, row) in enumerate(zip(ours, rows)):
            best = int(row.argmax())
            if token == best:
                continue
            gap = float(row[best] - row[token])
            at = len(agreed) - len(prompt) + i
            assert gap < tie, f"token {at}: {token}, but the oracle prefers {best} by {gap:.2e} (tie: {tie})"
            agreed, ties = [*agreed, *ours[:i], best], ties + 1
            break
        else:
            agreed += ours
    return ties
