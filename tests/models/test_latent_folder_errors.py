"""What a folder with latent attention may not be: each with the message a reader needs, and no field without effect."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

from mini_engine.catalog import ModelSpec
from mini_engine.models import CorruptModelError, UnsupportedModelError, load_weights, random_model
from tests.deepseek import YARN, transformers_run, uncached_logits
from tests.models.damage import edit_json, edit_tensors
from tests.oracle import LATENT_FAMILIES, ROW_TOLERANCE, row_error, save_random_model

IDS = list(range(40))


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folders = tmp_path_factory.mktemp("sound")
    return {
        family: save_random_model(folders / family, family, q_lora_rank=20, rope_parameters=YARN, num_experts_per_tok=2)
        for family in LATENT_FAMILIES
    }


@pytest.fixture(params=LATENT_FAMILIES)
def folder(request, sound, tmp_path):
    return shutil.copytree(sound[request.param], tmp_path / "model")


def fails(error, folder, *fragments):
    for backend in ("torch", "numpy"):
        with pytest.raises(error) as caught:
            load_weights(folder, backend=backend)
        for fragment in (str(folder), *fragments):
            assert fragment in str(caught.value), f"{fragment!r} is not in: {caught.value}"


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"first_k_dense_replace": 2}, ["experts in place of an MLP"]),
        ({"first_k_dense_replace": 0}, ["experts in place of an MLP"]),
        ({"first_k_dense_replace": None}, ["experts in place of an MLP"]),
        ({"hidden_act": "gelu"}, ["hidden_act is 'gelu'"]),
        ({"attention_bias": True}, ["attention_bias is True"]),
        ({"mlp_bias": True}, ["mlp_bias is True"]),
        ({"quantization_config": {"quant_method": "fp8"}}, ["quantization_config is 'fp8'"]),
        ({"index_head_dim": 64}, ["index_head_dim=64"]),
        ({"sliding_window": 8, "layer_types": ["sliding_attention"] * 3}, ["layer_types"]),
        ({"qk_layernorm": True}, ["qk_layernorm=True"]),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, ["rope_scaling", "dynamic"]),
        ({"model_type": "llama"}, ["model_type is 'llama'"]),
        ({"architectures": ["DeepseekV32ForCausalLM"]}, ["DeepseekV32ForCausalLM"]),
    ],
    ids=str,
)
def test_unsupported_configurations(folder, changes, fragments):
    edit_json(folder / "config.json", **changes)
    fails(UnsupportedModelError, folder, "config.json", *fragments)


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"kv_lora_rank": None}, ["lacks kv_lora_rank"]),
        (
            dict.fromkeys(
                ["kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "qk_head_dim", "q_lora_rank"]
            ),
            ["lacks kv_lora_rank"],
        ),
        ({"kv_lora_rank": 0}, ["kv_lora_rank=0"]),
        ({"kv_lora_rank": "24"}, ["kv_lora_rank='24'"]),
        ({"qk_rope_head_dim": None}, ["qk_rope_head_dim"]),
        ({"v_head_dim": None}, ["v_head_dim"]),
        ({"v_head_dim": -10}, ["v_head_dim=-10"]),
        ({"q_lora_rank": 0}, ["q_lora_rank=0"]),
        ({"q_lora_rank": "20"}, ["q_lora_rank='20'"]),
        ({"q_lora_rank": True}, ["q_lora_rank=True"]),
        ({"qk_rope_head_dim": 7, "qk_head_dim": 19, "head_dim": 7}, ["must be even", "found 7"]),
        ({"qk_head_dim": 24}, ["qk_head_dim=24 contradicts", "must be 20"]),
        ({"head_dim": 48}, ["head_dim=48 contradicts", "must be 8 or 20"]),
        ({"num_key_value_heads": 2}, ["num_key_value_heads=2 must be 4"]),
        ({"num_key_value_heads": 1}, ["num_key_value_heads=1 must be 4"]),
        ({"rope_parameters": YARN | {"factor": 0.5}}, ["factor", "0.5"]),
        ({"rope_parameters": YARN | {"mscale_all_dim": "all"}}, ["mscale_all_dim", "'all'"]),
        ({"eos_token_id": 131}, ["eos_token_id", "131"]),
    ],
    ids=str,
)
def test_contradicting_configurations(folder, changes, fragments):
    edit_json(folder / "config.json", **changes)
    fails(CorruptModelError, folder, "config.json", *fragments)


@pytest.mark.parametrize(
    "changes",
    [
        {"q_lora_rank": 16},
        {"q_lora_rank": None},
        {"kv_lora_rank": 16},
        {"v_head_dim": 12},
        {"qk_nope_head_dim": 14, "qk_head_dim": 22},
        {"qk_rope_head_dim": 6, "qk_head_dim": 18, "head_dim": 6},
        {"num_attention_heads": 2, "num_key_value_heads": 2},
        {"num_hidden_layers": 2},
        {"num_hidden_layers": 4},
    ],
    ids=str,
)
def test_a_configuration_of_other_shapes_than_the_weights(folder, changes):
    edit_json(folder / "config.json", **changes)
    fails(CorruptModelError, folder, "fetch both again")


@pytest.mark.parametrize(
    "part", ["q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj"]
)
def test_missing_misshapen_and_poisoned_tensors(folder, part):
    weights, name = folder / "model.safetensors", f"model.layers.1.self_attn.{part}.weight"
    sound = weights.read_bytes()
    edit_tensors(weights, lambda tensors: tensors.pop(name))
    fails(CorruptModelError, folder, name, "is missing")
    weights.write_bytes(sound)
    edit_tensors(weights, lambda tensors: tensors.update({name: tensors[name][:-1].clone()}))
    fails(CorruptModelError, folder, name, "has shape")
    weights.write_bytes(sound)
    edit_tensors(weights, lambda tensors: tensors[name].view(-1)[-1:].fill_(float("nan")))
    fails(CorruptModelError, folder, name, "not finite")


def test_tensors_of_experts_and_of_further_predictions_are_not_ignored(folder):
    for name in ("model.layers.1.mlp.gate.weight", "model.layers.3.eh_proj.weight"):
        shutil.copy(folder / "model.safetensors", folder / "sound")
        edit_tensors(
            folder / "model.safetensors",
            lambda tensors, name=name: tensors.update({name: tensors["lm_head.weight"][:4].clone()}),
        )
        fails(CorruptModelError, folder, name, "1 tensors are not part of")
        shutil.move(folder / "sound", folder / "model.safetensors")


HARMLESS = {
    "first_k_dense_replace": 99, "n_routed_experts": 8, "moe_intermediate_size": 96, "num_experts_per_tok": 4,
    "routed_scaling_factor": 7.0, "norm_topk_prob": True, "n_group": 2, "topk_group": 1, "n_shared_experts": 4,
    "head_dim": 20, "num_key_value_heads": None, "qk_head_dim": None, "rope_interleave": None,
}  # fmt: skip
"""What describes experts that no layer has, and what a file may leave out."""


def test_fields_without_effect_have_none(folder):
    expected = uncached_logits(load_weights(folder), IDS)
    edit_json(folder / "config.json", **HARMLESS)
    assert np.array_equal(uncached_logits(load_weights(folder), IDS), expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"rms_norm_eps": 1e-2},
        {"rope_parameters": YARN | {"rope_theta": 500.0}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        *({"rope_parameters": YARN | {name: value}} for name, value in {
            "factor": 8.0, "original_max_position_embeddings": 32, "beta_fast": 1, "mscale": 1.1, "mscale_all_dim": 0.4,
            "attention_factor": 1.5, "truncate": False,
        }.items()),
    ],
    ids=str,
)  # fmt: skip
def test_fields_that_matter_change_the_logits_as_they_change_transformers(folder, changes):
    before = uncached_logits(load_weights(folder, backend="numpy"), IDS)
    edit_json(folder / "config.json", **changes)
    after = uncached_logits(load_weights(folder, backend="numpy"), IDS)
    assert row_error(before, after) > 10 * ROW_TOLERANCE
    assert row_error(after, transformers_run(folder)(IDS)[0]) < ROW_TOLERANCE


def test_rope_interleave_is_a_switch_of_v3_alone(sound, tmp_path):
    folder = shutil.copytree(sound["deepseek_v3"], tmp_path / "V3")
    before = uncached_logits(load_weights(folder), IDS)
    edit_json(folder / "config.json", rope_interleave=False)
    assert row_error(uncached_logits(load_weights(folder), IDS), before) > 10 * ROW_TOLERANCE
    edit_json(folder / "config.json", rope_interleave="no")
    fails(CorruptModelError, folder, "rope_interleave='no' must be true or false")
    folder = shutil.copytree(sound["deepseek_v2"], tmp_path / "V2")
    before = uncached_logits(load_weights(folder), IDS)
    edit_json(folder / "config.json", rope_interleave=False)  # transformers' V2 does not look at it
    assert np.array_equal(uncached_logits(load_weights(folder), IDS), before)
    edit_json(folder / "config.json", rope_interleave=True)
    fails(UnsupportedModelError, folder, "rope_interleave=True")


def test_a_latent_in_another_family_is_refused(sound, tmp_path):
    folder = shutil.copytree(sound["deepseek_v2"], tmp_path / "model")
    edit_json(folder / "config.json", architectures=["LlamaForCausalLM"], model_type="llama")
    fails(UnsupportedModelError, folder, "model_type 'llama'")


def test_random_models_are_checked_alike(sound):
    spec = ModelSpec.from_hf_config(json.loads((sound["deepseek_v2"] / "config.json").read_text()))
    assert uncached_logits(random_model(spec), IDS[:5]).shape == (5, 131)
    for changes, message in (
        ({"architecture": "LlamaForCausalLM"}, "caches no latent"),
        ({"head_dim": 12}, "head_dim=12 must be 20"),
        ({"num_key_value_heads": 1}, "num_key_value_heads=1 must be 4"),
        (
            {"kv_lora_rank": None, "qk_rope_head_dim": None, "qk_nope_head_dim": None, "v_head_dim": None},
            "kv_lora_rank",
        ),
    ):
        with pytest.raises(CorruptModelError, match=message):
            random_model(dataclasses.replace(spec, **changes))
    with pytest.raises(UnsupportedModelError, match="index_head_dim=64"):
        random_model(dataclasses.replace(spec, index_head_dim=64))
