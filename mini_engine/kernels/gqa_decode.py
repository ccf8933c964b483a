"""Paged decode attention for grouped heads (MHA, GQA, MQA): one query a sequence, keys and values found by block table.

A program takes the query heads of one group, which read the same keys, and one split of one sequence's context. It walks
its tokens a tile at a time with an online softmax, in base 2, all sums in float32. Rows of a group are padded to 16, the
least that matrix instructions take. Sources: Kwon et al. 2023 (paging), Dao et al. 2023 (Flash-Decoding), Milakov and
Gimelshein 2018 (online softmax).

Shapes: B sequences, H query heads, K key/value heads, D head size, N blocks, P tokens a block, M table entries.
"""

from __future__ import annotations

import math

import torch

from mini_engine.kernels._mode import import_triton
from mini_engine.kernels.config import choose_num_splits, gqa_config, padded
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
def gqa_decode_kernel(
    q_ptr, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr, table_ptr, len_ptr, out_ptr, lse_ptr,
    scale_log2,
    q_stride_b, q_stride_h,
    k_stride_n, k_stride_p, k_stride_h,
    v_stride_n, v_stride_p, v_stride_h,
    ks_stride_n, ks_stride_p, ks_stride_h,
    vs_stride_n, vs_stride_p, vs_stride_h,
    table_stride_b,
    out_stride_s, out_stride_b, out_stride_h,
    lse_stride_s, lse_stride_b,
    GROUP: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, WINDOW: tl.constexpr, NUM_SPLITS: tl.constexpr,
    HAS_SCALE: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Program (i, row, split): i counts key/value heads and, within one, tiles of BLOCK_H query heads."""
    HEAD_BLOCKS: tl.constexpr = (GROUP + BLOCK_H - 1) // BLOCK_H
    kv_head = (tl.program_id(0) // HEAD_BLOCKS).to(tl.int64)
    row = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2)

    in_group = tl.program_id(0) % HEAD_BLOCKS * BLOCK_H + tl.arange(0, BLOCK_H)
    h = kv_head * GROUP + in_group
    d = tl.arange(0, BLOCK_D)
    dims = (d < D)[None, :]
    heads_dims = (in_group < GROUP)[:, None] & dims
    q = tl.load(q_ptr + row * q_stride_b + h[:, None] * q_stride_h + d[None, :], mask=heads_dims, other=0.0)

    begin, end = token_range(tl.load(len_ptr + row), split, WINDOW, NUM_SPLITS, BLOCK_N)
    top = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], dtype=tl.float32)
    acc = tl.zeros([BLOCK_H, BLOCK_D], dtype=tl.float32)

    for start in range(begin, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live = n < end  # a table's tail and a block's unused slots may hold anything: neither is read
        # 64 bits before any multiplication by a stride: a large pool has more than 2^31 numbers.
        page = tl.load(table_ptr + row * table_stride_b + n // PAGE, mask=live, other=0).to(tl.int64)
        slot = (n % PAGE).to(tl.int64)
        tile = live[:, None] & dims

        k_at = page * k_stride_n + slot * k_stride_p + kv_head * k_stride_h
        k = tl.load(k_ptr + k_at[:, None] + d[None, :], mask=tile, other=0.0).to(q.dtype)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2  # [BLOCK_H, BLOCK_N]
        if HAS_SCALE:
            k_scale = tl.load(
                k_scale_ptr + page * ks_stride_n + slot * ks_stride_p + kv_head * ks_stride_h, mask=live, other=0.0
            )
            scores *= k_scale[None, :]
        scores = tl.where(live[None, :], scores, float("-inf"))

        new_top = tl.maximum(top, tl.max(scores, 1))  # finite: every tile has a live token
        weights = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)  # what was summed so far was relative to the old maximum
        total = total * shrink + tl.sum(weights, 1)
        acc *= shrink[:, None]
        top = new_top

        v_at = page * v_stride_n + slot * v_stride_p + kv_head * v_stride_h
        v = tl.load(v_ptr + v_at[:, None] + d[None, :], mask=tile, other=0.0).to(q.dtype)
        if HAS_SCALE:
            # The codes stay as they are and the weights carry the scales, relative to the tile's largest: small values
            # would vanish in a float16.
            v_scale = tl.load(
                v_scale_ptr + page * vs_stride_n + slot * vs_stride_p + kv_head * vs_stride_h, mask=live, other=0.0
            )
            largest = tl.max(v_scale, 0)
            weights *= (v_scale / largest)[None, :]
            acc += tl.dot(weights.to(q.dtype), v, input_precision="ieee") * largest
        else:
            acc = tl.dot(weights.to(q.dtype), v, acc, input_precision="ieee")

    some = tl.where(total == 0.0, 1.0, total)  # nothing to look at: 0 / 0 would be NaN
    acc = acc / some[:, None]
    out_at = split.to(tl.int64) * out_stride_s + row * out_stride_b
    out_ptrs = out_ptr + out_at + h[:, None] * out_stride_h + d[None, :]
    if NUM_SPLITS == 1:
        tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=heads_dims)  # an empty context: zeros
    else:
        tl.store(out_ptrs, acc, mask=heads_dims & (begin < end))  # nobody reads an empty part
        lse = top + tl.log2(some)  # of an empty part: -inf
        lse_at = split.to(tl.int64) * lse_stride_s + row * lse_stride_b
        tl.store(lse_ptr + lse_at + h, lse, mask=in_group < GROUP)


def paged_gqa_decode(
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    *,
    num_splits: int | None = None,
    window: int | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """One new token of each sequence attends to its cache: q[B, H, D] -> [B, H, D] in q's dtype, into `out` if given.

    k_pool, v_pool [N, P, K, D] of q's dtype, or int8 with k_scale, v_scale [N, P, K] float32
    block_tables[B, M] int32, context_lens[B] int32: tokens of each sequence, the new one included
    num_splits: into how many parts each context is cut (None: by `choose_num_splits`); window: look at the last so many

    A context of 0 gives zeros. Slots outside the context (and before the window), and table entries that no token needs,
    may hold anything. q may be any view. Raises ValueError for shapes, dtypes and devices that do not fit.
    """
    B, H, D = q.shape
    check_shape("k_pool", k_pool, None, None, None, D)
    N, P, K, _ = k_pool.shape
    check_shape("v_pool", v_pool, N, P, K, D)
    if K == 0 or H % K:
        raise ValueError(f"{H} query heads cannot share {K} key/value heads evenly")
    if (k_scale is None) != (v_scale is None):
        raise ValueError("k_scale and v_scale: give both, or neither")
    for name, pool, given in (("k_scale", k_pool, k_scale), ("v_scale", v_pool, v_scale)):
        check_dtypes(q, pool, given)
        if given is not None and given.shape != (N, P, K):
            raise ValueError(f"{name} must have shape {[N, P, K]}, found {list(given.shape)}")
    check_tables(block_tables, context_lens, B, N, P, window)
    check_devices(q, k_pool, v_pool, block_tables, context_lens, k_scale, v_scale, out)
    arch, num_processors = target(q.device)
    config = gqa_config(arch, D, 8 * q.dtype.itemsize, 8 * k_pool.dtype.itemsize)
    group = H // K
    programs = K * -(-group // config.block_h)
    if num_splits is None:
        longest = min(block_tables.shape[1] * P, window or 2**31)  # the table's width: lengths would have to be fetched
        num_splits = choose_num_splits(B * programs, longest, num_processors)
    splits = checked_splits(num_splits)

    q = q if q.stride(-1) == 1 else q.contiguous()
    out = checked_out(out, q, D)
    if B == 0:
        return out
    parts, lse, strides = room_for_parts(out, splits)
    scales = (k_pool, v_pool) if k_scale is None or v_scale is None else (k_scale, v_scale)
    gqa_decode_kernel[(programs, B, splits)](
        q, k_pool, v_pool, *scales, block_tables, context_lens, parts, lse,
        scale * math.log2(math.e),
        *q.stride()[:2], *k_pool.stride()[:3], *v_pool.stride()[:3], *scales[0].stride()[:3], *scales[1].stride()[:3],
        block_tables.stride(0), *strides,
        GROUP=group, D=D, PAGE=P, WINDOW=window or 0, NUM_SPLITS=splits, HAS_SCALE=k_scale is not None,
        BLOCK_H=config.block_h, BLOCK_N=config.block_n, BLOCK_D=padded(D),
        num_warps=config.num_warps, num_stages=config.num_stages,
    )  # fmt: skip
    return out if splits == 1 else combine(parts, lse, out)
