"""Configurations as they are published with well-known models: accepted, and read for what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from mini_engine.catalog import ModelSpec
from mini_engine.models import UnsupportedModelError
from mini_engine.models.layout import check_spec, tensor_shapes
from mini_engine.models.supported import check_supported

COMMON = {
    "attention_dropout": 0.0, "hidden_act": "silu", "initializer_range": 0.02, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": True,
}  # fmt: skip
LLAMA_3_1_8B = COMMON | {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "bos_token_id": 128000, "eos_token_id": 128001,
    "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": False,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "vocab_size": 128256,
    "rope_scaling": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
}  # fmt: skip
SMOLLM2_135M = COMMON | {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "bos_token_id": 1, "eos_token_id": 2,
    "hidden_size": 576, "intermediate_size": 1536, "is_llama_config": True, "max_position_embeddings": 8192,
    "mlp_bias": False, "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30,
    "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": False,
    "rope_scaling": None, "rope_theta": 100000, "tie_word_embeddings": True, "vocab_size": 49152,
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
}  # fmt: skip
MISTRAL_7B_V0_1 = COMMON | {
    "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_size": 4096,
    "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
    "sliding_window": 4096, "vocab_size": 32000,
}  # fmt: skip
QWEN2_5_7B_INSTRUCT = COMMON | {
    "architectures": ["Qwen2ForCausalLM"], "bos_token_id": 151643, "eos_token_id": 151645, "hidden_size": 3584,
    "intermediate_size": 18944, "max_position_embeddings": 32768, "max_window_layers": 28, "model_type": "qwen2",
    "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0, "sliding_window": 131072, "use_sliding_window": False, "vocab_size": 152064,
}  # fmt: skip
YARN = {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}  # as its card says for long inputs
QWEN3_8B = COMMON | {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "bos_token_id": 151643, "eos_token_id": 151645,
    "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12288, "max_position_embeddings": 40960,
    "max_window_layers": 36, "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 36,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000,
    "sliding_window": None, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "context", "billions"),
    [
        (LLAMA_3_1_8B, 131072, 8.03),
        (SMOLLM2_135M, 8192, 0.1345),
        (MISTRAL_7B_V0_1, 4096, 7.24),
        (MISTRAL_7B_V0_1 | {"sliding_window": None}, 32768, 7.24),
        (QWEN2_5_7B_INSTRUCT, 32768, 7.62),
        (QWEN2_5_7B_INSTRUCT | {"rope_scaling": YARN}, 131072, 7.62),
        (QWEN3_8B, 40960, 8.19),
    ],
    ids=["Llama 3.1 8B", "SmolLM2 135M", "Mistral 7B v0.1", "without window", "Qwen2.5 7B", "with YaRN", "Qwen3 8B"],
)
def test_they_are_accepted(config, context, billions):
    architecture, family = check_supported(config, Path("config.json"))
    spec = ModelSpec.from_hf_config(config)
    check_spec(spec, "config.json")
    assert (spec.architecture, spec.model_type) == (architecture, family.model_type)
    assert spec.max_model_len == context
    parameters = 0
    for shape in tensor_shapes(spec).values():
        parameters += shape[0] * (shape[1] if len(shape) > 1 else 1)
    assert parameters / 1e9 == pytest.approx(billions, rel=0.005)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (QWEN2_5_7B_INSTRUCT | {"dual_chunk_attention_config": {"chunk_size": 262144}}, "dual_chunk_attention_config"),
        (SMOLLM2_135M | {"rope_interleaved": True}, "rope_interleaved"),
        (QWEN3_8B | {"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        (LLAMA_3_1_8B | {"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_they_are_varied_to_is_refused(config, message):
    with pytest.raises(UnsupportedModelError, match=message):
        check_supported(config, Path("config.json"))
