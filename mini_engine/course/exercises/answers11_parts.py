"""Lesson 11, right kernels for parts of a context, each with its log-sum-exp: the first is the reference of its exercise."""

from __future__ import annotations

import math

import torch

from mini_engine.kernels import tl, triton


@triton.jit
def part_kernel(
    q_ptr, k_ptr, v_ptr, part_ptr, lse_ptr, length, tokens, scale_log2, k_stride, v_stride, part_stride,
    D: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    split = tl.program_id(0)
    d = tl.arange(0, BLOCK_D)
    q = tl.load(q_ptr + d, mask=d < D, other=0.0)
    begin = split * tokens
    end = tl.minimum(begin + tokens, length)
    top = float("-inf")
    total = 0.0
    out = tl.zeros([BLOCK_D], tl.float32)
    for start in range(begin, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        tile = (n < end)[:, None] & (d < D)[None, :]
        k = tl.load(k_ptr + n[:, None] * k_stride + d[None, :], mask=tile, other=0.0)
        v = tl.load(v_ptr + n[:, None] * v_stride + d[None, :], mask=tile, other=0.0)
        s = tl.where(n < end, tl.sum(q[None, :] * k, 1) * scale_log2, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 0))
        shrink = tl.exp2(top - new_top)
        weights = tl.exp2(s - new_top)
        total = total * shrink + tl.sum(weights, 0)
        out = out * shrink + tl.sum(weights[:, None] * v, 0)
        top = new_top
    some = tl.where(total == 0.0, 1.0, total)
    tl.store(part_ptr + split * part_stride + d, out / some, mask=d < D)
    tl.store(lse_ptr + split, top + tl.log2(some))


def attend_parts(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, tokens: int, num_splits: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """q[D] over k[S, D] and v[S, D], part i of tokens i * tokens onwards -> parts[num_splits, D], lse[num_splits]."""
    (S, D) = k.shape
    parts = torch.full((num_splits, D), torch.nan, device=q.device)
    lse = torch.full((num_splits,), torch.nan, device=q.device)
    part_kernel[(num_splits,)](
        q, k, v, parts, lse, S, tokens, scale * math.log2(math.e), k.stride(0), v.stride(0), parts.stride(0),
        D=D, BLOCK_N=16, BLOCK_D=triton.next_power_of_2(D),
    )  # fmt: skip
    return parts, lse


@triton.jit
def lane_kernel(
    q_at, k_at, v_at, parts_at, lses_at, S, count, factor, k_step, v_step, parts_step,
    SIZE: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Another way: powers of e, a while loop that an empty part never enters, one logarithm turned at the end."""
    i, w, lane = tl.program_id(0), tl.arange(0, WIDTH), tl.arange(0, LANES)
    query = tl.load(q_at + w, mask=w < SIZE, other=0.0) * factor
    first, last = i * count, tl.minimum((i + 1) * count, S)
    most = tl.full([1], float("-inf"), tl.float32)
    mass = tl.zeros([1], tl.float32)
    summed = tl.zeros([WIDTH], tl.float32)
    while first < last:
        inside = (first + lane < last)[:, None] & (w < SIZE)[None, :]
        key = tl.load(k_at + (first + lane)[:, None] * k_step + w[None, :], mask=inside, other=0.0)
        value = tl.load(v_at + (first + lane)[:, None] * v_step + w[None, :], mask=inside, other=0.0)
        scores = tl.where(first + lane < last, tl.sum(query[None, :] * key, 1), float("-inf"))
        before, most = most, tl.maximum(most, tl.max(scores, 0))
        powers = tl.exp(scores - most)
        mass = mass * tl.exp(before - most) + tl.sum(powers, 0)
        summed = summed * tl.exp(before - most) + tl.sum(powers[:, None] * value, 0)
        first += LANES
    if i * count < S:
        tl.store(parts_at + i * parts_step + w, summed / mass, mask=w < SIZE)
        tl.store(lses_at + i + tl.arange(0, 1), (most + tl.log(mass)) * 1.4426950408889634)


def in_powers_of_e(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, tokens: int, num_splits: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Another right answer: it leaves an empty part as it is, and its log-sum-exp at minus infinity."""
    parts = torch.empty((num_splits, len(q)), device=q.device)
    lse = torch.full((num_splits,), float("-inf"), device=q.device)
    lane_kernel[(num_splits,)](
        q, k, v, parts, lse, len(k), tokens, scale, k.stride(0), v.stride(0), parts.stride(0),
        SIZE=len(q), LANES=32, WIDTH=triton.next_power_of_2(len(q)),
    )  # fmt: skip
    return parts, lse
