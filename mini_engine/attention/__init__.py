"""Attention in NumPy: the readable truth that everything faster is tested against."""

from mini_engine.attention.dense import causal_attention, decode_attention, softmax
from mini_engine.attention.mla import mla_absorbed, mla_expanded

__all__ = ["causal_attention", "decode_attention", "mla_absorbed", "mla_expanded", "softmax"]
