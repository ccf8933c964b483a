"""Read any Hugging Face `config.json` into the fields of a `ModelSpec`.

Real files hold traps, and each is met in one place below: other names for the same field (`n_embd`, `ffn_dim`),
fields that are left out because the model's class knows them, a text model nested inside a multimodal one, KV heads
that are absent, misleading or differ between layers, windows given by a number, a pattern, a list or a switch, layers
without attention, experts counted in five ways.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping
from typing import Any

from mini_engine.arguments import count, shown
from mini_engine.catalog.hf_families import (
    ENCODER_DECODERS,
    ENCODERS,
    HEAD_DIM_BY_DEFAULT,
    LATENT,
    LEARNED_POSITIONS,
    NO_POSITION_LIMIT,
    RECURRENT,
    TIED_BY_DEFAULT,
    TWO_MATRIX_MLP,
)
from mini_engine.catalog.hf_file import load_config, naming
from mini_engine.catalog.hf_kinds import check_kinds
from mini_engine.catalog.hf_layers import attention_layers, expert_layers
from mini_engine.catalog.hf_quantization import quantization
from mini_engine.catalog.hf_reader import Reader

LATENT_FIELDS = ("qk_nope_head_dim", "qk_rope_head_dim", "q_lora_rank")
"""Fields that only latent attention has, next to kv_lora_rank."""

MAX_LAYERS = 10_000
"""More than any model has. What comes of a configuration is made layer by layer, so a slip must not cost minutes."""


def read_config(source: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The fields of a `ModelSpec` from a `config.json`, the folder that holds one, or its contents; what to call it.

    Raises FileNotFoundError with the remedy, or ValueError naming the field that is missing or cannot be read.
    """
    config, name, where = load_config(source)
    reader = _Fields(config, name, where)
    try:
        with naming(where):
            return reader.fields(), where
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
        # Fields that only some families have are used as they come: a list for a number, a text for a list.
        raise ValueError(f"{reader.where}: a field holds a value of the wrong kind ({error})") from error


def token_ids(field: str, value: Any) -> tuple[int, ...]:
    """The ids that a field gives as one number, a list or null. ValueError for anything else."""
    listed = value if isinstance(value, list) else [] if value is None else [value]
    for token_id in listed:
        if not isinstance(token_id, int) or isinstance(token_id, bool):
            raise ValueError(f"{field}={reprlib.repr(value)} must be a token id, a list of them, or null")
    return tuple(listed)


class _Fields(Reader):
    """One configuration, field by field."""

    def fields(self) -> dict[str, Any]:
        if self.outer.get("is_encoder_decoder") or self.config.get("is_encoder_decoder"):
            raise ValueError(
                "is_encoder_decoder is true: such a model caches cross-attention too; only decoder-only models can be read"
            )
        check_kinds(self.outer, self.where)
        check_kinds(self.config, self.where)
        if self.model_type in ENCODER_DECODERS:
            raise ValueError(
                f"model_type={self.model_type!r} is an encoder and a decoder, which caches cross-attention too; only "
                "decoder-only models can be read"
            )
        if self.model_type in RECURRENT:
            raise ValueError(
                f"model_type={self.model_type!r} has no attention: its state does not grow, there is no KV cache"
            )
        if self.config.get("block_configs"):
            raise ValueError("block_configs gives every layer a shape of its own, which cannot be read here")
        if self.model_type in ENCODERS:
            raise ValueError(f"model_type={self.model_type!r} is an encoder: it keeps no KV cache, only decoders do")
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
            "max_position_embeddings": self._positions(),
            "rms_norm_eps": self.positive("rms_norm_eps", self.get("rms_norm_eps", 1e-6)),
            "tie_word_embeddings": self._tied(),
            "attention_bias": bool(self.config.get("attention_bias")),
            "quantization": quantization(self.config, self.outer),
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
        layers = self.integer("num_hidden_layers", len(kinds) if kinds else None)
        return count("num_hidden_layers", layers, limit=MAX_LAYERS)  # what follows looks at every layer

    def _kv_heads(self, heads: int) -> int:
        """Absent KV heads mean one per query head, but for the families that say multi-query with a switch."""
        grouped = self.config.get("new_decoder_architecture")  # Falcon-40B: num_kv_heads counts, multi_query does not
        if self.config.get("multi_query") and not grouped and self.model_type in ("falcon", "gpt_bigcode"):
            return 1
        if self.config.get("multi_query_attention") is False:  # ChatGLM
            return heads
        value = self.get("num_key_value_heads")
        if isinstance(value, list):  # one entry a layer: `attention_layers` reads them
            layers = self._num_layers()
            if len(value) != layers or not all(type(each) is int and each >= 0 for each in value):
                raise ValueError(
                    f"num_key_value_heads={shown(value)} must be one integer, or one for each of the {layers} layers"
                )
            return max(value)
        kv_heads = self.integer("num_key_value_heads", heads)
        if kv_heads > 0 and heads % kv_heads and self.get("kv_lora_rank") is None:
            raise ValueError(f"num_attention_heads={heads} must be a multiple of num_key_value_heads={kv_heads}")
        return kv_heads

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
        four_times = self.model_type in TWO_MATRIX_MLP
        size = self.integer(
            "intermediate_size",
            self.config.get("expansion_ratio", 4) * hidden if four_times else self.get("moe_intermediate_size"),
        )
        return size // 2 if self.model_type == "qwen" else size  # the first Qwen counts gate and up together

    def _positions(self) -> int:
        """0 when the file does not say: the cache can be sized without it."""
        if self.model_type in LEARNED_POSITIONS or self.get("max_position_embeddings") is not None:
            return self.integer("max_position_embeddings")
        return 10**9 if self.model_type in NO_POSITION_LIMIT else 0

    def _tied(self) -> bool:
        for config in (self.config, self.outer):
            tied = config.get("tie_word_embeddings")
            if tied is not None:
                if not isinstance(tied, bool):
                    raise ValueError(f"tie_word_embeddings={reprlib.repr(tied)} must be true or false")
                return tied
        return self.model_type in TIED_BY_DEFAULT

    def _rope(self) -> dict[str, Any]:
        """`rope_parameters` (transformers 5, one set or one per kind of layer) or the older `rope_theta` and
        `rope_scaling`.
        """
        parameters = self.config.get("rope_parameters") or {}
        parameters = parameters.get("full_attention") or parameters
        scaling = self.config.get("rope_scaling") or parameters
        kind = scaling.get("rope_type") or scaling.get("type") or "default"
        theta = next((rope["rope_theta"] for rope in (parameters, scaling) if rope.get("rope_theta") is not None), None)
        return {
            "rope_theta": self.positive("rope_theta", self.get("rope_theta", 10000.0) if theta is None else theta),
            "rope_scaling": None
            if kind == "default"
            else {key: value for key, value in scaling.items() if key != "rope_theta"},
        }

    def _tokens(self) -> dict[str, Any]:
        eos = self.get("eos_token_id", self.outer.get("eos_token_id"))
        bos = self.get("bos_token_id", self.outer.get("bos_token_id"))
        return {
            "bos_token_id": next(iter(token_ids("bos_token_id", bos)), None),
            "eos_token_ids": token_ids("eos_token_id", eos),
        }

    def _latent(self) -> dict[str, Any]:
        """DeepSeek's latent attention (MLA).

        `num_key_value_heads` equals the head count there and says nothing about the cache.
        """
        if self.config.get("use_mla") is False:  # DeepSeek-VL2-tiny: DeepSeek-V2's class with ordinary heads
            return {}
        if self.get("kv_lora_rank") is None:
            sign = next((name for name in LATENT_FIELDS if self.get(name) is not None), None)
            if sign or self._is_latent_family():
                reason = f"has {sign} but" if sign else "is a model with latent attention (MLA) and"
                raise ValueError(f"{self.where} {self.kind} {reason} lacks kv_lora_rank, the size of what it caches")
            return {}
        names = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
        rank = self.get("q_lora_rank")
        value = self.get("v_head_dim")
        if value is None and self.model_type == "minicpm3":  # its class derives it
            value = self.integer("hidden_size") // self.integer("num_attention_heads")
        return {name: self.integer(name, value if name == "v_head_dim" else None) for name in names} | {
            "q_lora_rank": rank,
            "index_head_dim": self.get("index_head_dim", 0),
            "rope_interleave": self._interleaved(),
        }

    def _is_latent_family(self) -> bool:
        architectures = self.outer.get("architectures") or self.config.get("architectures") or [""]
        return self.model_type in LATENT or architectures[0].startswith(("DeepseekV2", "DeepseekV3"))

    def _interleaved(self) -> bool:
        """Always in DeepSeek-V2; DeepSeek-V3 has a switch, which is on unless the file says otherwise."""
        interleaved = self.config.get("rope_interleave", True) if self.model_type != "deepseek_v2" else True
        if not isinstance(interleaved, bool):
            raise ValueError(f"rope_interleave={reprlib.repr(interleaved)} must be true or false")
        return interleaved
