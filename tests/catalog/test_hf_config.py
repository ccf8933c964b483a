"""Any config.json reads: the files that transformers writes, and the traps of published ones."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re

import pytest

from mini_engine.catalog import ModelSpec, get_model, hf_kinds, list_models
from mini_engine.catalog.hf_families import HEAD_DIM_BY_DEFAULT, NESTED_DEFAULTS, TIED_BY_DEFAULT, TWO_MATRIX_MLP
from tests.catalog.hf_writer import config_json

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
    config = LLAMA | changes
    return ModelSpec.from_hf_config({key: value for key, value in config.items() if value is not ...})


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


@pytest.mark.parametrize(
    "field",
    [
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "intermediate_size",
        "vocab_size",
    ],
)
def test_a_missing_field_is_named(field):
    with pytest.raises(ValueError, match=rf"model_type 'mystery'\) lacks {field}"):
        read(model_type="mystery", **{field: ...})


def test_what_cannot_be_described_is_refused():
    with pytest.raises(ValueError, match="is_encoder_decoder"):
        read(is_encoder_decoder=True)
    with pytest.raises(ValueError, match=r"layer_types\[1\]='holographic'"):
        read(layer_types=["full_attention", "holographic"] * 2)
    with pytest.raises(ValueError, match="layer_types has 3 entries for num_hidden_layers=4"):
        read(layer_types=["full_attention"] * 3)
    with pytest.raises(ValueError, match="sliding_window is missing"):
        read(layer_types=["sliding_attention"] * 4)
    with pytest.raises(ValueError, match="no KV cache"):
        read(layer_types=["mamba"] * 4)
    with pytest.raises(ValueError, match=r"hidden_size='64' must be one integer"):
        read(hidden_size="64")


def test_files_that_are_missing_or_broken(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"give a model's config\.json"):
        ModelSpec.from_hf_config(tmp_path)
    (tmp_path / "config.json").write_text('{"hidden_size": 1,}')
    with pytest.raises(ValueError, match=r"is not JSON: .*line 1"):
        ModelSpec.from_hf_config(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="holds a list"):
        ModelSpec.from_hf_config(tmp_path)


def test_paths_that_are_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="the path is empty"):
        ModelSpec.from_hf_config("")
    (tmp_path / "config.json").mkdir()
    with pytest.raises(FileNotFoundError, match=r"config\.json is not a file"):
        ModelSpec.from_hf_config(tmp_path)


def test_json_that_is_nested_too_deeply(tmp_path):
    (tmp_path / "config.json").write_text('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(ValueError, match=r"config\.json is nested too deeply"):
        ModelSpec.from_hf_config(tmp_path)


ODD = ["x", "", -1, 0, 1.5, 10**9, float("inf"), float("nan"), True, [], [-1], [1, "a"], [[]], {}, {"a": []}]
FIELDS = [
    *LLAMA, "head_dim", "rms_norm_eps", "rope_theta", "rope_parameters", "rope_scaling", "tie_word_embeddings", "bos_token_id",
    "eos_token_id", "layer_types", "layers_block_type", "hybrid_override_pattern", "attn_layer_period", "attn_layer_indices",
    "linear_attn_config", "attn_type_list", "block_types", "full_attention_interval", "sliding_window", "sliding_window_pattern",
    "max_window_layers", "num_kv_shared_layers", "per_layer_config", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
    "n_shared_experts", "mlp_layer_types", "mlp_only_layers", "moe_layers", "decoder_sparse_step", "first_k_dense_replace",
    "moe_layer_freq", "expert_layer_period", "kv_lora_rank", "index_head_dim", "text_config", "attn_config", "expansion_ratio",
]  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
def test_odd_values_are_read_or_named_and_take_no_time(field):
    """Whatever a field holds, the file is read, or ValueError says why not."""
    for base in ({}, {"sliding_window": 16}, {"num_experts": 8, "num_experts_per_tok": 2}, {"model_type": "gpt2"}):
        for value in ODD:
            with contextlib.suppress(ValueError):
                spec = read(**(base | {field: value}))
                assert spec.num_hidden_layers <= 10_000
                assert 0 < spec.rms_norm_eps < math.inf
                assert 0 < spec.rope_theta < math.inf
                assert isinstance(spec.tie_word_embeddings, bool)
                assert all(type(token_id) is int for token_id in spec.eos_token_ids)


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


PLAIN = {
    "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 512,
}  # fmt: skip
LATENT = PLAIN | {
    "model_type": "deepseek_v3",
    "kv_lora_rank": 20,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 10,
}
MIXED = PLAIN | {"model_type": "mixtral", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (PLAIN | {"num_key_value_heads": 3}, "num_attention_heads=4 must be a multiple of num_key_value_heads=3"),
        (PLAIN | {"num_key_value_heads": 8}, "num_attention_heads=4 must be a multiple of num_key_value_heads=8"),
        (
            PLAIN | {"num_key_value_heads": [2, 2]},
            r"num_key_value_heads=\[2, 2\] must be one integer, or one for each of the 4",
        ),
        (PLAIN | {"layer_types": ["full_attention"] * 3}, "layer_types has 3 entries for num_hidden_layers=4"),
        (PLAIN | {"hybrid_override_pattern": "M*M"}, "hybrid_override_pattern has 3 entries"),
        (PLAIN | {"attn_type_list": [0, 0, 0, 0]}, "none of the 4 layers has attention"),
        ({k: v for k, v in LATENT.items() if k != "kv_lora_rank"}, "has qk_nope_head_dim but lacks kv_lora_rank"),
        ({k: v for k, v in LATENT.items() if k != "v_head_dim"}, "lacks v_head_dim"),
        (MIXED | {"num_experts_per_tok": 5}, "num_experts_per_tok=5 is more than num_experts=4"),
        (PLAIN | {"model_type": "bert"}, "model_type='bert' is an encoder"),
    ],
)
def test_fields_that_contradict_each_other_are_named(config, message):
    with pytest.raises(ValueError, match=message):
        ModelSpec.from_hf_config(config)


NUMBERS = (*hf_kinds.COUNTS_FROM_0, *hf_kinds.COUNTS_FROM_1)


@pytest.mark.parametrize(
    "field", [*NUMBERS, *hf_kinds.LISTS, *hf_kinds.OBJECTS, *hf_kinds.SWITCHES, "model_type", "sliding_window_pattern"]
)
def test_a_value_of_the_wrong_kind_is_named_with_its_field(field):
    for base in (PLAIN | {"sliding_window": 4}, MIXED):
        for bad in (-1, 1.5, 10**30, float("nan"), [[1]], {"a": [float("inf")]}, "x" * 9, ["y", None], True):
            fits = (isinstance(bad, dict) and field in hf_kinds.OBJECTS) or (bad is True and field in hf_kinds.SWITCHES)
            fits |= isinstance(bad, str) and field in ("model_type", "sliding_window_pattern")
            if not fits:
                with pytest.raises(ValueError, match=field) as caught:
                    ModelSpec.from_hf_config(base | {field: bad})
                assert len(str(caught.value)) < 300


def test_null_counts_as_absent():
    fields = dict.fromkeys([*NUMBERS, *hf_kinds.LISTS, *hf_kinds.OBJECTS, *hf_kinds.SWITCHES, "sliding_window_pattern"])
    assert ModelSpec.from_hf_config(fields | PLAIN) == ModelSpec.from_hf_config(PLAIN)


def test_latent_attention_without_its_rank_is_refused():
    """Read as ordinary heads, its cache would be many times too large."""
    for changes in ({"kv_lora_rank": None}, {"kv_lora_rank": None, "qk_nope_head_dim": None}):
        with pytest.raises(ValueError, match="kv_lora_rank"):
            ModelSpec.from_hf_config(LATENT | changes)
    bare = {**PLAIN, "architectures": ["DeepseekV2ForCausalLM"]}
    with pytest.raises(ValueError, match="a model with latent attention"):
        ModelSpec.from_hf_config(bare)
    for family in ("minicpm3", "kimi_k2", "deepseek_v2"):
        with pytest.raises(ValueError, match="kv_lora_rank"):
            ModelSpec.from_hf_config(PLAIN | {"model_type": family})
    ordinary = {
        "kv_lora_rank": None,
        "q_lora_rank": None,
        "qk_nope_head_dim": 0,
        "qk_rope_head_dim": 0,
        "v_head_dim": 0,
    }
    spec = ModelSpec.from_hf_config(bare | {"model_type": "deepseek_v2", "use_mla": False} | ordinary)
    assert not spec.is_mla
    assert spec.kv_shapes == ((2, 16),) * 4


@pytest.mark.parametrize("family", ["t5", "mt5", "bart", "whisper"])
def test_encoder_decoders_are_refused_with_and_without_the_switch(family):
    with pytest.raises(ValueError, match="cross-attention"):
        ModelSpec.from_hf_config(PLAIN | {"model_type": family})


def test_a_mixture_without_its_number_of_experts_is_refused():
    with pytest.raises(ValueError, match="num_experts_per_tok=2, but num_experts"):
        ModelSpec.from_hf_config(PLAIN | {"num_experts_per_tok": 2})
    with pytest.raises(ValueError, match="moe_topk=2, but num_experts"):
        ModelSpec.from_hf_config(PLAIN | {"moe_topk": 2})
    with pytest.raises(ValueError, match="lacks num_experts"):
        ModelSpec.from_hf_config(PLAIN | {"model_type": "mixtral"})
    assert ModelSpec.from_hf_config(PLAIN | {"num_experts": 1, "num_experts_per_tok": 1}).num_experts == 0
    assert ModelSpec.from_hf_config(PLAIN | {"num_experts_per_tok": None}).num_experts == 0


def test_positions_that_are_not_written_are_not_invented():
    without = {key: value for key, value in PLAIN.items() if key != "max_position_embeddings"}
    assert ModelSpec.from_hf_config(without).max_position_embeddings == 0
    assert ModelSpec.from_hf_config({"text_config": without}).max_position_embeddings == 0
    with pytest.raises(
        ValueError, match="lacks max_position_embeddings or n_positions"
    ):  # they are part of its weights
        ModelSpec.from_hf_config(without | {"model_type": "gpt2"})


def test_a_nested_model_of_no_type_takes_no_defaults():
    with pytest.raises(ValueError, match=r"no model_type, read as a llama\) lacks num_hidden_layers"):
        ModelSpec.from_hf_config({"text_config": {"hidden_size": 64}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sliding_window": -4096}, "sliding_window=-4096 must be at least 1"),
        ({"num_key_value_heads": 0}, "num_key_value_heads=0 must be at least 1"),
        ({"num_key_value_heads": None, "n_head_kv": -2}, "n_head_kv=-2 must be at least 1"),
        ({"num_hidden_layers": None, "n_layer": 0}, "n_layer=0 must be at least 1"),
        ({"hidden_size": None, "n_embd": 6.5}, "n_embd=6.5 must be one integer"),
        ({"head_dim": -16}, "head_dim=-16 must be at least 1"),
        ({"max_position_embeddings": 0}, "max_position_embeddings=0 must be at least 1"),
        ({"num_key_value_heads": [2, -1, 2, 2]}, "num_key_value_heads="),
        ({"vocab_size": None}, "lacks vocab_size"),
        ({"layer_types": ["mamba"] * 4}, "none of the 4 layers has attention"),
    ],
)
def test_an_error_names_the_file_and_the_field_in_it(tmp_path, monkeypatch, changes, message):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(PLAIN | changes))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for given in ("model/config.json", "model", "model/", str(tmp_path / "model"), "~/model", "~/model/config.json"):
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            ModelSpec.from_hf_config(given)
        assert str(caught.value).startswith(given.removesuffix("/").removesuffix("/config.json") + "/config.json")


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ModelSpec.from_hf_config("~/config.json") == ModelSpec.from_hf_config(tmp_path)
    assert ModelSpec.from_hf_config("~").num_hidden_layers == 4


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
