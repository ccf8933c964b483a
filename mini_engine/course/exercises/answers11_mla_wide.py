"""Lesson 11, another right kernel over latents: the row of a token is one tile, and what came of its rope key is not stored."""

from __future__ import annotations

import torch

from mini_engine.kernels import tl, triton


@triton.jit
def wide_kernel(
    q_ptr, pool_ptr, table_ptr, length_ptr, out_ptr, scale, stride_n, stride_p, table_stride,
    H: tl.constexpr, DC: tl.constexpr, DR: tl.constexpr, PAGE: tl.constexpr, BLOCK_N: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.arange(0, 16)[:, None]
    x, n = tl.arange(0, WIDTH)[None, :], tl.arange(0, BLOCK_N)
    at = (row * H + head) * (DC + DR) + x
    q = tl.load(q_ptr + at, mask=(head < H) & (x < DC + DR), other=0.0)
    length = tl.load(length_ptr + row)
    top = tl.full([16], -1e30, tl.float32)
    total = tl.zeros([16], tl.float32)
    summed = tl.zeros([16, WIDTH], tl.float32)
    while length > 0:
        live = n < length  # counted from the tile's first token: the table moves on instead
        page = tl.load(table_ptr + row * table_stride + n // PAGE, mask=live, other=0).to(tl.int64)
        tile = tl.load(
            pool_ptr + (page * stride_n + n % PAGE * stride_p)[:, None] + x,
            mask=live[:, None] & (x < DC + DR),
            other=0.0,
        )
        s = tl.where(live[None, :], tl.dot(q, tl.trans(tile), input_precision="ieee") * scale, float("-inf"))
        old, top = top, tl.maximum(top, tl.max(s, 1))
        weights = tl.exp(s - top[:, None])
        total = total * tl.exp(old - top) + tl.sum(weights, 1)
        summed = summed * tl.exp(old - top)[:, None] + tl.dot(weights.to(tile.dtype), tile, input_precision="ieee")
        table_ptr += BLOCK_N // PAGE
        length -= BLOCK_N
    total = tl.where(total == 0.0, 1.0, total)
    tl.store(out_ptr + (row * H + head) * DC + x, summed / total[:, None], mask=(head < H) & (x < DC))


def rows_as_tiles(
    q_latent: torch.Tensor, q_rope: torch.Tensor, latent_pool: torch.Tensor, block_tables: torch.Tensor,
    context_lens: torch.Tensor, scale: float,
) -> torch.Tensor:  # fmt: skip
    """Shapes as `latent_decode`. Tiles are of whole blocks, so a tile's blocks stand side by side in the table."""
    (B, H, Dc), Dr, P = q_latent.shape, q_rope.shape[2], latent_pool.shape[1]
    q, out = torch.cat((q_latent, q_rope), -1).contiguous(), torch.empty_like(q_latent.contiguous())
    wide_kernel[(B,)](
        q, latent_pool, block_tables, context_lens, out, scale, *latent_pool.stride()[:2], block_tables.stride(0),
        H=H, DC=Dc, DR=Dr, PAGE=P, BLOCK_N=max(32, P), WIDTH=max(16, triton.next_power_of_2(Dc + Dr)),
    )  # fmt: skip
    return out
