"""A ModelSpec written as the `config.json` that transformers' own configuration class saves for it. An oracle for the reader."""

from __future__ import annotations

import json
from typing import Any

from mini_engine.catalog import ModelSpec

GPT2_NAMES = {
    "num_hidden_layers": "n_layer",
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}


def transformers_config(spec: ModelSpec, **changes: Any):
    """The configuration object of transformers for `spec`; `changes` are the class's own arguments."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = CONFIG_MAPPING[spec.model_type]
    arguments: dict[str, Any] = {
        name: getattr(spec, name)
        for name in (
            "num_hidden_layers",
            "hidden_size",
            "num_attention_heads",
            "intermediate_size",
            "vocab_size",
            "max_position_embeddings",
            "tie_word_embeddings",
        )
    }
    arguments |= {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    if spec.model_type not in ("gpt2", "opt", "falcon"):
        arguments["num_key_value_heads"] = spec.num_key_value_heads
        arguments["rms_norm_eps"] = spec.rms_norm_eps
        arguments["head_dim"] = spec.head_dim
    if spec.is_mla:
        del arguments["head_dim"]  # the class sets it to the rotary part
        for name in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "q_lora_rank"):
            arguments[name] = getattr(spec, name)
    if spec.model_type == "gpt2":
        arguments = {GPT2_NAMES.get(name, name): value for name, value in arguments.items()}
    if spec.model_type == "opt":
        arguments |= {"ffn_dim": arguments.pop("intermediate_size"), "word_embed_proj_dim": spec.hidden_size}
    if spec.model_type == "falcon":
        arguments["ffn_hidden_size"] = arguments.pop("intermediate_size")
        grouped = spec.num_key_value_heads > 1
        arguments |= {"multi_query": True, "new_decoder_architecture": grouped}
        if grouped:
            arguments["num_kv_heads"] = spec.num_key_value_heads
    arguments |= _experts(spec) | _layers(spec)
    return kind(**(arguments | changes))


def _experts(spec: ModelSpec) -> dict[str, Any]:
    if not spec.num_experts:
        return {}
    fields: dict[str, Any] = {"num_experts_per_tok": spec.num_experts_per_tok}
    own_width = spec.model_type in ("qwen3_moe", "qwen3_next", "deepseek_v2", "deepseek_v3", "glm4_moe")
    if own_width:
        fields["moe_intermediate_size"] = spec.moe_intermediate_size
    if spec.model_type in ("deepseek_v2", "deepseek_v3", "glm4_moe"):
        fields |= {
            "n_routed_experts": spec.num_experts,
            "n_shared_experts": spec.n_shared_experts,
            "first_k_dense_replace": spec.num_hidden_layers - spec.num_moe_layers,
        }
    elif spec.model_type in ("qwen3_moe", "qwen3_next", "jamba"):
        fields["num_experts"] = spec.num_experts
        if spec.n_shared_experts:
            fields["shared_expert_intermediate_size"] = spec.shared_expert_intermediate_size
    else:
        fields["num_local_experts"] = spec.num_experts
    return fields


def _layers(spec: ModelSpec) -> dict[str, Any]:
    windows = {window for window in spec.layer_windows if window is not None}
    if spec.layers_without_kv:  # every n-th layer attends, which these classes know by themselves
        return {}
    if not windows:
        return {"sliding_window": None} if spec.model_type in ("mistral", "phi3") else {}
    fields: dict[str, Any] = {"sliding_window": windows.pop()}
    if None in spec.layer_windows:
        fields["layer_types"] = ["full_attention" if w is None else "sliding_attention" for w in spec.layer_windows]
    return fields


def config_json(spec: ModelSpec, **changes: Any) -> dict[str, Any]:
    """`config.json` of `spec` as transformers saves it, parsed again."""
    config = transformers_config(spec, **changes)
    config.architectures = [spec.architecture]
    return json.loads(config.to_json_string(use_diff=True)) | {"name": spec.name}
