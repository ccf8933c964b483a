"""Store new keys and values in a paged cache: each token's row goes to the slot that the scheduler gave it."""

from __future__ import annotations

import torch

from mini_engine.kernels._mode import import_triton
from mini_engine.kernels.config import padded
from mini_engine.kernels.launch import check_devices, check_dtypes, check_shape, target

triton = import_triton()
import triton.language as tl  # noqa: E402


@triton.jit
def quantized(x):
    """x[rows, D] float32 -> codes of -127 to 127 as float32, and scales[rows]. A row with NaN or infinity gets a NaN scale."""
    scale = tl.max(tl.abs(x), 1) / 127.0
    scale = tl.maximum(scale, 1.1754943508222875e-38)  # all zeros: anything but a division by zero
    scale += tl.sum(x * 0.0, 1)  # the maximum may have passed NaN over
    codes = tl.div_rn(x, tl.broadcast_to(scale[:, None], x.shape))
    codes = (codes + 12582912.0) - 12582912.0  # 1.5 * 2^23: what is left is rounded to the nearest, ties to even
    return tl.where(codes == codes, codes, 0.0), scale


@triton.jit
def write_kv_kernel(
    k_ptr, v_ptr, k_pool_ptr, v_pool_ptr, k_scale_ptr, v_scale_ptr, slot_ptr,
    num_rows,
    k_stride_t, k_stride_h,
    v_stride_t, v_stride_h,
    kp_stride_n, kp_stride_p, kp_stride_h,
    vp_stride_n, vp_stride_p, vp_stride_h,
    ks_stride_n, ks_stride_p, ks_stride_h,
    vs_stride_n, vs_stride_p, vs_stride_h,
    K: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, HAS_V: tl.constexpr, HAS_SCALE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Program i: BLOCK_ROWS rows onwards from i * BLOCK_ROWS, where a row is one head of one token."""
    r = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    d = tl.arange(0, BLOCK_D)
    t = (r // K).to(tl.int64)
    h = (r % K).to(tl.int64)
    slot = tl.load(slot_ptr + t, mask=r < num_rows, other=-1)  # int64: token slots of a large pool times a row's size
    live = slot >= 0
    slot = tl.where(live, slot, 0)
    page = slot // PAGE
    offset = slot % PAGE
    tile = live[:, None] & (d < D)[None, :]

    k = tl.load(k_ptr + (t * k_stride_t + h * k_stride_h)[:, None] + d[None, :], mask=tile, other=0.0)
    k_at = k_pool_ptr + (page * kp_stride_n + offset * kp_stride_p + h * kp_stride_h)[:, None] + d[None, :]
    if HAS_SCALE:
        codes, scale = quantized(k.to(tl.float32))
        tl.store(k_at, codes.to(tl.int8), mask=tile)
        tl.store(k_scale_ptr + page * ks_stride_n + offset * ks_stride_p + h * ks_stride_h, scale, mask=live)
    else:
        tl.store(k_at, k, mask=tile)

    if HAS_V:
        v = tl.load(v_ptr + (t * v_stride_t + h * v_stride_h)[:, None] + d[None, :], mask=tile, other=0.0)
        v_at = v_pool_ptr + (page * vp_stride_n + offset * vp_stride_p + h * vp_stride_h)[:, None] + d[None, :]
        if HAS_SCALE:
            codes, scale = quantized(v.to(tl.float32))
            tl.store(v_at, codes.to(tl.int8), mask=tile)
            tl.store(v_scale_ptr + page * vs_stride_n + offset * vs_stride_p + h * vs_stride_h, scale, mask=live)
        else:
            tl.store(v_at, v, mask=tile)


def write_kv(
    k: torch.Tensor,
    v: torch.Tensor | None,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor | None,
    slot_mapping: torch.Tensor,
    *,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    """k[T, K, D], v[T, K, D] into k_pool, v_pool [N, P, K, D]: token t at slot slot_mapping[t] = block * P + offset, int64.

    Slot -1 is skipped, and no tokens is nothing to do. Pools of int8 need k_scale, v_scale [N, P, K] float32: each row is
    stored as codes and its largest absolute value / 127. v and v_pool are None for a latent cache, which has one array.
    Raises ValueError for shapes, dtypes and devices that do not fit.
    """
    T, K, D = k.shape
    check_shape("k_pool", k_pool, None, None, K, D)
    N, P = k_pool.shape[:2]
    if (v is None) != (v_pool is None):
        raise ValueError("v and v_pool: give both, or neither")
    if (k_scale is None) != (v_scale is None) and v is not None:
        raise ValueError("k_scale and v_scale: give both, or neither")
    check_shape("slot_mapping", slot_mapping, T)
    if slot_mapping.dtype != torch.int64:
        raise ValueError(f"slot_mapping must be int64, found {slot_mapping.dtype}")
    for name, x, pool, scales in (("k", k, k_pool, k_scale), ("v", v, v_pool, v_scale)):
        if x is None or pool is None:
            continue
        check_shape(f"{name}_pool", pool, N, P, K, D)
        check_dtypes(x, pool, scales)
        if x.shape != k.shape or x.dtype != k.dtype:
            raise ValueError(f"v must be as k, {list(k.shape)} of {k.dtype}, found {list(x.shape)} of {x.dtype}")
        if scales is not None and scales.shape != (N, P, K):
            raise ValueError(f"{name}_scale must have shape {[N, P, K]}, found {list(scales.shape)}")
    if slot_mapping.device.type == "cpu" and T and not -1 <= int(slot_mapping.min()) <= int(slot_mapping.max()) < N * P:
        raise ValueError(
            f"slots from {int(slot_mapping.min())} to {int(slot_mapping.max())}, and the pool has 0 to {N * P - 1}; "
            "-1 is skipped"
        )
    check_devices(k, v, k_pool, v_pool, slot_mapping, k_scale, v_scale)
    arch = target(k.device).arch
    if T == 0 or K == 0:
        return
    k = k if k.stride(-1) == 1 else k.contiguous()
    v = v if v is None or v.stride(-1) == 1 else v.contiguous()
    values, values_pool = (k, k_pool) if v is None or v_pool is None else (v, v_pool)
    scales_k = k_pool if k_scale is None else k_scale
    scales_v = scales_k if v_scale is None else v_scale
    block_rows = 64 if arch == "interpreter" else 4  # the interpreter pays for each program, a GPU wants many
    write_kv_kernel[(-(-T * K // block_rows),)](
        k, values, k_pool, values_pool, scales_k, scales_v, slot_mapping,
        T * K,
        *k.stride()[:2], *values.stride()[:2], *k_pool.stride()[:3], *values_pool.stride()[:3],
        *scales_k.stride()[:3], *scales_v.stride()[:3],
        K=K, D=D, PAGE=P, HAS_V=v is not None, HAS_SCALE=k_scale is not None,
        BLOCK_ROWS=block_rows, BLOCK_D=padded(D, 1), num_warps=4,
    )  # fmt: skip
