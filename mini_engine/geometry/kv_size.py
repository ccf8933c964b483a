"""How large the KV cache is: elements per token, bytes per token, bytes in all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from mini_engine.arguments import count
from mini_engine.catalog import ModelSpec, model_spec
from mini_engine.explain import explained
from mini_engine.units import dtype_bytes, format_bytes

NOT_INCLUDED = "weights, activations, the CUDA context, fragmentation, rounding up to whole blocks"


@explained()
def kv_elems_per_token(cfg: ModelSpec) -> int:
    """Elements that one token adds to the cache, over all attention layers.

    A key and a value per KV head and layer; with latent attention (MLA) one latent vector and one rotary key per
    layer. Formula F1.
    """
    if model_spec("cfg", cfg).is_mla:
        return cfg.num_attention_layers * cfg.latent_dim
    return sum(2 * heads * head_dim for heads, head_dim in cfg.kv_shapes)


@kv_elems_per_token.working
def _(elems: int, cfg: ModelSpec) -> Iterator[str]:
    layers = cfg.num_attention_layers
    if cfg.is_mla:
        yield "layers × (kv_lora_rank + qk_rope_head_dim)"
        yield f"= {layers} × ({cfg.kv_lora_rank} + {cfg.qk_rope_head_dim}) = {elems:,} elements"
        yield (
            f"assumes that the engine caches the latent; one that caches expanded keys and values holds "
            f"{layers} × {cfg.num_attention_heads} × {cfg.expanded_dim} = {kv_elems_expanded(cfg):,}"
        )
    elif cfg.layer_kv_shapes:
        runs = [(len(list(run)), shape) for shape, run in groupby(sorted(cfg.kv_shapes))]
        yield "2 (K and V) × the sum over layers of K/V heads × head_dim"
        yield f"= 2 × ({' + '.join(f'{n} × {heads} × {dim}' for n, (heads, dim) in runs)}) = {elems:,} elements"
    else:
        yield "2 (K and V) × layers × K/V heads × head_dim"
        yield f"= 2 × {layers} × {cfg.num_key_value_heads} × {cfg.head_dim} = {elems:,} elements"
    yield from layer_notes(cfg)


def layer_notes(cfg: ModelSpec) -> Iterator[str]:
    """What a formula that treats all layers alike must say about the ones that are not."""
    if cfg.num_windowed_layers:
        yield (
            f"{cfg.num_windowed_layers} of {cfg.num_attention_layers} attention layers keep only a window; "
            "every layer is counted as full here, kv_bytes_hybrid counts the windows"
        )
    if cfg.layers_without_kv:
        kinds = ", ".join(sorted(set(cfg.layers_without_kv)))
        yield f"{len(cfg.layers_without_kv)} of {cfg.num_hidden_layers} layers keep no K/V of their own ({kinds}) and are left out"
    if cfg.index_head_dim:
        yield f"the sparse-attention indexer's keys, {cfg.index_head_dim} elements a layer, are left out"


@explained(NOT_INCLUDED)
def kv_bytes_per_token(cfg: ModelSpec, kv_dtype: str = "bf16") -> int:
    """Bytes that one token adds to the cache: elements × bytes per element. Formula F2."""
    return kv_elems_per_token(cfg) * dtype_bytes("kv_dtype", kv_dtype)


@kv_bytes_per_token.working
def _(size: int, cfg: ModelSpec, kv_dtype: str) -> Iterator[str]:
    yield from kv_elems_per_token.steps(cfg)
    yield f"elements × bytes per element ({kv_dtype})"
    yield f"= {kv_elems_per_token(cfg):,} × {dtype_bytes('kv_dtype', kv_dtype)} = {format_bytes(size)}"


@explained(NOT_INCLUDED)
def kv_total_bytes(cfg: ModelSpec, S: int, B: int, kv_dtype: str = "bf16") -> int:
    """Bytes of the cache for B sequences of S tokens each: bytes per token × S × B. Formula F5."""
    S, B = count("S", S, minimum=0), count("B", B)
    return kv_bytes_per_token(cfg, kv_dtype) * S * B


@kv_total_bytes.working
def _(size: int, cfg: ModelSpec, S: int, B: int, kv_dtype: str) -> Iterator[str]:
    yield from kv_bytes_per_token.steps(cfg, kv_dtype)
    yield "bytes per token × tokens × sequences"
    yield f"= {kv_bytes_per_token(cfg, kv_dtype):,} × {S:,} × {B:,} = {format_bytes(size)}"


@explained()
def kv_elems_expanded(cfg: ModelSpec) -> int:
    """Elements per token when keys and values are cached per head, also by a model that could cache a latent.

    For MLA: layers × heads × (qk_nope_head_dim + qk_rope_head_dim + v_head_dim), the cost of decompressing before
    caching. Otherwise F1.
    """
    if not model_spec("cfg", cfg).is_mla:
        return kv_elems_per_token(cfg)
    return cfg.num_attention_layers * cfg.num_attention_heads * cfg.expanded_dim


@kv_elems_expanded.working
def _(elems: int, cfg: ModelSpec) -> Iterator[str]:
    if not cfg.is_mla:
        yield from kv_elems_per_token.steps(cfg)
        return
    yield "layers × heads × (qk_nope_head_dim + qk_rope_head_dim + v_head_dim)"
    key_value = f"{cfg.qk_nope_head_dim} + {cfg.qk_rope_head_dim} + {cfg.v_head_dim}"
    yield f"= {cfg.num_attention_layers} × {cfg.num_attention_heads} × ({key_value}) = {elems:,} elements"
