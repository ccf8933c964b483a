"""Lesson 11, right and wrong ways to put parts together, in PyTorch."""

from __future__ import annotations

import math

import torch


def combine(parts: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """parts[N, B, H, D], lse[N, B, H] in base 2 -> [B, H, D]."""
    top = lse.amax(0)
    top = torch.where(torch.isinf(top), 0.0, top)
    weights = torch.exp2(lse - top)
    total = weights.sum(0)
    weights = weights / torch.where(total == 0, 1.0, total)
    counted = torch.where((weights > 0)[..., None], parts, 0.0)
    return (weights[..., None] * counted).sum(0)


def part_by_part(parts: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """Another way: two at a time, as online softmax does it."""
    out, so_far = torch.zeros_like(parts[0]), torch.full_like(lse[0], float("-inf"))
    for part, its in zip(parts, lse):
        both = torch.logaddexp2(so_far, its)
        alive = torch.isfinite(both)
        old, new = (torch.where(alive, torch.exp2(x - both), 0.0)[..., None] for x in (so_far, its))
        out = old * out + torch.where(new > 0, new * part, 0.0)
        so_far = both
    return out


def mean_of_parts(parts: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    return parts.mean(0)


def powers_of_e(parts: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    return (torch.softmax(lse, 0)[..., None] * parts).sum(0)


def linear_weights(parts: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    return ((lse / lse.sum(0))[..., None] * parts).sum(0)


def not_divided(parts: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    return (torch.exp2(lse)[..., None] * parts).sum(0)


def a_little_more(parts: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    top = torch.nan_to_num(lse.amax(0), neginf=0.0)
    powers = torch.exp2(lse - top)
    weights = (powers / (powers.sum(0) + 1e-6))[..., None]
    return torch.where(weights > 0, weights * parts, 0.0).sum(0)


def in_powers_of_e(parts: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """Another way: a softmax, whose base is e."""
    weights = torch.nan_to_num(torch.softmax(lse * math.log(2), 0))[..., None]
    return torch.where(weights > 0, weights * parts, 0.0).sum(0)


def first_head_for_all(parts: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    return combine(parts, lse[:, :, :1].expand_as(lse))


def first_sequence_for_all(parts: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    return combine(parts, lse[:, :1].expand_as(lse))


def no_maximum(parts: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    powers = torch.exp2(lse)
    weights = powers / powers.sum(0)
    return torch.where((weights > 0)[..., None], weights[..., None] * parts, 0.0).sum(0)


def one_maximum(parts: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    powers = torch.exp2(lse - lse.max())
    return torch.where((powers > 0)[..., None], (powers / powers.sum(0))[..., None] * parts, 0.0).sum(0)


def reads_empty_parts(parts: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    top = torch.nan_to_num(lse.amax(0), neginf=0.0)
    powers = torch.exp2(lse - top)
    return (powers[..., None] * parts).sum(0) / powers.sum(0).clamp_min(1e-30)[..., None]


def twenty_below(parts: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    return combine(torch.nan_to_num(parts), torch.where(torch.isinf(lse), -20.0, lse))


def nan_without_tokens(parts: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    powers = torch.exp2(lse - lse.amax(0))
    weights = (powers / powers.sum(0))[..., None]
    return torch.where(weights == 0, 0.0, weights * parts).sum(0)
