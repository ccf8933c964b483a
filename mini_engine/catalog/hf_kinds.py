"""What kind of value each field of a `config.json` must hold, checked before any of them is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mini_engine.arguments import COUNT_LIMIT, count, shown

COUNTS_FROM_0 = (
    "attn_layer_offset", "decoder_sparse_step", "expert_layer_offset", "expert_layer_period", "first_k_dense_replace",
    "full_attention_interval", "global_head_dim", "index_head_dim", "interleave_moe_layer_step", "layer_group_size",
    "max_window_layers", "moe_layer_start_index", "num_kv_shared_layers", "num_global_key_value_heads",
)  # fmt: skip
COUNTS_FROM_1 = ("attn_layer_period", "intermediate_size_mlp")
LISTS = (
    "architectures", "attention_layers", "attn_layer_indices", "attn_type_list", "block_types", "full_attn_idxs",
    "layer_types", "layers_block_type", "mlp_layer_types", "mlp_only_layers", "moe_layers",
)  # fmt: skip
LISTS_OF_TEXT = (
    "architectures",
    "attention_layers",
    "block_types",
    "layer_types",
    "layers_block_type",
    "mlp_layer_types",
)
OBJECTS = ("linear_attn_config", "per_layer_config", "rope_parameters", "rope_scaling")
SWITCHES = (
    "enable_moe_block",
    "is_encoder_decoder",
    "multi_query",
    "multi_query_attention",
    "new_decoder_architecture",
    "use_sliding_window",
)


def check_kinds(config: Mapping[str, Any], where: str) -> None:
    """ValueError naming the first field that holds the wrong kind of value. A field that is null counts as absent."""
    for field, value in config.items():
        if value is None:
            continue
        if field in COUNTS_FROM_0 or field in COUNTS_FROM_1:
            count(field, value, minimum=0 if field in COUNTS_FROM_0 else 1)
        wanted = _wanted(field, value)
        if wanted:
            raise ValueError(f"{where}: {field}={shown(value)} must be {wanted}")


def _wanted(field: str, value: Any) -> str:
    """What the field should hold; "" when it does."""
    if field in LISTS and not isinstance(value, list | tuple):
        return "a list"
    if field in LISTS_OF_TEXT and not all(isinstance(member, str) for member in value):
        return "a list of texts"
    if field in LISTS and field not in LISTS_OF_TEXT and not all(type(member) is int for member in value):
        return "a list of integers"
    if field in OBJECTS and not isinstance(value, Mapping):
        return "an object"
    if field in SWITCHES and not isinstance(value, bool):
        return "true or false"
    if field == "model_type" and not isinstance(value, str):
        return "a text"
    if field == "hybrid_override_pattern" and not isinstance(value, str | list):
        return "a text of one letter a layer"
    if field in ("sliding_window_pattern", "_sliding_window_pattern"):
        fine = isinstance(value, str) or (type(value) is int and 0 <= value <= COUNT_LIMIT)
        return "" if fine else "an integer of at least 0, or a text of one letter a layer"
    return ""
