"""Logits of every model family against transformers: all head groupings, tied or not, sharded, scaled RoPE, windows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mini_engine.models import load_weights
from tests.oracle import (
    FAMILIES,
    LATENT_FAMILIES,
    ROW_TOLERANCE,
    full_logits,
    row_error,
    save_random_model,
    transformers_logits,
)

IDS = np.random.default_rng(1).integers(0, 131, size=200).tolist()
ROPE = {"rope_theta": 1e4}
SHAPES = {
    "group 1": {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 12},
    "group 3": {"num_attention_heads": 6, "num_key_value_heads": 2},
    "group 4, tied, wide heads": {
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 20, "tie_word_embeddings": True,
    },
    "group 4, narrow heads": {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 4},
    "group 8, tied": {"num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 6, "tie_word_embeddings": True},
    "one layer, other constants": {
        "num_hidden_layers": 1, "rms_norm_eps": 1e-2, "rope_parameters": {"rope_theta": 300.0, "rope_type": "default"},
    },
    "float16, sharded": {"dtype": torch.float16, "shard": "20KB"},
    "bfloat16": {"dtype": torch.bfloat16},
    "linear": {"rope_parameters": ROPE | {"rope_type": "linear", "factor": 4.0}},
    "llama3": {
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    },
    "yarn": {"rope_parameters": ROPE | {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32}},
    "yarn, every option": {  # of its ten pairs the second to fifth are neither kept nor scaled in full
        "head_dim": 20, "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 100.0, "factor": 2.0, "original_max_position_embeddings": 128,
            "mscale": 0.7, "mscale_all_dim": 1.0, "beta_fast": 16, "beta_slow": 2, "truncate": False,
        },
    },
    "yarn, attention factor": {
        "rope_parameters": ROPE | {
            "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32, "attention_factor": 0.8,
        },
    },
    "yarn beyond max_position_embeddings": {
        "max_position_embeddings": 64,
        "rope_parameters": ROPE | {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    },
}  # fmt: skip
BIASED = [family for family in FAMILIES if family in ("llama", "qwen3")]
CASES = [(family, shape, SHAPES[shape]) for family in FAMILIES for shape in SHAPES]
LATENT_SHAPES = {
    name: {field: value for field, value in shape.items() if field != "head_dim"}
    for name, shape in SHAPES.items()
    if "group" not in name
}
CASES += [(family, name, LATENT_SHAPES[name]) for family in LATENT_FAMILIES for name in LATENT_SHAPES]
CASES += [(family, "tied", {"tie_word_embeddings": True, "q_lora_rank": 20}) for family in LATENT_FAMILIES]
CASES += [(family, "biases", {"attention_bias": True}) for family in BIASED]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}, {case[1]}")
def checkpoint(request, tmp_path_factory):
    family, _, shape = request.param
    folder = save_random_model(tmp_path_factory.mktemp("random"), family, **shape)
    if "shard" in shape:
        assert len(list(folder.glob("model-*.safetensors"))) > 2, "the checkpoint was meant to be split"
    return folder, transformers_logits(folder)(IDS)


@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_logits_equal_those_of_transformers(checkpoint, backend):
    folder, expected = checkpoint
    assert row_error(full_logits(load_weights(folder, backend=backend), IDS), expected) < ROW_TOLERANCE


def test_every_part_matters(tmp_path):
    """The oracle notices a bias, a norm or a scaling that is left out: otherwise agreement would prove nothing."""
    from safetensors.torch import load_file, save_file

    folder = save_random_model(tmp_path, "qwen3", attention_bias=True, **SHAPES["yarn"])
    expected, path = transformers_logits(folder)(IDS), folder / "model.safetensors"
    for part, neutral in (("q_norm.weight", 1.0), ("k_norm.weight", 1.0), ("k_proj.bias", 0.0), ("o_proj.bias", 0.0)):
        tensors = load_file(path)
        sound = {name: tensor.clone() for name, tensor in tensors.items()}
        tensors[f"model.layers.1.self_attn.{part}"].fill_(neutral)
        save_file(tensors, path, metadata={"format": "pt"})
        assert row_error(full_logits(load_weights(folder), IDS), expected) > 100 * ROW_TOLERANCE, part
        save_file(sound, path, metadata={"format": "pt"})
    assert row_error(full_logits(load_weights(folder), IDS), expected) < ROW_TOLERANCE
