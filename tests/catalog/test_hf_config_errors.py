"""What is wrong with a config.json is named: missing files and fields, odd values, contradictions, kinds of models that are not described."""

from __future__ import annotations

import contextlib
import json
import math
import re

import pytest

from mini_engine.catalog import ModelSpec, hf_kinds
from tests.catalog.llama_config import LLAMA, read


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
