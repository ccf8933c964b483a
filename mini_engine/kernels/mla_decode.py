"""Paged decode attention over latents (MLA, absorbed): one cached vector a token, key and value of every head at once.

The absorbed query lives in the space of the latent, so all heads attend to the same vectors: a program takes a tile of
heads and one split of one sequence's context, loads each tile of latents once, compares the heads with all of it, and sums
its first Dc numbers. Nothing is expanded. Programs of other heads of the same sequence read the same latents again.
Source: DeepSeek-V2 (2024), section 2.1; the rest as in `gqa_decode`.

Shapes: B sequences, H heads, Dc the latent, Dr the rotary key, N blocks, P tokens a block, M table entries.
"""

from __future__ import annotations

import math

import torch

from mini_engine.kernels._mode import import_triton
from mini_engine.kernels.config import choose_num_splits, mla_config, padded
from mini_engine.kernels.launch import (
    check_devices,
    check_dtypes,
    check_shape,
    check_tables,
    checked_out,
    checked_splits,
    target,
)
from mini_engine.kernels.split_combine import combine, room_for_parts
from mini_engine.kernels.split_range import token_range

triton = import_triton()
import triton.language as tl  # noqa: E402


@triton.jit
def mla_decode_kernel(
    q_latent_ptr, q_rope_ptr, pool_ptr, pool_scale_ptr, table_ptr, len_ptr, out_ptr, lse_ptr,
    scale_log2,
    ql_stride_b, ql_stride_h,
    qr_stride_b, qr_stride_h,
    pool_stride_n, pool_stride_p,
    scale_stride_n, scale_stride_p,
    table_stride_b,
    out_stride_s, out_stride_b, out_stride_h,
    lse_stride_s, lse_stride_b,
    H: tl.constexpr, DC: tl.constexpr, DR: tl.constexpr, PAGE: tl.constexpr, NUM_SPLITS: tl.constexpr,
    HAS_SCALE: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_R: tl.constexpr,
):  # fmt: skip
    """Program (i, row, split): heads i * BLOCK_H onwards."""
    row = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2)
    h = tl.program_id(0) * BLOCK_H + tl.arange(0, BLOCK_H)
    c = tl.arange(0, BLOCK_C)
    r = tl.arange(0, BLOCK_R)
    heads = (h < H)[:, None]
    in_latent = (c < DC)[None, :]
    in_rope = (r < DR)[None, :]
    ql_at = row * ql_stride_b + h[:, None] * ql_stride_h + c[None, :]
    qr_at = row * qr_stride_b + h[:, None] * qr_stride_h + r[None, :]
    q_latent = tl.load(q_latent_ptr + ql_at, mask=heads & in_latent, other=0.0)
    q_rope = tl.load(q_rope_ptr + qr_at, mask=heads & in_rope, other=0.0)

    begin, end = token_range(tl.load(len_ptr + row), split, 0, NUM_SPLITS, BLOCK_N)
    top = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], dtype=tl.float32)
    acc = tl.zeros([BLOCK_H, BLOCK_C], dtype=tl.float32)

    for start in range(begin, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live = n < end  # a table's tail and a block's unused slots may hold anything: neither is read
        # 64 bits before any multiplication by a stride: a large pool has more than 2^31 numbers.
        page = tl.load(table_ptr + row * table_stride_b + n // PAGE, mask=live, other=0).to(tl.int64)
        slot = (n % PAGE).to(tl.int64)
        at = (page * pool_stride_n + slot * pool_stride_p)[:, None]
        latent = tl.load(pool_ptr + at + c[None, :], mask=live[:, None] & in_latent, other=0.0).to(q_latent.dtype)
        rope = tl.load(pool_ptr + at + DC + r[None, :], mask=live[:, None] & in_rope, other=0.0).to(q_latent.dtype)

        scores = tl.dot(q_latent, tl.trans(latent), input_precision="ieee")
        scores = tl.dot(q_rope, tl.trans(rope), scores, input_precision="ieee") * scale_log2  # [BLOCK_H, BLOCK_N]
        if HAS_SCALE:
            scale = tl.load(pool_scale_ptr + page * scale_stride_n + slot * scale_stride_p, mask=live, other=0.0)
            scores *= scale[None, :]
        scores = tl.where(live[None, :], scores, float("-inf"))

        new_top = tl.maximum(top, tl.max(scores, 1))  # finite: every tile has a live token
        weights = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)  # what was summed so far was relative to the old maximum
        total = total * shrink + tl.sum(weights, 1)
        acc *= shrink[:, None]
        top = new_top

        # The tile that was the key is the value: it is not loaded again.
        if HAS_SCALE:
            largest = tl.max(scale, 0)  # see gqa_decode: small values would vanish in a float16
            weights *= (scale / largest)[None, :]
            acc += tl.dot(weights.to(q_latent.dtype), latent, input_precision="ieee") * largest
        else:
            acc = tl.dot(weights.to(q_latent.dtype), latent, acc, input_precision="ieee")

    some = tl.where(total == 0.0, 1.0, total)  # nothing to look at: 0 / 0 would be NaN
    acc = acc / some[:, None]
    out_at = split.to(tl.int64) * out_stride_s + row * out_stride_b
    out_ptrs = out_ptr + out_at + h[:, None] * out_stride_h + c[None, :]
    if NUM_SPLITS == 1:
        tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=heads & in_latent)  # an empty context: zeros
    else:
        tl.store(out_ptrs, acc, mask=heads & in_latent & (begin < end))  # nobody reads an empty part
        lse = top + tl.log2(some)  # of an empty part: -inf
        lse_at = split.to(tl.int64) * lse_stride_s + row * lse_stride_b
        tl.store(lse_ptr + lse_at + h, lse, mask=h < H)


def paged_mla_decode(
    q_latent: torch.Tensor,
    q_rope: torch.Tensor,
    latent_pool: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    *,
    num_splits: int | None = None,
    latent_scale: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """One new token of each sequence attends to its latents: absorbed q_latent[B, H, Dc], q_rope[B, H, Dr] -> [B, H, Dc].

    latent_pool[N, P, Dc + Dr] of q's dtype, or int8 with latent_scale[N, P] float32: the latent, then the rotary key
    block_tables[B, M] int32, context_lens[B] int32: tokens of each sequence, the new one included
    scale: (Dn + Dr)^-0.5, a query's size before absorption; num_splits, out, contexts of 0, what is not read, and errors
    as in `paged_gqa_decode`. The result are sums of latents, still to be multiplied by W_UV.
    """
    B, H, Dc = q_latent.shape
    check_shape("q_rope", q_rope, B, H, None, contiguous=False)
    Dr = q_rope.shape[2]
    check_shape("latent_pool", latent_pool, None, None, Dc + Dr)
    N, P, _ = latent_pool.shape
    check_dtypes(q_latent, latent_pool, latent_scale)
    if q_rope.dtype != q_latent.dtype:
        raise ValueError(f"q_rope must have q_latent's dtype {q_latent.dtype}, found {q_rope.dtype}")
    if latent_scale is not None and latent_scale.shape != (N, P):
        raise ValueError(f"latent_scale must have shape {[N, P]}, found {list(latent_scale.shape)}")
    check_tables(block_tables, context_lens, B, N, P)
    check_devices(q_latent, q_rope, latent_pool, block_tables, context_lens, latent_scale, out)
    arch, num_processors = target(q_latent.device)
    config = mla_config(arch, H, 8 * q_latent.dtype.itemsize, 8 * latent_pool.dtype.itemsize)
    programs = -(-H // config.block_h)
    if num_splits is None:
        num_splits = choose_num_splits(B * programs, block_tables.shape[1] * P, num_processors)
    splits = checked_splits(num_splits)

    q_latent, q_rope = (q if q.stride(-1) == 1 else q.contiguous() for q in (q_latent, q_rope))
    out = checked_out(out, q_latent, Dc)
    if B == 0:
        return out
    parts, lse, strides = room_for_parts(out, splits)
    scales = latent_pool if latent_scale is None else latent_scale
    mla_decode_kernel[(programs, B, splits)](
        q_latent, q_rope, latent_pool, scales, block_tables, context_lens, parts, lse,
        scale * math.log2(math.e),
        *q_latent.stride()[:2], *q_rope.stride()[:2], *latent_pool.stride()[:2], *scales.stride()[:2],
        block_tables.stride(0), *strides,
        H=H, DC=Dc, DR=Dr, PAGE=P, NUM_SPLITS=splits, HAS_SCALE=latent_scale is not None,
        BLOCK_H=config.block_h, BLOCK_N=config.block_n, BLOCK_C=padded(Dc), BLOCK_R=padded(Dr),
        num_warps=config.num_warps, num_stages=config.num_stages,
    )  # fmt: skip
    return out if splits == 1 else combine(parts, lse, out)
