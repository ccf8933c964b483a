"""Lesson 11, a right kernel over latents for any number of heads and parts, and what puts the parts together."""

from __future__ import annotations

import math
from typing import Any

import torch

from mini_engine.course.exercises.answers11_combine import combine
from mini_engine.kernels import tl, triton


@triton.jit
def split_kernel(
    ql_ptr, qr_ptr, pool_ptr, table_ptr, length_ptr, part_ptr, lse_ptr, scale_log2,
    ql_stride_b, ql_stride_h, qr_stride_b, qr_stride_h, stride_n, stride_p, table_stride,
    part_stride_s, part_stride_b, part_stride_h, lse_stride_s, lse_stride_b,
    H: tl.constexpr, DC: tl.constexpr, DR: tl.constexpr, PAGE: tl.constexpr, NUM_SPLITS: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_R: tl.constexpr,
):  # fmt: skip
    first, row, split = tl.program_id(0) * BLOCK_H, tl.program_id(1), tl.program_id(2)
    h = (first + tl.arange(0, BLOCK_H))[:, None]
    c, r = tl.arange(0, BLOCK_C)[None, :], tl.arange(0, BLOCK_R)[None, :]
    heads = (h < H) & (c < DC)
    q_latent = tl.load(ql_ptr + row * ql_stride_b + h * ql_stride_h + c, mask=heads, other=0.0)
    q_rope = tl.load(qr_ptr + row * qr_stride_b + h * qr_stride_h + r, mask=(h < H) & (r < DR), other=0.0)
    length = tl.load(length_ptr + row)
    tokens = tl.cdiv(tl.cdiv(length, BLOCK_N), NUM_SPLITS) * BLOCK_N
    begin = split * tokens
    end = tl.minimum(begin + tokens, length)
    top = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    out = tl.zeros([BLOCK_H, BLOCK_C], tl.float32)
    for start in range(begin, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live = n < end
        page = tl.load(table_ptr + row * table_stride + n // PAGE, mask=live, other=0).to(tl.int64)
        at = (page * stride_n + n % PAGE * stride_p)[:, None]
        latent = tl.load(pool_ptr + at + c, mask=live[:, None] & (c < DC), other=0.0)
        rope = tl.load(pool_ptr + at + DC + r, mask=live[:, None] & (r < DR), other=0.0)
        s = tl.dot(q_latent, tl.trans(latent), input_precision="ieee")
        s += tl.dot(q_rope, tl.trans(rope), input_precision="ieee")
        s = tl.where(live[None, :], s * scale_log2, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        shrink = tl.exp2(top - new_top)
        weights = tl.exp2(s - new_top[:, None])
        total = total * shrink + tl.sum(weights, 1)
        out = out * shrink[:, None] + tl.dot(weights.to(latent.dtype), latent, input_precision="ieee")
        top = new_top
    some = tl.where(total == 0.0, 1.0, total)
    part_at = part_ptr + split * part_stride_s + row * part_stride_b
    tl.store(part_at + h * part_stride_h + c, out / some[:, None], mask=heads)
    lse_at = lse_ptr + split * lse_stride_s + row * lse_stride_b + first
    tl.store(lse_at + tl.arange(0, BLOCK_H), top + tl.log2(some), mask=first + tl.arange(0, BLOCK_H) < H)


def mla_decode(
    q_latent: torch.Tensor, q_rope: torch.Tensor, latent_pool: torch.Tensor, block_tables: torch.Tensor,
    context_lens: torch.Tensor, scale: float, *, num_splits: int = 4, latent_scale: Any = None,
) -> torch.Tensor:  # fmt: skip
    """q_latent[B, H, Dc] and q_rope[B, H, Dr] over latent_pool[N, P, Dc + Dr] -> [B, H, Dc]."""
    (B, H, Dc), Dr, P = q_latent.shape, q_rope.shape[2], latent_pool.shape[1]
    parts = torch.full((num_splits, B, H, Dc), torch.nan, device=q_latent.device)
    lse = torch.full((num_splits, B, H), torch.nan, device=q_latent.device)
    split_kernel[(triton.cdiv(H, 16), B, num_splits)](
        q_latent, q_rope, latent_pool, block_tables, context_lens, parts, lse, scale * math.log2(math.e),
        *q_latent.stride()[:2], *q_rope.stride()[:2], *latent_pool.stride()[:2], block_tables.stride(0),
        *parts.stride()[:3], *lse.stride()[:2],
        H=H, DC=Dc, DR=Dr, PAGE=P, NUM_SPLITS=num_splits, BLOCK_H=16, BLOCK_N=64,
        BLOCK_C=max(16, triton.next_power_of_2(Dc)), BLOCK_R=max(16, triton.next_power_of_2(Dr)),
    )  # fmt: skip
    return combine(parts, lse).to(q_latent.dtype)
