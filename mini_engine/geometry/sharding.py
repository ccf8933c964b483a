"""The KV cache under tensor parallelism: KV heads are shared out, and past the number of heads they are copied."""

from __future__ import annotations

from collections.abc import Iterator

from mini_engine.arguments import ceil_div, count
from mini_engine.catalog import ModelSpec, model_spec
from mini_engine.explain import explained
from mini_engine.geometry.kv_size import NOT_INCLUDED, kv_bytes_per_token
from mini_engine.units import dtype_bytes, format_bytes


@explained(
    f"{NOT_INCLUDED}; engines usually refuse a tp that does not divide the head count: this sizes, it does not "
    "promise a start"
)
def kv_bytes_per_token_per_gpu(cfg: ModelSpec, tp: int, kv_dtype: str = "bf16") -> int:
    """Bytes that one token takes on each of `tp` GPUs.

    Each holds ceil(KV heads / tp) heads, at least one, so heads are copied beyond tp = KV heads.

    An MLA latent belongs to all heads at once and cannot be split by heads: every GPU holds all of it. Formula F6.
    """
    tp = count("tp", tp)
    if model_spec("cfg", cfg).is_mla:
        return kv_bytes_per_token(cfg, kv_dtype)
    elems = sum(2 * ceil_div(heads, tp) * head_dim for heads, head_dim in cfg.kv_shapes)
    return elems * dtype_bytes("kv_dtype", kv_dtype)


@kv_bytes_per_token_per_gpu.working
def _(size: int, cfg: ModelSpec, tp: int, kv_dtype: str) -> Iterator[str]:
    whole = kv_bytes_per_token(cfg, kv_dtype)
    if cfg.is_mla:
        yield f"the latent is not split by heads: each of {tp} GPUs holds {format_bytes(size)}, together {whole * tp:,} B"
        return
    heads = ceil_div(cfg.num_key_value_heads, tp)
    yield f"K/V heads per GPU = ceil({cfg.num_key_value_heads} / {tp}) = {heads}"
    if cfg.layer_kv_shapes:
        yield f"with each layer's own K/V heads and head_dim: {format_bytes(size)}"
    else:
        yield "2 (K and V) × layers × K/V heads per GPU × head_dim × bytes per element"
        per_element = dtype_bytes("kv_dtype", kv_dtype)
        yield f"= 2 × {cfg.num_attention_layers} × {heads} × {cfg.head_dim} × {per_element} = {format_bytes(size)}"
    if size * tp > whole:
        yield f"all {tp} GPUs together hold {size * tp:,} B per token instead of {whole:,} B: K/V heads are replicated"
