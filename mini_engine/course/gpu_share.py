"""What one GPU of a deployment holds and can do, in eight numbers: the subject of lesson 03's exercises and panels."""

from __future__ import annotations

from dataclasses import dataclass

from mini_engine.catalog import GPUSpec, ModelSpec, get_gpu, get_model
from mini_engine.geometry import kv_bytes_per_token_per_gpu
from mini_engine.units import GB


@dataclass(frozen=True)
class GPUShare:
    """One GPU's part of a model, for decoding.

    A step of B sequences with S tokens each moves weight_bytes + kv_bytes_per_token S B bytes, and takes
    (flops_per_token + flops_per_score S) B FLOPs.
    """

    name: str
    weight_bytes: int
    kv_bytes_per_token: int
    flops_per_token: int
    """Tokens times weights: two per parameter."""
    flops_per_score: int
    """One query against one cached token, in all layers and heads: the score and its value."""
    kv_budget: int
    """Bytes that are left for K/V."""
    peak: int
    """FLOP/s."""
    bandwidth: int
    """Bytes/s."""


def gpu_share(model: ModelSpec, gpu: GPUSpec, tp: int, parameters: int, overhead: int = 2 * GB) -> GPUShare:
    """A dense model of so many parameters in bf16, split evenly over `tp` GPUs."""
    weights = 2 * parameters // tp
    per_score = 4 * model.num_attention_layers * model.num_attention_heads * model.head_dim
    return GPUShare(
        name=f"{model.name} on {tp} x {gpu.name}",
        weight_bytes=weights,
        kv_bytes_per_token=kv_bytes_per_token_per_gpu(model, tp),
        flops_per_token=2 * parameters // tp,
        flops_per_score=per_score // tp,
        kv_budget=max(0, gpu.memory_bytes - weights - overhead),
        peak=gpu.bf16_flops,
        bandwidth=gpu.memory_bandwidth,
    )


def half_70b(gpu: str = "h100-sxm") -> GPUShare:
    """One of two GPUs that serve Llama-3-70B, its parameters rounded to 70e9 as everybody does on paper."""
    return gpu_share(get_model("llama-3-70b"), get_gpu(gpu), 2, 70 * 10**9)
