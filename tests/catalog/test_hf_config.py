"""Any config.json reads: the files that transformers writes, and the traps of published ones."""

from __future__ import annotations

import dataclasses
import json

import pytest

from mini_engine.catalog import ModelSpec, get_model, list_models
from mini_engine.catalog.hf_families import HEAD_DIM_BY_DEFAULT, NESTED_DEFAULTS, TIED_BY_DEFAULT, TWO_MATRIX_MLP
from tests.catalog.hf_writer import config_json
from tests.catalog.llama_config import LLAMA, read


@pytest.mark.parametrize("name", list_models())
def test_each_row_written_by_transformers_reads_back_equal(name, tmp_path):
    spec = get_model(name)
    config = config_json(spec)
    spec = _with_settings_of(spec, config)
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert ModelSpec.from_hf_config(tmp_path) == spec
    assert ModelSpec.from_hf_config(tmp_path / "config.json") == spec
    assert ModelSpec.from_hf_config(config) == spec


def _with_settings_of(spec: ModelSpec, config: dict) -> ModelSpec:
    """The table holds no rotary settings, epsilons and biases; every other field must agree."""
    found = ModelSpec.from_hf_config(config)
    settings = ("rope_theta", "rope_scaling", "rms_norm_eps", "attention_bias", "rope_interleave")
    return dataclasses.replace(spec, **{name: getattr(found, name) for name in settings})


def test_head_dim_is_read_when_given_and_derived_only_when_not():
    assert read(head_dim=32).head_dim == 32
    assert read(head_dim=None).head_dim == 8
    assert read(model_type="gemma2").head_dim == 256  # the class's own default, not hidden / heads
    with pytest.raises(ValueError, match=r"head_dim is missing and hidden_size=64 .* num_attention_heads=6"):
        read(num_attention_heads=6)


def test_absent_kv_heads_mean_one_per_query_head():
    assert read(num_key_value_heads=...).num_key_value_heads == 8
    assert read(num_key_value_heads=None).num_key_value_heads == 8
    assert read(num_key_value_heads=..., multi_query_group_num=2).num_key_value_heads == 2  # ChatGLM
    assert read(num_key_value_heads=..., attn_config={"kv_n_heads": 4}).num_key_value_heads == 4  # MPT


def test_falcon_says_multi_query_with_a_switch():
    falcon = {"model_type": "falcon", "num_key_value_heads": ..., "num_kv_heads": 8}
    assert read(**falcon, multi_query=True).num_key_value_heads == 1
    assert read(**falcon, multi_query=True, new_decoder_architecture=True).num_key_value_heads == 8
    assert read(**falcon, multi_query=False).num_key_value_heads == 8


def test_gpt2_has_names_of_its_own():
    spec = ModelSpec.from_hf_config(
        {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
    )
    assert (spec.num_hidden_layers, spec.hidden_size, spec.head_dim) == (12, 768, 64)
    assert (spec.intermediate_size, spec.gated_mlp, spec.learned_positions) == (3072, False, 1024)
    assert spec.tie_word_embeddings  # not written: the class ties them


def test_tied_embeddings():
    assert not read().tie_word_embeddings
    assert read(tie_word_embeddings=True).tie_word_embeddings
    assert read(model_type="gemma2").tie_word_embeddings
    assert not read(model_type="gemma2", tie_word_embeddings=False).tie_word_embeddings


def test_latent_attention_ignores_the_kv_heads_and_the_rotary_head_dim():
    latent = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
    spec = read(model_type="deepseek_v3", num_key_value_heads=8, head_dim=64, q_lora_rank=1536, **latent)
    assert spec.is_mla
    assert (spec.head_dim, spec.q_lora_rank) == (192, 1536)
    with pytest.raises(ValueError, match="qk_rope_head_dim"):
        read(model_type="deepseek_v3", kv_lora_rank=512)


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"sliding_window": 16}, [16, 16, 16, 16]),
        ({"sliding_window": None}, [None] * 4),
        ({"sliding_window": 16, "use_sliding_window": False}, [None] * 4),
        (
            {"model_type": "qwen2", "sliding_window": 16, "use_sliding_window": True, "max_window_layers": 3},
            [None] * 3 + [16],
        ),
        ({"model_type": "gemma2", "sliding_window": 16}, [16, None, 16, None]),
        ({"model_type": "gemma3_text", "sliding_window": 16, "sliding_window_pattern": 3}, [16, 16, None, 16]),
        ({"model_type": "gemma3_text", "sliding_window": 16}, [16, 16, 16, 16]),
        ({"model_type": "exaone4", "sliding_window": 16, "sliding_window_pattern": "LG"}, [16, None, 16, None]),
        ({"sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"] * 2}, [None, 16, None, 16]),
        ({"window_size": 16, "attention_layers": ["global", "local"] * 2}, [None, 16, None, 16]),  # GPT-Neo
        (
            {"attention_chunk_size": 16, "layer_types": ["chunked_attention"] * 3 + ["full_attention"]},
            [16, 16, 16, None],
        ),
    ],
)
def test_windows_however_they_are_written(changes, windows):
    assert list(read(**changes).layer_windows) == windows


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_types": ["linear_attention", "full_attention"] * 2},
        {"layers_block_type": ["mamba", "attention"] * 2},
        {"hybrid_override_pattern": "M*-*"},
        {"attn_layer_period": 2, "attn_layer_offset": 1},
        {"attn_layer_indices": [1, 3]},
        {"full_attn_idxs": [0, 2]},
        {"attn_type_list": [0, 1, 0, 1]},
        {"full_attention_interval": 2},
        {"linear_attn_config": {"full_attn_layers": [2, 4], "kda_layers": [1, 3]}},
        {"num_kv_shared_layers": 2},
        {"num_key_value_heads": [2, 0, 2, 0]},
    ],
)
def test_layers_without_a_cache_of_their_own_are_not_counted(changes):
    spec = read(**changes)
    assert spec.num_attention_layers == 2
    assert len(spec.layers_without_kv) == 2


def test_recurrent_gemma_attends_locally():
    spec = read(
        model_type="recurrent_gemma", block_types=["recurrent", "recurrent", "attention"], attention_window_size=16
    )
    assert spec.layer_windows == (16,)
    assert spec.layers_without_kv == ("recurrent",) * 3


def test_kv_heads_may_differ_between_layers():
    spec = read(num_key_value_heads=[1, 2, 4, 2])
    assert spec.kv_shapes == ((1, 8), (2, 8), (4, 8), (2, 8))
    assert read(num_key_value_heads=[2, 2, 2, 2]) == read()


def test_gemma_4_has_a_larger_head_in_its_full_layers():
    kinds = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
    spec = read(model_type="gemma4_text", head_dim=16, global_head_dim=32, sliding_window=8, layer_types=kinds)
    assert spec.kv_shapes == ((2, 16), (2, 16), (2, 16), (2, 32))
    saved = read(
        model_type="gemma4_text",
        head_dim=16,
        sliding_window=8,
        layer_types=kinds,
        per_layer_config={"3": {"head_dim": 32}},
    )
    assert saved == spec


def test_a_nested_text_model_is_found_and_its_class_defaults_are_filled_in():
    published = {  # the fields that the published Gemma-3 files give
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 3840,
            "intermediate_size": 15360,
            "num_attention_heads": 16,
            "num_hidden_layers": 48,
            "num_key_value_heads": 8,
            "sliding_window": 1024,
        },
    }
    spec = ModelSpec.from_hf_config(published)
    assert (spec.num_hidden_layers, spec.head_dim, spec.vocab_size) == (48, 256, 262208)  # 3840 / 16 would be 240
    assert spec.layer_windows.count(None) == 8
    assert spec.tie_word_embeddings


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config", "text_model"])
def test_nested_under_any_name(key):
    assert ModelSpec.from_hf_config({"model_type": "outer", key: LLAMA}).num_key_value_heads == 2
    assert ModelSpec.from_hf_config({"thinker_config": {key: LLAMA}}).num_key_value_heads == 2


@pytest.mark.parametrize(
    ("changes", "experts", "per_token", "width", "layers", "shared"),
    [
        ({"num_local_experts": 8, "num_experts_per_tok": 2}, 8, 2, 128, 4, 0),
        ({"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 2}, 8, 2, 32, 2, 0),
        ({"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "mlp_only_layers": [0]}, 8, 2, 32, 3, 0),
        ({"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 2, "first_k_dense_replace": 1}, 8, 2, 32, 3, 64),
        ({"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "mlp_layer_types": ["dense", "sparse"] * 2}, 8, 2, 32, 2, 0),
        ({"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48}, 8, 2, 32, 4, 48),
        ({"num_experts": 8, "num_experts_per_tok": 2, "expert_layer_period": 2, "expert_layer_offset": 1}, 8, 2, 128, 2, 0),
        ({"model_type": "llama4_text", "num_local_experts": 8, "num_experts_per_tok": 1, "intermediate_size_mlp": 256, "interleave_moe_layer_step": 2}, 8, 1, 128, 2, 128),
    ],
)  # fmt: skip
def test_experts_however_they_are_counted(changes, experts, per_token, width, layers, shared):
    spec = read(**changes)
    assert (spec.num_experts, spec.num_experts_per_tok, spec.moe_intermediate_size) == (experts, per_token, width)
    assert spec.num_moe_layers == layers
    assert spec.n_shared_experts * spec.shared_expert_intermediate_size == shared


def test_llama_4_keeps_the_dense_width_elsewhere():
    spec = read(model_type="llama4_text", num_local_experts=8, num_experts_per_tok=1, intermediate_size_mlp=256)
    assert (spec.intermediate_size, spec.moe_intermediate_size) == (256, 128)


def test_rope_as_old_and_new_files_write_it():
    assert read().rope_theta == 10000.0
    assert read(rope_theta=500000.0).rope_theta == 500000.0
    assert read(rope_parameters={"rope_theta": 5e5, "rope_type": "default"}).rope_scaling is None
    new = read(rope_parameters={"rope_theta": 5e5, "rope_type": "llama3", "factor": 8.0})
    old = read(rope_theta=5e5, rope_scaling={"rope_type": "llama3", "factor": 8.0})
    assert new == old
    assert new.rope_scaling == {"rope_type": "llama3", "factor": 8.0}
    both = {"full_attention": {"rope_theta": 1e6, "rope_type": "default"}, "sliding_attention": {"rope_theta": 1e4}}
    assert read(rope_parameters=both).rope_theta == 1e6


@pytest.mark.parametrize(("eos", "expected"), [(2, (2,)), ([2, 3], (2, 3)), (None, ()), (..., ())])
def test_end_tokens(eos, expected):
    assert read(eos_token_id=eos).eos_token_ids == expected


def test_our_tables_of_class_defaults_agree_with_transformers():
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for family in TIED_BY_DEFAULT:
        if family != "gemma3":
            assert CONFIG_MAPPING[family]().tie_word_embeddings is True, family
    for family in TWO_MATRIX_MLP | {"llama", "qwen3_moe", "gpt_oss", "phi3"}:
        config = CONFIG_MAPPING[family]()
        if getattr(config, "tie_word_embeddings", None) is not None:
            assert config.tie_word_embeddings == (family in TIED_BY_DEFAULT), family
    for family, head_dim in HEAD_DIM_BY_DEFAULT.items():
        assert CONFIG_MAPPING[family]().to_dict()["head_dim"] == head_dim, family
    for family, defaults in NESTED_DEFAULTS.items():
        config = CONFIG_MAPPING[family]()
        assert {name: getattr(config, name) for name in defaults} == defaults, family


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq, 4 bits"),
        ({"quant_method": "awq", "bits": 4, "version": "gemm"}, "awq, 4 bits"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False}, "bitsandbytes, 4 bits"),
        ({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}, "fp8, 8 bits"),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, "mxfp4, 4 bits"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}}, "compressed-tensors, 8 bits"),
        ({"quant_method": "quanto", "weights": "int8"}, "quanto, 8 bits"),
        ({"group_size": 64, "bits": 4}, "4 bits"),
        ({"quant_method": "something-new"}, "something-new, an unknown number of bits"),
        ({}, ""),
    ],
)  # fmt: skip
def test_quantized_weights_are_named_with_their_bits(section, words):
    assert read(quantization_config=section).quantization == words
    assert ModelSpec.from_hf_config({"text_config": LLAMA, "quantization_config": section}).quantization == words
    with pytest.raises(ValueError, match=r"quantization_config=.* must be an object"):
        read(quantization_config=[4])
