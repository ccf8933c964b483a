"""The model families that can be run, as data: what tells one architecture from another is a line of this table."""

from __future__ import annotations

from dataclasses import dataclass

from mini_engine.catalog import ModelSpec
from mini_engine.models.errors import UnsupportedModelError
from mini_engine.models.latent_layout import LATENT_FIELDS


@dataclass(frozen=True)
class Family:
    """How an architecture departs from a plain Llama."""

    model_type: str  # the name in its config.json
    attention: str = "grouped"  # the attention block: "grouped" (MHA, GQA, MQA) or "latent" (MLA)
    qkv_bias: bool = False  # q, k and v always have a bias
    optional_bias: bool = False  # attention_bias gives one to q, k, v and o
    qk_norm: bool = False  # each head of q and k is normalised before it is rotated
    keeps_pairs: bool = False  # interleaved rotary pairs are cached as neighbours, too, and not in halves
    fields: frozenset[str] = frozenset()  # of its config.json, beyond those of every family


QWEN_FIELDS = frozenset({"max_window_layers", "layer_types"})

FAMILIES = {
    "LlamaForCausalLM": Family("llama", optional_bias=True),
    "MistralForCausalLM": Family("mistral"),
    "Qwen2ForCausalLM": Family("qwen2", qkv_bias=True, fields=QWEN_FIELDS),
    "Qwen3ForCausalLM": Family("qwen3", optional_bias=True, qk_norm=True, fields=QWEN_FIELDS),
    "DeepseekV2ForCausalLM": Family("deepseek_v2", attention="latent", keeps_pairs=True, fields=LATENT_FIELDS),
    "DeepseekV3ForCausalLM": Family("deepseek_v3", attention="latent", fields=LATENT_FIELDS | {"rope_interleave"}),
}
"""Architecture, as in `config.json`, to family."""


def family_of(spec: ModelSpec) -> Family:
    """The family of a spec's architecture. UnsupportedModelError lists those that can be built."""
    if spec.architecture not in FAMILIES:
        raise UnsupportedModelError(
            f"architecture {spec.architecture!r} cannot be built; those that can are {', '.join(FAMILIES)}"
        )
    return FAMILIES[spec.architecture]
