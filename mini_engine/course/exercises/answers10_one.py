"""Lesson 10, a right kernel for one query over keys in one run: the reference of its exercise."""

from __future__ import annotations

import torch

from mini_engine.kernels import tl, triton


@triton.jit
def one_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale, k_stride, v_stride,
    D: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    d = tl.arange(0, BLOCK_D)
    q = tl.load(q_ptr + d, mask=d < D, other=0.0)
    top = float("-inf")
    total = 0.0
    out = tl.zeros([BLOCK_D], tl.float32)
    for start in range(0, length, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        tile = (n < length)[:, None] & (d < D)[None, :]
        k = tl.load(k_ptr + n[:, None] * k_stride + d[None, :], mask=tile, other=0.0)
        v = tl.load(v_ptr + n[:, None] * v_stride + d[None, :], mask=tile, other=0.0)
        s = tl.sum(q[None, :] * k, 1) * scale
        s = tl.where(n < length, s, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 0))
        shrink = tl.exp(top - new_top)
        weights = tl.exp(s - new_top)
        total = total * shrink + tl.sum(weights, 0)
        out = out * shrink + tl.sum(weights[:, None] * v, 0)
        top = new_top
    tl.store(out_ptr + d, out / total, mask=d < D)


def decode_one(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """q[D] over k[S, D] and v[S, D] -> [D]. The last axis of each is contiguous."""
    D = len(q)
    out = torch.empty(D, device=q.device)
    one_kernel[(1,)](
        q, k, v, out, len(k), scale, k.stride(0), v.stride(0), D=D, BLOCK_N=64, BLOCK_D=triton.next_power_of_2(D)
    )
    return out


@triton.jit
def base_2_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale, k_stride, v_stride,
    D: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    n, d = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    q = tl.load(q_ptr + d, mask=d < D, other=0.0) * (scale * 1.4426950408889634)
    top = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    out = tl.zeros([BLOCK_D], tl.float32)
    start = 0
    while start < length:
        tile = (start + n < length)[:, None] & (d < D)[None, :]
        k = tl.load(k_ptr + (start + n)[:, None] * k_stride + d[None, :], mask=tile, other=0.0)
        s = tl.where(start + n < length, tl.sum(k * q[None, :], 1), float("-inf"))
        old, top = top, tl.maximum(top, tl.max(s, 0))
        weights = tl.exp2(s - top)
        v = tl.load(v_ptr + (start + n)[:, None] * v_stride + d[None, :], mask=tile, other=0.0)
        total = total * tl.exp2(old - top) + tl.sum(weights, 0)
        out = out * tl.exp2(old - top) + tl.sum(weights[:, None] * v, 0)
        start += BLOCK_N
    tl.store(out_ptr + d, out / total, mask=d < D)


def in_base_2(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """Another way: powers of 2, the scale multiplied into the query once, a while loop."""
    out = torch.empty_like(q)
    D = len(q)
    base_2_kernel[(1,)](
        q, k, v, out, len(k), scale, k.stride(0), v.stride(0), D=D, BLOCK_N=16, BLOCK_D=triton.next_power_of_2(D)
    )
    return out
