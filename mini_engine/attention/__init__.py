"""Attention in NumPy: the readable truth that everything faster is tested against."""

from mini_engine.attention.dense import causal_attention, decode_attention, softmax

__all__ = ["causal_attention", "decode_attention", "softmax"]
