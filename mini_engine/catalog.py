"""What a model and a GPU are, in numbers: `ModelSpec`, and how to read one from a Hugging Face `config.json`."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The shape of a decoder-only transformer. Field names are those of a Hugging Face `config.json`."""

    name: str = ""
    architecture: str = "LlamaForCausalLM"
    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = False
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @classmethod
    def from_hf_config(cls, source: str | os.PathLike[str] | dict[str, Any]) -> ModelSpec:
        """Read a Hugging Face `config.json`: the file, the folder that holds it, or its contents as a dict.

        `head_dim` is taken when given and is hidden_size / num_attention_heads only when it is not. ValueError names what is missing.
        """
        name = ""
        if isinstance(source, dict):
            config = source
        else:
            path = Path(source)
            path = path / "config.json" if path.is_dir() else path
            name = path.parent.name
            config = json.loads(path.read_text(encoding="utf-8"))
        needed = (
            "num_hidden_layers",
            "hidden_size",
            "num_attention_heads",
            "intermediate_size",
            "vocab_size",
            "max_position_embeddings",
        )
        missing = [field for field in needed if config.get(field) is None]
        if missing:
            raise ValueError(f"the model configuration {name or ''} lacks {', '.join(missing)}".replace("  ", " "))

        heads = config["num_attention_heads"]
        rope = config.get("rope_parameters") or {}
        eos = config.get("eos_token_id")
        return cls(
            name=config.get("name") or name,
            architecture=(config.get("architectures") or ["LlamaForCausalLM"])[0],
            **{field: config[field] for field in needed},
            num_key_value_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            rms_norm_eps=config.get("rms_norm_eps", 1e-6),
            rope_theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0),
            tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
            bos_token_id=config.get("bos_token_id"),
            eos_token_ids=() if eos is None else tuple(eos) if isinstance(eos, list) else (eos,),
        )
