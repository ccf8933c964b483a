"""Lesson 11, another right kernel for parts: tiles are dealt out in turn, and the engine's kernel puts the parts together."""

from __future__ import annotations

from typing import Any

import torch

from mini_engine.kernels import combine, tl, triton


@triton.jit
def dealt_kernel(
    q_ptr, pool_ptr, table_ptr, length_ptr, part_ptr, lse_ptr, scale, stride_n, stride_p, table_stride, B,
    H: tl.constexpr, DC: tl.constexpr, DR: tl.constexpr, PAGE: tl.constexpr, NUM_SPLITS: tl.constexpr,
    BLOCK_N: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Part s takes tiles s, s + NUM_SPLITS, ... of the context."""
    row, split = tl.program_id(1), tl.program_id(2)
    lane = tl.program_id(0) * 16 + tl.arange(0, 16)
    x, token = tl.arange(0, WIDTH)[None, :], tl.arange(0, BLOCK_N)
    own = (lane < H)[:, None]
    q = tl.load(q_ptr + (row * H + lane[:, None]) * (DC + DR) + x, mask=own & (x < DC + DR), other=0.0)
    length = tl.load(length_ptr + row)
    top = tl.full([16], float("-inf"), tl.float32)
    total = tl.zeros([16], tl.float32)
    summed = tl.zeros([16, WIDTH], tl.float32)
    at = split * BLOCK_N
    while at < length:
        live = at + token < length
        page = tl.load(table_ptr + row * table_stride + (at + token) // PAGE, mask=live, other=0).to(tl.int64)
        rows = page * stride_n + (at + token) % PAGE * stride_p
        tile = tl.load(pool_ptr + rows[:, None] + x, mask=live[:, None] & (x < DC + DR), other=0.0)
        s = tl.where(live[None, :], tl.dot(q, tl.trans(tile), input_precision="ieee") * scale, float("-inf"))
        old, top = top, tl.maximum(top, tl.max(s, 1))
        weights = tl.exp(s - top[:, None])
        total = total * tl.exp(old - top) + tl.sum(weights, 1)
        summed = summed * tl.exp(old - top)[:, None] + tl.dot(weights.to(tile.dtype), tile, input_precision="ieee")
        at += NUM_SPLITS * BLOCK_N
    place = (split * B + row) * H + lane
    some = split * BLOCK_N < length
    tl.store(part_ptr + place[:, None] * DC + x, summed / total[:, None], mask=own & (x < DC) & some)
    tl.store(lse_ptr + place, (top + tl.log(total)) * 1.4426950408889634, mask=(lane < H) & some)


def tiles_dealt_out(
    q_latent: torch.Tensor, q_rope: torch.Tensor, latent_pool: torch.Tensor, block_tables: torch.Tensor,
    context_lens: torch.Tensor, scale: float, *, num_splits: int = 2, latent_scale: Any = None,
) -> torch.Tensor:  # fmt: skip
    """q_latent[B, H, Dc] and q_rope[B, H, Dr] over latent_pool[N, P, Dc + Dr] -> [B, H, Dc]."""
    (B, H, Dc), Dr, P = q_latent.shape, q_rope.shape[2], latent_pool.shape[1]
    q = torch.cat((q_latent, q_rope), -1).contiguous()
    parts = torch.empty((num_splits, B, H, Dc), device=q.device)
    lse = torch.full((num_splits, B, H), float("-inf"), device=q.device)
    dealt_kernel[(triton.cdiv(H, 16), B, num_splits)](
        q, latent_pool, block_tables, context_lens, parts, lse, scale, *latent_pool.stride()[:2],
        block_tables.stride(0), B,
        H=H, DC=Dc, DR=Dr, PAGE=P, NUM_SPLITS=num_splits, BLOCK_N=32, WIDTH=max(16, triton.next_power_of_2(Dc + Dr)),
    )  # fmt: skip
    return combine(parts, lse, torch.empty_like(q[..., :Dc].contiguous()))
