"""A small config.json of a Llama, and what is read from it after some changes."""

from __future__ import annotations

from mini_engine.catalog import ModelSpec

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 256,
    "max_position_embeddings": 512,
}


def read(**changes) -> ModelSpec:
    """The spec of LLAMA with these fields; `...` leaves a field out."""
    config = LLAMA | changes
    return ModelSpec.from_hf_config({key: value for key, value in config.items() if value is not ...})
