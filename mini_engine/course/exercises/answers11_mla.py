"""Lesson 11, a right kernel over latents for one tile of heads: the latent is loaded once and used twice."""

from __future__ import annotations

import math

import torch

from mini_engine.kernels import tl, triton


@triton.jit
def latent_kernel(
    ql_ptr, qr_ptr, pool_ptr, table_ptr, length_ptr, out_ptr, scale_log2,
    ql_stride_b, ql_stride_h, qr_stride_b, qr_stride_h, stride_n, stride_p, table_stride, out_stride_b, out_stride_h,
    H: tl.constexpr, DC: tl.constexpr, DR: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_R: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    h, c, r = tl.arange(0, BLOCK_H)[:, None], tl.arange(0, BLOCK_C)[None, :], tl.arange(0, BLOCK_R)[None, :]
    heads = (h < H) & (c < DC)
    q_latent = tl.load(ql_ptr + row * ql_stride_b + h * ql_stride_h + c, mask=heads, other=0.0)
    q_rope = tl.load(qr_ptr + row * qr_stride_b + h * qr_stride_h + r, mask=(h < H) & (r < DR), other=0.0)
    length = tl.load(length_ptr + row)
    top = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    out = tl.zeros([BLOCK_H, BLOCK_C], tl.float32)
    for start in range(0, length, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live = n < length
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
    out = out / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(out_ptr + row * out_stride_b + h * out_stride_h + c, out, mask=heads)


def latent_decode(
    q_latent: torch.Tensor, q_rope: torch.Tensor, latent_pool: torch.Tensor, block_tables: torch.Tensor,
    context_lens: torch.Tensor, scale: float,
) -> torch.Tensor:  # fmt: skip
    """q_latent[B, H, Dc] and q_rope[B, H, Dr], H up to 16, over latent_pool[N, P, Dc + Dr] -> [B, H, Dc]."""
    (B, H, Dc), Dr, P = q_latent.shape, q_rope.shape[2], latent_pool.shape[1]
    out = torch.empty((B, H, Dc), dtype=q_latent.dtype, device=q_latent.device)
    latent_kernel[(B,)](
        q_latent, q_rope, latent_pool, block_tables, context_lens, out, scale * math.log2(math.e),
        *q_latent.stride()[:2], *q_rope.stride()[:2], *latent_pool.stride()[:2], block_tables.stride(0),
        *out.stride()[:2],
        H=H, DC=Dc, DR=Dr, PAGE=P, BLOCK_H=16, BLOCK_N=64,
        BLOCK_C=max(16, triton.next_power_of_2(Dc)), BLOCK_R=max(16, triton.next_power_of_2(Dr)),
    )  # fmt: skip
    return out
