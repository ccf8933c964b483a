"""What each layer of a configuration is: full attention, attention with a window, none; dense or experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mini_engine.arguments import shown
from mini_engine.catalog.hf_families import MIXTURES, WINDOW_BY_DEFAULT, WINDOW_OFF_BY_DEFAULT

FULL = frozenset([
    "full_attention", "attention", "full", "global", "global_attention", "indexed_attention",
    "deepseek_sparse_attention", "hybrid", "*", "G",
])  # fmt: skip
WINDOWED = frozenset([
    "sliding_attention", "sliding", "local", "local_attention", "chunked_attention", "swa", "L",
    "hybrid_sliding", "reference_sliding_attention",
])  # fmt: skip
WITHOUT_KV = frozenset([
    "linear_attention", "mamba", "mamba2", "conv", "short_conv", "recurrent", "lightning_attention", "mlp", "moe",
    "M", "-", "E",
])  # fmt: skip
"""The words configurations use for their layers.

`*`, `M`, `-` and `E` are Nemotron-H's letters, `L` and `G` EXAONE's.
"""

EVERY_NTH_IS_FULL = {
    "gemma2": 2,
    "gpt_oss": 2,
    "gemma3_text": 6,
    "gemma4_text": 6,
    "gemma3n_text": 5,
    "cohere2": 4,
    "exaone4": 4,
    "olmo3": 4,
    "llama4_text": 4,
}
"""Families that alternate windowed and full layers and may leave the pattern out: every n-th layer is full."""

EVERY_NTH_ATTENDS = {"qwen3_next": 4, "qwen3_5_text": 4, "qwen3_5_moe_text": 4, "olmo_hybrid": 4, "bailing_hybrid": 6}
"""Families whose other layers are linear attention."""


LISTED = ("layer_types", "layers_block_type", "hybrid_override_pattern", "attention_layers")
PATTERNS = ("attn_type_list", "block_types", "sliding_window_pattern", "_sliding_window_pattern")
"""Where a configuration may spell out its layers."""


def attention_layers(reader: Any, layers: int, kv_heads: int, head_dim: int) -> dict[str, Any]:
    """`layer_windows`, `layer_kv_shapes` and `layers_without_kv` of a `ModelSpec`, from whatever the configuration
    gives.
    """
    kinds = _kinds(reader, layers)
    given = next((name for name in (*LISTED, *PATTERNS) if reader.config.get(name)), "layer_types")
    if len(kinds) != layers:
        raise ValueError(f"{given} has {len(kinds)} entries for num_hidden_layers={layers}")
    shared = reader.get("num_kv_shared_layers", 0)  # Gemma 3n: the last layers read the K/V of an earlier one
    window = _window(reader)
    heads = reader.get("num_key_value_heads")
    shapes, windows, without = [], [], []
    for layer, kind in enumerate(kinds):
        if layer >= layers - shared:
            without.append("shared K/V")
            continue
        if kind not in FULL | WINDOWED:
            if kind not in WITHOUT_KV:
                raise ValueError(f"{given}[{layer}]={kind!r} is not a kind of layer that is known here")
            without.append(kind)
            continue
        if kind in WINDOWED and window is None:
            raise ValueError(f"{given}[{layer}]={kind!r}, but sliding_window is missing")
        layer_heads = heads[layer] if isinstance(heads, list) else kv_heads
        if not layer_heads:
            without.append("no KV heads")
            continue
        windows.append(window if kind in WINDOWED else None)
        shapes.append(_shape(reader, layer, kind in WINDOWED, layer_heads, head_dim))
    if not windows:
        raise ValueError(
            f"none of the {layers} layers has attention, by layer_types or what stands for it, or by "
            "num_key_value_heads: there is no KV cache to size"
        )
    return {"layer_windows": tuple(windows), "layer_kv_shapes": tuple(shapes), "layers_without_kv": tuple(without)}


def _kinds(reader: Any, layers: int) -> Sequence[str]:
    """One word a layer: from a list, a pattern, a period, or the habit of the family."""
    config, family = reader.config, reader.model_type
    listed = next((config[name] for name in LISTED if config.get(name)), None)
    if listed:
        return listed
    if config.get("attn_layer_period"):  # Jamba
        period, offset = config["attn_layer_period"], config.get("attn_layer_offset", 0)
        return ["attention" if i % period == offset else "mamba" for i in range(layers)]
    attending = config.get("attn_layer_indices") or config.get("full_attn_idxs")  # Bamba, LFM2
    if attending is not None:
        return ["attention" if i in attending else "conv" for i in range(layers)]
    if config.get("linear_attn_config"):  # Kimi Linear counts layers from 1
        attending = config["linear_attn_config"].get("full_attn_layers", [])
        return ["attention" if i + 1 in attending else "linear_attention" for i in range(layers)]
    if config.get("attn_type_list"):  # MiniMax-01: 1 is attention
        return ["attention" if kind == 1 else "linear_attention" for kind in config["attn_type_list"]]
    if config.get("block_types"):  # RecurrentGemma: its attention is always local
        repeated = [config["block_types"][i % len(config["block_types"])] for i in range(layers)]
        return ["local" if kind == "attention" else kind for kind in repeated]
    interval = config.get("full_attention_interval") or config.get("layer_group_size") or EVERY_NTH_ATTENDS.get(family)
    if interval:
        return ["attention" if (i + 1) % interval == 0 else "linear_attention" for i in range(layers)]
    return _windowed_kinds(reader, layers)


def _windowed_kinds(reader: Any, layers: int) -> Sequence[str]:
    config, family = reader.config, reader.model_type
    if _window(reader) is None:
        return ["full"] * layers
    pattern = (
        config.get("sliding_window_pattern") or config.get("_sliding_window_pattern") or EVERY_NTH_IS_FULL.get(family)
    )
    if isinstance(pattern, str):  # EXAONE: "LLLG"
        return [pattern[i % len(pattern)] for i in range(layers)]
    if pattern:
        return ["full" if (i + 1) % pattern == 0 else "sliding" for i in range(layers)]
    if "max_window_layers" in config:  # Qwen: the first layers are full
        return ["sliding" if i >= config["max_window_layers"] else "full" for i in range(layers)]
    return ["sliding"] * layers  # Mistral, Phi-3


def _window(reader: Any) -> int | None:
    """Tokens a windowed layer keeps, the newest included.

    `use_sliding_window: false` switches it off, as Qwen's files do.
    """
    if not reader.config.get("use_sliding_window", reader.model_type not in WINDOW_OFF_BY_DEFAULT):
        return None
    if "sliding_window" not in reader.config and reader.model_type in WINDOW_BY_DEFAULT:
        return WINDOW_BY_DEFAULT[reader.model_type]
    for name in ("sliding_window", "attention_chunk_size", "attention_window_size", "window_size"):
        if reader.config.get(name):
            return reader.integer(name)
    return None


def _shape(reader: Any, layer: int, windowed: bool, heads: int, head_dim: int) -> tuple[int, int]:
    """(KV heads, head size) of one layer. Gemma 4's full layers have a head size of their own."""
    listed = reader.config.get("per_layer_config")  # as transformers saves it: what differs, by layer
    if listed:
        own = listed.get(str(layer)) or listed.get(layer) or {}
        return own.get("num_key_value_heads") or heads, own.get("head_dim") or head_dim
    default = 512 if reader.model_type == "gemma4_text" else None
    if not windowed and reader.get("global_head_dim", default):
        head_dim = reader.integer("global_head_dim", default)
        if reader.config.get("attention_k_eq_v") and reader.config.get("num_global_key_value_heads"):
            heads = reader.integer("num_global_key_value_heads")
    return heads, head_dim


def expert_layers(reader: Any, layers: int) -> dict[str, Any]:
    """Mixture-of-experts fields of a `ModelSpec`; nothing for a dense model."""
    experts = reader.get("num_experts")
    per_token, chosen = reader.find("num_experts_per_tok")
    if experts is None and reader.config.get("enable_moe_block") is not False:
        if chosen:
            raise ValueError(
                f"{per_token}={shown(chosen)}, but num_experts, n_routed_experts or num_local_experts is missing"
            )
        if reader.model_type in MIXTURES:
            reader.integer("num_experts")
    if isinstance(experts, list):
        raise ValueError(f"num_experts={experts!r} differs between layers, which a ModelSpec cannot hold")
    if not experts or experts == 1 or reader.config.get("enable_moe_block") is False:
        return {}
    width = reader.get("moe_intermediate_size")
    if width is None or reader.config.get("intermediate_size_mlp"):
        width = reader.integer("intermediate_size")
    sparse = layers - _dense_layers(reader, layers)
    if not sparse:  # DeepSeek's classes with first_k_dense_replace = num_hidden_layers
        return {}
    fields = {
        "num_experts": experts,
        "num_experts_per_tok": reader.integer("num_experts_per_tok"),
        "moe_intermediate_size": width if isinstance(width, int) else reader.integer("moe_intermediate_size"),
        "num_moe_layers": sparse,
    }
    shared = (
        reader.integer("n_shared_experts")
        if isinstance(reader.get("n_shared_experts"), list)
        else reader.get("n_shared_experts", 0)
    )
    shared_width = reader.get("shared_expert_intermediate_size")
    if reader.model_type == "llama4_text":
        shared = 1
    if shared or shared_width:
        fields["n_shared_experts"] = shared or 1
        fields["shared_expert_intermediate_size"] = shared_width or fields["moe_intermediate_size"]
    return fields


def _dense_layers(reader: Any, layers: int) -> int:
    """How many layers have an ordinary MLP instead of experts."""
    config = reader.config
    kinds = config.get("mlp_layer_types")
    if kinds:
        return sum(kind == "dense" for kind in kinds)
    if config.get("hybrid_override_pattern") or "moe" in (config.get("layers_block_type") or ()):
        blocks = config.get("hybrid_override_pattern") or config["layers_block_type"]
        return layers - sum(block in ("moe", "E") for block in blocks)
    if config.get("moe_layers"):
        return layers - len(config["moe_layers"])
    if config.get("expert_layer_period"):  # Jamba
        period, offset = config["expert_layer_period"], config.get("expert_layer_offset", 0)
        return sum(i % period != offset for i in range(layers))
    dense = set(config.get("mlp_only_layers") or ())
    step = config.get("decoder_sparse_step") or config.get("interleave_moe_layer_step") or 1
    first = config.get("first_k_dense_replace") or config.get("moe_layer_start_index") or 0
    frequency = config.get("moe_layer_freq")
    if isinstance(frequency, list):  # one flag a layer
        return sum(not flag for flag in frequency)
    return sum(i in dense or i < first or (i + 1) % step != 0 for i in range(layers))
