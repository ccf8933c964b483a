"""Put the parts of split attention together, weighted by their log-sum-exp."""

from __future__ import annotations

import torch

from mini_engine.kernels._mode import import_triton
from mini_engine.kernels.config import padded
from mini_engine.kernels.launch import FLOATS, check_shape, target

triton = import_triton()
import triton.language as tl  # noqa: E402


@triton.jit
def combine_kernel(
    part_ptr, lse_ptr, out_ptr,
    part_stride_s, part_stride_b, part_stride_h,
    lse_stride_s, lse_stride_b,
    out_stride_b, out_stride_h,
    H: tl.constexpr, D: tl.constexpr, NUM_SPLITS: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Program (row, i): heads i * BLOCK_H onwards of one row."""
    row = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    s = tl.arange(0, BLOCK_S)
    d = tl.arange(0, BLOCK_D)
    head = h < H

    lse = tl.load(
        lse_ptr + s[:, None].to(tl.int64) * lse_stride_s + row * lse_stride_b + h[None, :],
        mask=(s < NUM_SPLITS)[:, None] & head[None, :],
        other=float("-inf"),
    )  # [BLOCK_S, BLOCK_H], base 2
    top = tl.max(lse, 0)
    top = tl.where(top == float("-inf"), 0.0, top)  # every part empty: -inf - -inf would be NaN
    total = tl.sum(tl.exp2(lse - top[None, :]), 0)
    total = tl.where(total == 0.0, 1.0, total)

    acc = tl.zeros([BLOCK_H, BLOCK_D], dtype=tl.float32)
    for split in range(NUM_SPLITS):
        at = tl.full([1], split, tl.int64)
        part_lse = tl.load(lse_ptr + at * lse_stride_s + row * lse_stride_b + h, mask=head, other=float("-inf"))
        weight = tl.exp2(part_lse - top) / total
        # An empty part was never written: it may hold NaN, and 0 * NaN is NaN. So it is not even read.
        counts = (weight > 0.0)[:, None] & (d < D)[None, :]
        part = tl.load(
            part_ptr + at * part_stride_s + row * part_stride_b + h[:, None] * part_stride_h + d[None, :],
            mask=counts,
            other=0.0,
        )
        acc += weight[:, None] * part

    tl.store(
        out_ptr + row * out_stride_b + h[:, None] * out_stride_h + d[None, :],
        acc.to(out_ptr.dtype.element_ty),
        mask=head[:, None] & (d < D)[None, :],
    )


def room_for_parts(out: torch.Tensor, splits: int) -> tuple[torch.Tensor, torch.Tensor, tuple[int, ...]]:
    """Where a decode kernel writes: parts[N, B, H, D], lse[N, B, H] and their strides (3 and 2). One part is `out` itself."""
    if splits == 1:
        return out, out, (0, *out.stride()[:2], 0, 0)
    parts = torch.empty((splits, *out.shape), dtype=torch.float32, device=out.device)
    lse = torch.empty((splits, *out.shape[:2]), dtype=torch.float32, device=out.device)
    return parts, lse, (*parts.stride()[:3], *lse.stride()[:2])


def combine(parts: torch.Tensor, lse: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """parts[N, B, H, D] float32 and their lse[N, B, H] float32 in base 2 -> out[B, H, D], filled and returned.

    A part whose lse is -inf counts for nothing, whatever it holds; where all do the result is 0. Raises ValueError for
    shapes and dtypes that do not fit.
    """
    check_shape("parts", parts, None, None, None, None)
    N, B, H, D = parts.shape
    check_shape("lse", lse, N, B, H)
    check_shape("out", out, B, H, D)
    if parts.dtype != torch.float32 or lse.dtype != torch.float32 or out.dtype not in FLOATS:
        raise ValueError(f"parts and lse must be float32, found {parts.dtype} and {lse.dtype}; out {out.dtype}")
    target(parts.device)
    block_d = padded(D)
    block_h = min(padded(H, 1), max(1, 2048 // block_d))  # a tile of at most 2048 numbers stays in registers
    if B and H:
        combine_kernel[(B, -(-H // block_h))](
            parts, lse, out,
            *parts.stride()[:3], *lse.stride()[:2], *out.stride()[:2],
            H=H, D=D, NUM_SPLITS=N, BLOCK_S=padded(N, 1), BLOCK_H=block_h, BLOCK_D=block_d, num_warps=4,
        )  # fmt: skip
    return out
