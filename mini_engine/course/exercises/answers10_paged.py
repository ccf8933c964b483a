"""Lesson 10, a right kernel over a paged cache, a program a query head: the reference of its exercise."""

from __future__ import annotations

import torch

from mini_engine.kernels import tl, triton


@triton.jit
def paged_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, length_ptr, out_ptr, scale,
    q_stride_b, q_stride_h, stride_n, stride_p, stride_k, table_stride, out_stride_b, out_stride_h,
    GROUP: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    h = tl.program_id(0)
    row = tl.program_id(1)
    d = tl.arange(0, BLOCK_D)
    q = tl.load(q_ptr + row * q_stride_b + h * q_stride_h + d, mask=d < D, other=0.0).to(tl.float32)
    length = tl.load(length_ptr + row)
    top = float("-inf")
    total = 0.0
    out = tl.zeros([BLOCK_D], tl.float32)
    for start in range(0, length, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live = n < length
        page = tl.load(table_ptr + row * table_stride + n // PAGE, mask=live, other=0).to(tl.int64)
        at = page * stride_n + n % PAGE * stride_p + h // GROUP * stride_k
        tile = live[:, None] & (d < D)[None, :]
        k = tl.load(k_ptr + at[:, None] + d[None, :], mask=tile, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + at[:, None] + d[None, :], mask=tile, other=0.0).to(tl.float32)
        s = tl.where(live, tl.sum(q[None, :] * k, 1) * scale, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 0))
        shrink = tl.exp(top - new_top)
        weights = tl.exp(s - new_top)
        total = total * shrink + tl.sum(weights, 0)
        out = out * shrink + tl.sum(weights[:, None] * v, 0)
        top = new_top
    out = out / tl.where(total == 0.0, 1.0, total)
    tl.store(out_ptr + row * out_stride_b + h * out_stride_h + d, out, mask=d < D)


def paged_decode(
    q: torch.Tensor, k_pool: torch.Tensor, v_pool: torch.Tensor, block_tables: torch.Tensor, context_lens: torch.Tensor,
    scale: float,
) -> torch.Tensor:  # fmt: skip
    """q[B, H, D] over pools [N, P, K, D] -> [B, H, D]."""
    (B, H, D), (_, P, K, _) = q.shape, k_pool.shape
    assert k_pool.stride() == v_pool.stride()
    out = torch.empty((B, H, D), dtype=q.dtype, device=q.device)
    paged_kernel[(H, B)](
        q, k_pool, v_pool, block_tables, context_lens, out, scale,
        *q.stride()[:2], *k_pool.stride()[:3], block_tables.stride(0), *out.stride()[:2],
        GROUP=H // K, D=D, PAGE=P, BLOCK_N=64, BLOCK_D=triton.next_power_of_2(D),
    )  # fmt: skip
    return out
