"""Attention in NumPy: the readable truth that everything faster is tested against."""

from mini_engine.attention.dense import causal_attention, decode_attention, softmax
from mini_engine.attention.fp8 import Fp8Codec, fp8_e4m3
from mini_engine.attention.lossy import KVScheme, lossy_attention
from mini_engine.attention.mla import mla_absorbed, mla_expanded
from mini_engine.attention.online_softmax import OnlineSoftmax, paged_attention
from mini_engine.attention.paged import paged_decode_attention
from mini_engine.attention.quantized import Encoded, IntCodec, kivi
from mini_engine.attention.quantized_cache import QuantizedKVCache, kivi_cache
from mini_engine.attention.slots import context_slots, gather, slot_mapping, store, write_kv
from mini_engine.attention.split_kv import combine_partials, split_kv_partials
from mini_engine.attention.windowed import WindowedKVCache, windowed_attention

__all__ = [
    "Encoded",
    "Fp8Codec",
    "IntCodec",
    "KVScheme",
    "OnlineSoftmax",
    "QuantizedKVCache",
    "WindowedKVCache",
    "causal_attention",
    "combine_partials",
    "context_slots",
    "decode_attention",
    "fp8_e4m3",
    "gather",
    "kivi",
    "kivi_cache",
    "lossy_attention",
    "mla_absorbed",
    "mla_expanded",
    "paged_attention",
    "paged_decode_attention",
    "slot_mapping",
    "softmax",
    "split_kv_partials",
    "store",
    "windowed_attention",
    "write_kv",
]
