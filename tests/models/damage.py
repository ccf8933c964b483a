"""Small sound models to be damaged: a Hugging Face folder and a GGUF file, both from random weights and one vocabulary."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from mini_engine.models import load_model
from tests.oracle import save_random_model

VOCAB_SIZE = 280
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("Ã", "©"), ("Ġ", "Ġ")]
TOKENS = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in MERGES)]


def byte_level_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(TOKENS)}, MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return tokenizer


def make_folder(folder: Path, family: str = "llama", **shape) -> Path:
    save_random_model(folder, family, vocab_size=VOCAB_SIZE, eos_token_id=2, **shape)
    byte_level_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


DEEP = "[" * 100_000 + "]" * 100_000
"""JSON that is nested more deeply than a parser can follow."""


def fails(error, path: Path, *fragments: str, load=load_model) -> None:
    """Loading raises this error, and the message holds the path and the fragments ("a|b": one of the two)."""
    with pytest.raises(error) as caught:
        load(path)
    for fragment in (str(path), *fragments):
        assert any(part in str(caught.value) for part in fragment.split("|")), f"{fragment!r} is not in: {caught.value}"


def edit_json(path: Path, **changes) -> None:
    """Set keys of a JSON file; a value of None removes the key."""
    content = json.loads(path.read_text()) | changes
    removed = {key for key, value in changes.items() if value is None}
    path.write_text(json.dumps({key: value for key, value in content.items() if key not in removed}))


def edit_tensors(path: Path, change) -> None:
    """Let `change` edit the dict of tensors of a safetensors file."""
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


HF_TO_GGUF = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
PARTS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's order of q and k rows, as its converter writes it: i and i + D/2 become neighbours."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def make_gguf(
    path: Path, folder: Path, *, quantise=gguf.GGMLQuantizationType.F16, metadata=None, tokens=TOKENS, tensors=None,
    tokenizer=True, architecture=None, pre="gpt-2",
) -> Path:  # fmt: skip
    """The model of a folder as a GGUF. `metadata` adds or (None) removes keys; `tensors` edits the dict of arrays."""
    config = json.loads((folder / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    kind = architecture or config["model_type"].replace("mistral", "llama")
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    keys = {
        f"{kind}.block_count": config["num_hidden_layers"], f"{kind}.context_length": config["max_position_embeddings"],
        f"{kind}.embedding_length": config["hidden_size"], f"{kind}.feed_forward_length": config["intermediate_size"],
        f"{kind}.attention.head_count": heads, f"{kind}.attention.head_count_kv": kv_heads,
        f"{kind}.attention.key_length": head_dim, f"{kind}.rope.dimension_count": head_dim,
        f"{kind}.rope.freq_base": float(config["rope_parameters"]["rope_theta"]),
        f"{kind}.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]), f"{kind}.vocab_size": config["vocab_size"],
    } | (metadata or {})  # fmt: skip
    writer = gguf.GGUFWriter(path, kind)
    for key, value in keys.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif value is not None:
            writer.add_uint32(key, value)
    if tokenizer:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list(tokens)
        writer.add_token_types([3 if token in SPECIAL else 1 for token in tokens])
        writer.add_token_merges([" ".join(pair) for pair in MERGES])
        writer.add_eos_token_id(2)
    arrays = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        values = tensor.to(torch.float32).numpy()
        if name in HF_TO_GGUF:
            arrays[HF_TO_GGUF[name]] = values
            continue
        _, _, layer, part = name.split(".", 3)
        part, _, ending = part.rpartition(".")
        if kind == "llama" and part in ("self_attn.q_proj", "self_attn.k_proj"):
            values = interleave(values, heads if part == "self_attn.q_proj" else kv_heads)
        arrays[f"blk.{layer}.{PARTS[part]}.{ending}"] = values
    if tensors:
        tensors(arrays)
    for name, values in arrays.items():
        kind = gguf.GGMLQuantizationType.F32 if values.ndim == 1 else quantise
        data = gguf.quants.quantize(values, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
