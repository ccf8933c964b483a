"""Lesson 10, a right kernel that stores K and V in their slots, a program a token and head."""

from __future__ import annotations

from typing import Any

import torch

from mini_engine.kernels import tl, triton


@triton.jit
def write_kernel(
    k_ptr, v_ptr, k_pool_ptr, v_pool_ptr, slot_ptr,
    k_stride_t, k_stride_h, v_stride_t, v_stride_h, stride_n, stride_p, stride_k,
    D: tl.constexpr, PAGE: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    t, h = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, BLOCK_D)
    slot = tl.load(slot_ptr + t)
    stored = (d < D) & (slot >= 0)
    k = tl.load(k_ptr + t * k_stride_t + h * k_stride_h + d, mask=stored, other=0.0)
    v = tl.load(v_ptr + t * v_stride_t + h * v_stride_h + d, mask=stored, other=0.0)
    at = slot // PAGE * stride_n + slot % PAGE * stride_p + h * stride_k + d
    tl.store(k_pool_ptr + at, k, mask=stored)
    tl.store(v_pool_ptr + at, v, mask=stored)


def write_kv(
    k: torch.Tensor, v: torch.Tensor, k_pool: torch.Tensor, v_pool: torch.Tensor, slot_mapping: torch.Tensor, *,
    k_scale: Any = None, v_scale: Any = None,
) -> None:  # fmt: skip
    """k[T, K, D] and v[T, K, D] into slots slot_mapping[T] of pools [N, P, K, D]."""
    T, K, D = k.shape
    assert k_pool.stride() == v_pool.stride()
    if T:
        write_kernel[(T, K)](
            k, v, k_pool, v_pool, slot_mapping,
            *k.stride()[:2], *v.stride()[:2], *k_pool.stride()[:3],
            D=D, PAGE=k_pool.shape[1], BLOCK_D=triton.next_power_of_2(D),
        )  # fmt: skip
