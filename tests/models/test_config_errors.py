"""Configurations that cannot be run, in every family, each with the message a reader needs."""

from __future__ import annotations

import numpy as np
import pytest

from mini_engine.models import CorruptModelError, UnsupportedModelError, load_weights
from tests.models.damage import VOCAB_SIZE, edit_json, fails
from tests.oracle import full_logits


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, ["GemmaForCausalLM", "only LlamaForCausalLM, MistralForCausalLM"]),
        ({"architectures": ["LlamaForCausalLM", "MistralForCausalLM"]}, ["architectures"]),
        ({"architectures": None, "model_type": "gpt2"}, ["gpt2"]),
        ({"model_type": "gpt2"}, ["model_type is 'gpt2'"]),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, ["rope_scaling", "dynamic", "'llama3', 'yarn'"]),
        ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, ["rope_parameters", "longrope"]),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [2, 2, 2]}}, ["mrope"]),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "mscale": 0.7}}, ["field mscale is 0.7", "'linear'"]),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, ["field full_attention"]),
        ({"logit_scale": 0.5}, ["logit_scale is 0.5", "only 1 can be run"]),
        ({"brand_new_idea": 3}, ["brand_new_idea=3", "not known", "take it out"]),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}, ["0.5"]),
        ({"hidden_act": "gelu"}, ["hidden_act", "gelu"]),
        ({"mlp_bias": True}, ["mlp_bias"]),
        ({"quantization_config": {"quant_method": "gptq"}}, ["quantization_config", "gptq"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_unsupported_configurations(folder, changes, fragments):
    edit_json(folder / "config.json", **changes)
    fails(UnsupportedModelError, folder, "config.json", *fragments)


def test_an_architecture_and_a_model_type_that_contradict_each_other(folder, family):
    other, architecture = ("qwen2", "Qwen2ForCausalLM") if family != "qwen2" else ("mistral", "MistralForCausalLM")
    edit_json(folder / "config.json", architectures=[architecture])
    fails(UnsupportedModelError, folder, f"model_type is {family!r}", f"only {other!r} with {architecture}")


@pytest.mark.parametrize(
    "kinds",
    [["linear_attention", "full_attention", "full_attention"], ["sliding_attention"] * 3, ["full_attention"] * 2],
    ids=str,
)
def test_layers_that_are_not_all_alike(folder, kinds):
    edit_json(folder / "config.json", layer_types=kinds)
    fails((UnsupportedModelError, CorruptModelError), folder, "config.json", "layer_types|layers without attention")


@pytest.mark.parametrize(
    "changes",
    [
        {"sliding_window": 256},  # as wide as the context: no token is ever outside
        {"sliding_window": 32, "use_sliding_window": False},
        {"rope_scaling": {"type": "default"}},
        {"architectures": None},
        {"model_type": None},
        {"bos_token_id": []},
        {"eos_token_id": [0, VOCAB_SIZE - 1]},
        {"pretraining_tp": 2},  # a way to compute, not what
        {"brand_new_idea": False},
        {"logit_scale": 1.0},
    ],
    ids=str,
)
def test_harmless_configurations_change_nothing(folder, changes):
    expected = full_logits(load_weights(folder), range(20))
    edit_json(folder / "config.json", **changes)
    assert np.array_equal(full_logits(load_weights(folder), range(20)), expected)


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"hidden_size": None}, ["hidden_size"]),
        ({"num_hidden_layers": 0}, ["num_hidden_layers=0 must be at least 1"]),
        ({"num_hidden_layers": 10**6}, ["num_hidden_layers=1000000 must be at most 10000"]),
        ({"num_hidden_layers": 10**9}, ["num_hidden_layers=1000000000 must be at most 10000"]),
        (
            {"max_position_embeddings": 0},
            ["max_position_embeddings=0|max_position_embeddings must be at least 1, found 0"],
        ),
        ({"max_position_embeddings": 10**9}, ["max_position_embeddings must be at most 4194304, found 1000000000"]),
        ({"bos_token_id": "x"}, ["bos_token_id='x' must be a token id, a list of them, or null"]),
        ({"bos_token_id": [-1]}, ["bos_token_id must be in 0 .. 279 (vocab_size=280), found -1"]),
        ({"eos_token_id": "x"}, ["eos_token_id='x' must be a token id"]),
        ({"eos_token_id": 1.5}, ["eos_token_id=1.5 must be a token id"]),
        ({"eos_token_id": True}, ["eos_token_id=True must be a token id"]),
        ({"eos_token_id": {}}, ["eos_token_id={} must be a token id"]),
        ({"eos_token_id": [1, "a"]}, ["eos_token_id=[1, 'a'] must be a token id"]),
        ({"eos_token_id": -1}, ["eos_token_id must be in 0 .. 279 (vocab_size=280), found -1"]),
        ({"eos_token_id": VOCAB_SIZE}, ["eos_token_id", "found 280"]),
        ({"eos_token_id": [1, 10**9]}, ["eos_token_id", "found 1000000000"]),
        ({"tie_word_embeddings": "no"}, ["tie_word_embeddings='no' must be true or false"]),
        ({"tie_word_embeddings": 0}, ["tie_word_embeddings=0 must be true or false"]),
        ({"rms_norm_eps": float("inf")}, ["rms_norm_eps=inf must be a finite number above 0"]),
        ({"rms_norm_eps": float("nan")}, ["rms_norm_eps=nan must be a finite number above 0"]),
        ({"rms_norm_eps": [1e-5]}, ["rms_norm_eps=[1e-05] must be"]),
        ({"rope_parameters": {"rope_theta": float("inf")}}, ["rope_theta=inf must be"]),
        ({"hidden_size": "48"}, []),
        ({"num_key_value_heads": 5}, ["num_attention_heads=", "must be a multiple of num_key_value_heads=5"]),
        ({"head_dim": 7}, ["head_dim", "7"]),
        ({"rms_norm_eps": -1.0}, ["rms_norm_eps", "-1.0"]),
        ({"rms_norm_eps": "tiny"}, ["tiny"]),
        ({"rope_parameters": "default"}, ["rope_parameters='default' must be an object, or null"]),
        ({"rope_scaling": [8.0]}, ["rope_scaling=[8.0] must be an object, or null"]),
        ({"rope_parameters": {"rope_theta": 0}}, ["rope_theta=0 must be a finite number above 0"]),
        ({"sliding_window": 0, "use_sliding_window": None}, ["sliding_window=0 must be at least 1, or null"]),
        ({"rope_scaling": {"type": "linear"}}, ["factor must be a finite number of at least 1, found None"]),
        ({"rope_scaling": {"type": "linear", "factor": 0.5}}, ["factor", "0.5"]),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, ["high_freq_factor", "found None"]),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4, "high_freq_factor": 4}},
            ["high_freq_factor=4 must be more than low_freq_factor=4"],
        ),
        ({"rope_scaling": {"rope_type": "yarn", "factor": "wide"}}, ["factor", "'wide'"]),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 1, "beta_slow": 2}}, ["beta_fast=1"]),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": "no"}}, ["truncate", "'no'"]),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 1e9, "original_max_position_embeddings": 4096}}, ["4194304"]),
        ({"sliding_window": "wide", "use_sliding_window": True}, []),
    ],
    ids=str,
)
def test_impossible_configurations(folder, changes, fragments):
    older = {"rope_parameters": None} if "rope_scaling" in changes else {}
    edit_json(folder / "config.json", **older, **changes)
    fails(CorruptModelError, folder, "config.json", *fragments)
