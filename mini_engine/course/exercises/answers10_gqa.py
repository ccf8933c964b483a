"""Lesson 10, a right kernel for grouped heads over a paged cache: a program takes all query heads of a group."""

from __future__ import annotations

from typing import Any

import torch

from mini_engine.kernels import tl, triton


@triton.jit
def group_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, length_ptr, out_ptr, scale,
    q_stride_b, q_stride_h, stride_n, stride_p, stride_k, table_stride, out_stride_b, out_stride_h,
    GROUP: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, WINDOW: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    kv_head, row = tl.program_id(0), tl.program_id(1)
    g = tl.arange(0, BLOCK_H)
    d = tl.arange(0, BLOCK_D)
    rows = (g < GROUP)[:, None] & (d < D)[None, :]
    h = (kv_head * GROUP + g)[:, None]
    q = tl.load(q_ptr + row * q_stride_b + h * q_stride_h + d[None, :], mask=rows, other=0.0)
    length = tl.load(length_ptr + row)
    first = 0
    if WINDOW > 0:
        first = tl.maximum(length - WINDOW, 0)
    top = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    out = tl.zeros([BLOCK_H, BLOCK_D], tl.float32)
    for start in range(first, length, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live = n < length
        page = tl.load(table_ptr + row * table_stride + n // PAGE, mask=live, other=0).to(tl.int64)
        at = page * stride_n + n % PAGE * stride_p + kv_head * stride_k
        tile = live[:, None] & (d < D)[None, :]
        k = tl.load(k_ptr + at[:, None] + d[None, :], mask=tile, other=0.0)
        v = tl.load(v_ptr + at[:, None] + d[None, :], mask=tile, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(live[None, :], s, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        shrink = tl.exp(top - new_top)
        weights = tl.exp(s - new_top[:, None])
        total = total * shrink + tl.sum(weights, 1)
        out = out * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        top = new_top
    out = out / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(out_ptr + row * out_stride_b + h * out_stride_h + d[None, :], out, mask=rows)


def gqa_decode(
    q: torch.Tensor, k_pool: torch.Tensor, v_pool: torch.Tensor, block_tables: torch.Tensor, context_lens: torch.Tensor,
    scale: float, *, window: int | None = None, k_scale: Any = None, v_scale: Any = None,
) -> torch.Tensor:  # fmt: skip
    """q[B, H, D] over pools [N, P, K, D] -> [B, H, D]."""
    (B, H, D), (_, P, K, _) = q.shape, k_pool.shape
    assert k_pool.stride() == v_pool.stride()
    out = torch.empty((B, H, D), dtype=q.dtype, device=q.device)
    group_kernel[(K, B)](
        q, k_pool, v_pool, block_tables, context_lens, out, scale,
        *q.stride()[:2], *k_pool.stride()[:3], block_tables.stride(0), *out.stride()[:2],
        GROUP=H // K, D=D, PAGE=P, WINDOW=window or 0, BLOCK_H=max(16, triton.next_power_of_2(H // K)), BLOCK_N=64,
        BLOCK_D=max(16, triton.next_power_of_2(D)),
    )  # fmt: skip
    return out
