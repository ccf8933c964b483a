"""Read any Hugging Face `config.json` into the fields of a `ModelSpec`.

Real files hold traps, and each is met in one place below: other names for the same field (`n_embd`, `ffn_dim`), fields that are left out because
the model's class knows them, a text model nested inside a multimodal one, KV heads that are absent, misleading or differ between layers,
windows given by a number, a pattern, a list or a switch, layers without attention, experts counted in five ways.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .hf_layers import attention_layers, expert_layers

OTHER_NAMES = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "hidden_size": ("n_embd", "d_model", "model_dim"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv", "multi_query_group_num", "num_query_groups"),
    "head_dim": ("attention_head_dim", "kv_channels"),
    "intermediate_size": ("ffn_dim", "n_inner", "ffn_hidden_size", "d_ff", "intermediate_size_mlp"),
    "vocab_size": ("padded_vocab_size", "n_vocab"),
    "max_position_embeddings": ("n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length", "seq_len"),
    "rms_norm_eps": ("layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_eps"),
    "rope_theta": ("rotary_emb_base", "rope_base"),
    "num_experts": ("n_routed_experts", "num_local_experts", "moe_num_experts"),
    "num_experts_per_tok": ("moe_topk", "moe_top_k", "moe_k", "top_k_experts", "num_experts_per_token"),
    "moe_intermediate_size": ("expert_ffn_hidden_size", "moe_ffn_hidden_size"),
    "n_shared_experts": ("num_shared_experts", "moe_num_shared_experts"),
    "shared_expert_intermediate_size": ("moe_shared_expert_intermediate_size", "shared_intermediate_size"),
}
"""Our field, which is the usual name, and what other families call it."""

NESTED = ("text_config", "llm_config", "language_config", "thinker_config", "text_model", "decoder")
"""Where multimodal models keep their language model."""

TIED_BY_DEFAULT = frozenset(
    [
        "bloom",
        "cohere",
        "cohere2",
        "ernie4_5",
        "ernie4_5_moe",
        "falcon",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "gemma3n_text",
        "gemma4_text",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "jetmoe",
        "lfm2",
        "lfm2_moe",
        "minicpm3",
        "mpt",
        "opt",
        "recurrent_gemma",
        "smollm3",
        "starcoder2",
        "vaultgemma",
        "youtu",
        "zamba",
        "zamba2",
    ]
)
"""Families whose class ties the embeddings when `tie_word_embeddings` is not written."""

HEAD_DIM_BY_DEFAULT = dict.fromkeys(
    ["gemma", "gemma2", "gemma3_text", "gemma3n_text", "gemma4_text", "recurrent_gemma"], 256
)
HEAD_DIM_BY_DEFAULT |= {"qwen3": 128, "qwen3_next": 256, "gpt_oss": 64}
"""Families whose class has a head size of its own, so that hidden_size / num_attention_heads would be wrong."""

NESTED_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
    },
    "llama": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "intermediate_size": 11008,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
    },
}
"""A nested text model is saved as its difference from its class. These classes' values are filled in, in nested configurations only."""

TWO_MATRIX_MLP = frozenset(
    [
        "arcee",
        "apertus",
        "bloom",
        "codegen",
        "falcon",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "gpt_neox",
        "gptj",
        "mpt",
        "nemotron",
        "opt",
        "persimmon",
        "phi",
        "starcoder2",
    ]
)
"""Families whose MLP is up and down; the others have a gate as well."""

LEARNED_POSITIONS = {"gpt2": 0, "gpt_bigcode": 0, "gpt_neo": 0, "opt": 2}
"""Families with a table of learned positions, and the rows it has beyond max_position_embeddings."""


def read_config(source: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `ModelSpec` from a `config.json`, the folder that holds one, or its contents.

    Raises FileNotFoundError with the remedy, or ValueError naming the field that is missing or cannot be read.
    """
    config, name = _load(source)
    return _Reader(config, name).fields()


def _load(source: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    if isinstance(source, Mapping):
        return source, str(source.get("name") or source.get("_name_or_path") or "")
    path = Path(source)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: give a model's config.json, or the folder that holds it")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path} holds a {type(config).__name__}, not the object a config.json is")
    return config, str(config.get("name") or path.resolve().parent.name)


class _Reader:
    """One configuration. `get` looks a field up under all its names; a missing one raises ValueError that names it."""

    def __init__(self, config: Mapping[str, Any], name: str):
        self.outer, self.name, self.nested = config, name, False
        while inner := next((config[key] for key in NESTED if isinstance(config.get(key), Mapping)), None):
            config, self.nested = inner, True
        self.config = config
        self.model_type = str(config.get("model_type") or self.outer.get("model_type") or "llama")

    def get(self, field: str, default: Any = None) -> Any:
        for key in (field, *OTHER_NAMES.get(field, ())):
            if self.config.get(key) is not None:
                return self.config[key]
        if self.nested:
            default = NESTED_DEFAULTS.get(self.model_type, {}).get(field, default)
        return default

    def integer(self, field: str, default: Any = None) -> int:
        value = self.get(field, default)
        where = f"the configuration of {self.name}" if self.name else "the configuration"
        if value is None:
            names = " or ".join((field, *OTHER_NAMES.get(field, ())))
            raise ValueError(f"{where} (model_type {self.model_type!r}) lacks {names}")
        if isinstance(value, list) and len(set(map(str, value))) == 1:
            value = value[0]
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{where}: {field}={value!r} must be one integer")
        return value

    def fields(self) -> dict[str, Any]:
        if self.outer.get("is_encoder_decoder") or self.config.get("is_encoder_decoder"):
            raise ValueError(
                f"is_encoder_decoder: {self.name or self.model_type} caches cross-attention too; only decoder-only models can be read"
            )
        layers = self._num_layers()
        heads = self.integer("num_attention_heads")
        hidden = self.integer("hidden_size")
        fields: dict[str, Any] = {
            "name": self.name,
            "architecture": (
                self.outer.get("architectures") or self.config.get("architectures") or ["LlamaForCausalLM"]
            )[0],
            "model_type": self.model_type,
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "num_key_value_heads": self._kv_heads(heads),
            "intermediate_size": self._intermediate_size(hidden),
            "vocab_size": self.integer("vocab_size", self.outer.get("vocab_size")),
            "max_position_embeddings": self.integer("max_position_embeddings"),
            "rms_norm_eps": float(self.get("rms_norm_eps", 1e-6)),
            "tie_word_embeddings": self._tied(),
            "gated_mlp": self.model_type not in TWO_MATRIX_MLP,
        }
        if self.model_type in LEARNED_POSITIONS:
            fields["learned_positions"] = fields["max_position_embeddings"] + LEARNED_POSITIONS[self.model_type]
        fields |= self._rope() | self._tokens() | self._latent()
        fields["head_dim"] = self._head_dim(hidden, heads, fields)
        fields |= expert_layers(self, layers)
        fields |= attention_layers(self, layers, fields["num_key_value_heads"], fields["head_dim"])
        return fields

    def _num_layers(self) -> int:
        kinds = self.config.get("layers_block_type") or self.config.get("hybrid_override_pattern")
        return self.integer("num_hidden_layers", len(kinds) if kinds else None)

    def _kv_heads(self, heads: int) -> int:
        """Absent KV heads mean one per query head, but for the families that say multi-query with a switch."""
        nested = self.config.get("attn_config")  # MPT
        if isinstance(nested, Mapping) and nested.get("kv_n_heads"):
            return int(nested["kv_n_heads"])
        grouped = self.config.get("new_decoder_architecture")  # Falcon-40B: num_kv_heads counts, multi_query does not
        if (
            self.config.get("multi_query")
            and not grouped
            and self.model_type in ("falcon", "RefinedWebModel", "gpt_bigcode")
        ):
            return 1
        if self.config.get("multi_query_attention") is False:  # ChatGLM
            return heads
        value = self.get("num_key_value_heads")
        if isinstance(value, list):  # one entry a layer: `attention_layers` reads them
            return max(value)
        return self.integer("num_key_value_heads", heads)

    def _head_dim(self, hidden: int, heads: int, fields: Mapping[str, Any]) -> int:
        """Read when given. With a latent cache it is the width of a query head, whatever the file calls head_dim."""
        if fields.get("kv_lora_rank"):
            return fields["qk_nope_head_dim"] + fields["qk_rope_head_dim"]
        given = self.get("head_dim", HEAD_DIM_BY_DEFAULT.get(self.model_type))
        if given is not None:
            return self.integer("head_dim", given)
        if hidden % heads:
            raise ValueError(
                f"head_dim is missing and hidden_size={hidden} is not a multiple of num_attention_heads={heads}"
            )
        return hidden // heads

    def _intermediate_size(self, hidden: int) -> int:
        dense = self.config.get("intermediate_size_mlp")  # Llama 4 keeps the experts' width under intermediate_size
        if dense is not None:
            return self.integer("intermediate_size_mlp")
        four_times = self.model_type in TWO_MATRIX_MLP or self.model_type.startswith("RefinedWeb")
        return self.integer(
            "intermediate_size",
            self.config.get("expansion_ratio", 4) * hidden if four_times else self.get("moe_intermediate_size"),
        )

    def _tied(self) -> bool:
        for config in (self.config, self.outer):
            if config.get("tie_word_embeddings") is not None:
                return bool(config["tie_word_embeddings"])
        return self.model_type in TIED_BY_DEFAULT

    def _rope(self) -> dict[str, Any]:
        """`rope_parameters` (transformers 5, one set or one per kind of layer) or the older `rope_theta` and `rope_scaling`."""
        parameters = self.config.get("rope_parameters") or {}
        parameters = parameters.get("full_attention") or parameters
        scaling = self.config.get("rope_scaling") or parameters
        kind = scaling.get("rope_type") or scaling.get("type") or "default"
        return {
            "rope_theta": float(parameters.get("rope_theta") or self.get("rope_theta", 10000.0)),
            "rope_scaling": None
            if kind == "default"
            else {key: value for key, value in scaling.items() if key != "rope_theta"},
        }

    def _tokens(self) -> dict[str, Any]:
        eos = self.get("eos_token_id", self.outer.get("eos_token_id"))
        bos = self.get("bos_token_id", self.outer.get("bos_token_id"))
        return {
            "bos_token_id": bos[0] if isinstance(bos, list) else bos,
            "eos_token_ids": () if eos is None else tuple(eos) if isinstance(eos, list) else (eos,),
        }

    def _latent(self) -> dict[str, Any]:
        """DeepSeek's latent attention (MLA). `num_key_value_heads` equals the head count there and says nothing about the cache."""
        if self.get("kv_lora_rank") is None:
            return {}
        names = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
        rank = self.get("q_lora_rank")
        return {name: self.integer(name) for name in names} | {
            "q_lora_rank": rank,
            "index_head_dim": self.get("index_head_dim", 0),
        }
