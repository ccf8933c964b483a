"""What one of several GPUs holds of a model's cache, and the head sizes that count its work."""

from __future__ import annotations

import dataclasses
import math

from mini_engine.arguments import ceil_div
from mini_engine.catalog import ModelSpec
from mini_engine.geometry.kv_windows import kv_bytes_hybrid


def one_shard(model: ModelSpec, tp: int) -> ModelSpec:
    """The model as one of `tp` GPUs sees its K/V: ceil(KV heads / tp) of every layer. A latent is not split."""
    if model.is_mla or tp == 1:
        return model
    shapes = tuple((ceil_div(heads, tp), head_dim) for heads, head_dim in model.kv_shapes)
    return dataclasses.replace(
        model, num_key_value_heads=ceil_div(model.num_key_value_heads, tp), layer_kv_shapes=shapes
    )


def in_blocks(shard: ModelSpec, context: int, block: int, kv_dtype: str) -> int:
    """Bytes of one sequence when every layer holds whole blocks."""
    windows = [window and ceil_div(window, block) * block for window in shard.layer_windows]
    return kv_bytes_hybrid(shard, windows, ceil_div(context, block) * block, kv_dtype)


def decode_head_dim(model: ModelSpec) -> int:
    """The d in 4 d FLOPs per score of decoding. With MLA a score takes 2 (d_c + d_r) FLOPs and its value 2 d_c."""
    return model.head_dim if not model.is_mla else math.ceil(((model.kv_lora_rank or 0) + model.latent_dim) / 2)


def prefill_head_dim(model: ModelSpec) -> int:
    """The same for prefill, which uses keys and values expanded per head."""
    return model.head_dim if not model.is_mla else math.ceil(model.expanded_dim / 2)
