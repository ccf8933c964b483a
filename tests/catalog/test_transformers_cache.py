"""The formulas against the cache that transformers builds: a small model of every class in the table, its tensors counted."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest

from mini_engine.catalog import ModelSpec, get_model, list_models
from mini_engine.geometry import kv_bytes_hybrid, kv_elems_per_token, param_breakdown, params
from tests.catalog.hf_writer import transformers_config

WINDOW = 6


def small(name: str) -> ModelSpec:
    """The same kind of model with few, odd-sized parts: the pattern of layers, the head ratio and the expert layout stay."""
    spec = get_model(name)
    heads = 4
    kv_heads = {True: 1, False: 2}[spec.num_key_value_heads == 1]
    if spec.num_key_value_heads == spec.num_attention_heads:
        kv_heads = heads
    own_head_dim = spec.model_type not in ("gpt2", "opt", "falcon")
    layers = 8 if spec.layers_without_kv else 6
    changes = {
        "num_hidden_layers": layers,
        "hidden_size": 32,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": 16 if own_head_dim and spec.model_type not in ("phi3", "jamba") else 8,
        "intermediate_size": 24,
        "vocab_size": 64,
        "max_position_embeddings": 32,
        "learned_positions": spec.learned_positions and 32 + (2 if spec.model_type == "opt" else 0),
        "layer_windows": tuple(window and WINDOW for window in spec.layer_windows[:layers]),
        "layers_without_kv": (),
    }
    if spec.layers_without_kv:  # one or two layers of eight attend
        attending = layers * spec.num_attention_layers // spec.num_hidden_layers
        changes["layer_windows"] = (None,) * attending
        changes["layers_without_kv"] = spec.layers_without_kv[: layers - attending]
    if spec.is_mla:
        changes |= {"kv_lora_rank": 20, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 10, "head_dim": 20}
        changes["q_lora_rank"] = spec.q_lora_rank and 14
    if spec.num_experts:
        dense = spec.num_hidden_layers - spec.num_moe_layers
        changes |= {"num_experts": 4, "num_experts_per_tok": 2, "num_moe_layers": layers - min(dense, layers // 2)}
        changes["moe_intermediate_size"] = 24 if spec.moe_intermediate_size == spec.intermediate_size else 12
        if spec.model_type == "minimax_m2":
            changes["moe_intermediate_size"] = 24
        if spec.n_shared_experts:
            changes["shared_expert_intermediate_size"] = 12
    return dataclasses.replace(spec, **changes)


def build(spec: ModelSpec):
    import torch
    from transformers import AutoModelForCausalLM

    extra = {}
    if spec.model_type in ("deepseek_v3", "glm4_moe"):
        extra = {"n_group": 1, "topk_group": 1}
    if spec.model_type == "deepseek_v2":
        extra = {"topk_method": "greedy"}
    if spec.model_type == "jamba":
        extra = {"use_mamba_kernels": False}
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(transformers_config(spec, **extra)).eval()


def cached_elements(model, tokens: int) -> int:
    """Elements of keys and values in the cache after a forward pass over `tokens` tokens."""
    import torch

    with torch.no_grad():
        cache = model(torch.arange(tokens).remainder(60)[None] + 1, use_cache=True).past_key_values
    held = [getattr(layer, name, None) for layer in cache.layers for name in ("keys", "values")]
    return sum(tensor.numel() for tensor in held if tensor is not None)


CLASSES = {get_model(name).model_type: name for name in reversed(list_models())} | {
    "deepseek_v2 low-rank q": "deepseek-v2"
}


@cache
def pair(name: str):
    spec = small(name)
    return spec, build(spec)


def classes(keep=lambda spec: True):
    kept = {kind: name for kind, name in CLASSES.items() if keep(get_model(name))}
    return pytest.mark.parametrize("name", kept.values(), ids=kept.keys())


@classes()
def test_the_cache_holds_what_the_formula_says(name):
    spec, model = pair(name)
    for tokens in (1, WINDOW - 1):
        assert cached_elements(model, tokens) == kv_elems_per_token(spec) * tokens


@classes(lambda spec: spec.num_windowed_layers)
def test_beyond_the_window_transformers_keeps_one_token_less(name):
    """Our window w counts the newest token; transformers stores the w - 1 before it, which is all that the next step reads."""
    spec, model = pair(name)
    stored = [window and window - 1 for window in spec.layer_windows]
    assert cached_elements(model, 3 * WINDOW) == kv_bytes_hybrid(spec, stored, 3 * WINDOW, "int8")


@classes(lambda spec: not spec.layers_without_kv)
def test_parameters_are_those_of_the_class(name):
    """Weights and norms of the real module, without the biases, extra norms and sinks that the formula leaves out."""
    spec, model = pair(name)
    left_out = ("bias", "q_norm", "k_norm", "sinks", "pre_feedforward", "post_feedforward", "ln_attn", "ln_mlp")
    counted = sum(
        tensor.numel() for name, tensor in model.named_parameters() if not any(word in name for word in left_out)
    )
    found = params(spec)
    if spec.model_type == "falcon":  # one norm a layer where attention and MLP run side by side
        found -= spec.num_hidden_layers * spec.hidden_size
    assert found == counted, param_breakdown(spec)


def test_falcon_40b_caches_more_than_it_must():
    """Its 8 KV heads are repeated before they are cached in transformers. The formula counts the 8, which vLLM stores."""
    spec = small("falcon-40b")
    assert spec.num_key_value_heads == 2
    assert (
        cached_elements(build(spec), 3)
        == 3 * kv_elems_per_token(spec) * spec.num_attention_heads // spec.num_key_value_heads
    )


def test_every_class_of_the_table_has_its_instance():
    """One small model of each class that the table names, and it is that class."""
    table = {get_model(name).architecture for name in list_models()}
    assert {get_model(name).architecture for name in CLASSES.values()} == table
    for name in CLASSES.values():
        assert type(pair(name)[1]).__name__ == get_model(name).architecture
