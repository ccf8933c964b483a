"""Configurations as their publishers write them, with the habits of each family: parameters and K/V as published or by hand."""

from __future__ import annotations

import pytest

from mini_engine.catalog import ModelSpec, get_gpu
from mini_engine.geometry import kv_bytes_per_token, params
from mini_engine.sizing import size, size_cache

PUBLISHED = {
    "Qwen-7B": (
        {"model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "kv_channels": 128, "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32, "seq_length": 8192, "vocab_size": 151936, "tie_word_embeddings": False},
        7.72, 2 * 32 * 4096 * 2,
    ),
    "Falcon-40B, first release": (
        {"model_type": "RefinedWeb", "hidden_size": 8192, "n_head": 128, "n_head_kv": 8, "n_layer": 60, "vocab_size": 65024, "alibi": False, "bias": False},
        41.3, 2 * 60 * 8 * 64 * 2,
    ),
    "Falcon-7B, first release": (
        {"model_type": "RefinedWebModel", "hidden_size": 4544, "n_head": 71, "n_layer": 32, "vocab_size": 65024, "multi_query": True},
        6.92, 2 * 32 * 64 * 2,
    ),
    "Hunyuan-A13B": (
        {"model_type": "hunyuan_v1_moe", "attention_head_dim": 128, "hidden_size": 4096, "intermediate_size": 3072, "max_position_embeddings": 32768, "moe_intermediate_size": [3072] * 32, "moe_topk": [8] * 32, "num_attention_heads": 32, "num_experts": 64, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_shared_expert": [1] * 32, "vocab_size": 128167, "tie_word_embeddings": True},
        80.4, 2 * 32 * 8 * 128 * 2,
    ),
    "MiniCPM3-4B": (
        {"model_type": "minicpm3", "hidden_size": 2560, "intermediate_size": 6400, "kv_lora_rank": 256, "max_position_embeddings": 32768, "num_attention_heads": 40, "num_hidden_layers": 62, "num_key_value_heads": 40, "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "vocab_size": 73448},
        4.07, 62 * 288 * 2,
    ),
    "Llama-4-Maverick": (
        {"model_type": "llama4", "text_config": {"attention_chunk_size": 8192, "head_dim": 128, "hidden_size": 5120, "interleave_moe_layer_step": 2, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "max_position_embeddings": 1048576, "model_type": "llama4_text", "num_attention_heads": 40, "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_key_value_heads": 8, "num_local_experts": 128, "vocab_size": 202048}},
        400.7, 2 * 48 * 8 * 128 * 2,
    ),
    "Mistral-Nemo": (
        {"model_type": "mistral", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 14336, "max_position_embeddings": 1024000, "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "sliding_window": None, "tie_word_embeddings": False, "vocab_size": 131072},
        12.2, 2 * 40 * 8 * 128 * 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_cache_are_those_of_the_model(name):
    config, billions, kv = PUBLISHED[name]
    spec = ModelSpec.from_hf_config(config)
    assert params(spec) / 1e9 == pytest.approx(billions, rel=0.01)
    assert kv_bytes_per_token(spec) == kv


@pytest.mark.parametrize("family", ["mamba", "mamba2", "falcon_mamba", "rwkv"])
def test_a_model_without_attention_has_no_cache_to_size(family):
    with pytest.raises(ValueError, match="there is no KV cache"):
        ModelSpec.from_hf_config(
            {"model_type": family, "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50280}
        )


def test_layers_that_are_written_one_by_one_are_refused():
    blocks = [{"attention": {"n_heads_in_group": 8}}, {"attention": {"no_op": True}}]
    with pytest.raises(ValueError, match="block_configs"):
        ModelSpec.from_hf_config(PUBLISHED["Mistral-Nemo"][0] | {"num_hidden_layers": 2, "block_configs": blocks})


def test_a_window_larger_than_the_context_changes_nothing():
    """Phi-3-mini-128k has windows of 262,144 tokens and 131,072 positions."""
    config, _, _ = PUBLISHED["Mistral-Nemo"]
    wide, full = (ModelSpec.from_hf_config(config | {"sliding_window": window}) for window in (262_144, None))
    gpu = get_gpu("h100-sxm")
    assert size_cache(wide, gpu).notes == size_cache(full, gpu).notes == ()
    assert size(wide, gpu).concurrency_windowed == size(wide, gpu).concurrency == size(full, gpu).concurrency
    assert size(wide, gpu).step == size(full, gpu).step
    assert size_cache(wide, gpu, context=262_144).notes == ()
    assert any("window" in note for note in size_cache(wide, gpu, context=262_145).notes)
