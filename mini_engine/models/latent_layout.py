"""What a checkpoint and a configuration with latent attention (DeepSeek-V2 and V3) must hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mini_engine.catalog import ModelSpec
from mini_engine.models.errors import CorruptModelError, UnsupportedModelError

LATENT_NORM_EPS = 1e-6
"""Of the norms between down- and up-projection: DeepSeek's code gives them this one, whatever rms_norm_eps says."""

LATENT_FIELDS = frozenset({
    "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "qk_head_dim",
    # Experts, which no layer has if first_k_dense_replace reaches the last one, and how they are trained.
    "first_k_dense_replace", "moe_layer_freq", "n_routed_experts", "n_shared_experts", "num_experts_per_tok",
    "moe_intermediate_size", "n_group", "topk_group", "topk_method", "norm_topk_prob", "routed_scaling_factor",
    "scoring_func", "ep_size", "aux_loss_alpha", "seq_aux", "output_router_logits", "router_aux_loss_coef",
    # Layers that predict further tokens, in training or for speculation; their tensors would be refused.
    "num_nextn_predict_layers", "num_mtp_layers",
})  # fmt: skip
"""Fields of DeepSeek's config.json beyond those of every family."""


class LatentSizes(NamedTuple):
    """How wide the parts of latent attention are."""

    key: int  # Dn, a head's own part of query and key
    rotary: int  # Dr, the part that turns, whose key all heads share
    value: int  # Dv
    latent: int  # Dc


def latent_sizes(spec: ModelSpec) -> LatentSizes:
    """The sizes of a spec with latent attention; zeros where it has none."""
    return LatentSizes(
        spec.qk_nope_head_dim or 0, spec.qk_rope_head_dim or 0, spec.v_head_dim or 0, spec.kv_lora_rank or 0
    )


def latent_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """The tensors of one layer's latent attention, by their name within the layer."""
    heads, hidden, rank, sizes = spec.num_attention_heads, spec.hidden_size, spec.q_lora_rank, latent_sizes(spec)
    if rank is None:
        query: dict[str, tuple[int, ...]] = {"q_proj": (heads * spec.head_dim, hidden)}
    else:
        query = {"q_a_proj": (rank, hidden), "q_a_layernorm": (rank,), "q_b_proj": (heads * spec.head_dim, rank)}
    shapes = query | {
        "kv_a_proj_with_mqa": (spec.latent_dim, hidden),
        "kv_a_layernorm": (sizes.latent,),
        "kv_b_proj": (heads * (sizes.key + sizes.value), sizes.latent),
        "o_proj": (hidden, heads * sizes.value),
    }
    return {f"self_attn.{name}.weight": shape for name, shape in shapes.items()}


def check_latent(spec: ModelSpec, source: object) -> None:
    """Raise CorruptModelError when the numbers of latent attention contradict each other, UnsupportedModelError for sparse
    attention.
    """
    if not spec.is_mla:
        raise CorruptModelError(f"{source}: {spec.architecture} needs kv_lora_rank, the size of the latent; found none")
    sizes = latent_sizes(spec)
    for name, value, wanted, why in (
        ("num_key_value_heads", spec.num_key_value_heads, spec.num_attention_heads, "num_attention_heads"),
        ("head_dim", spec.head_dim, sizes.key + sizes.rotary, "qk_nope_head_dim + qk_rope_head_dim"),
    ):
        if value != wanted:
            raise CorruptModelError(f"{source}: {name}={value} must be {wanted} ({why}) with latent attention")
    if spec.index_head_dim:
        raise UnsupportedModelError(f"{source}: sparse attention (index_head_dim={spec.index_head_dim}) cannot be run")


def check_latent_config(config: Mapping[str, Any]) -> None:
    """ValueError for sizes that a configuration gives twice and differently; a ModelSpec keeps one of them."""
    key, rope = (config.get(f"qk_{part}_head_dim") for part in ("nope", "rope"))
    if not isinstance(key, int) or not isinstance(rope, int):
        return  # missing or of the wrong kind: reading the ModelSpec says so
    for name, allowed in (("qk_head_dim", (key + rope,)), ("head_dim", (rope, key + rope))):
        if config.get(name) not in (None, *allowed):
            raise ValueError(
                f"{name}={config[name]!r} contradicts qk_nope_head_dim={key} and qk_rope_head_dim={rope}: "
                f"must be {' or '.join(map(str, allowed))}"
            )
