"""Latent attention (MLA) in torch, in its two forms, over one sequence's latents and over a paged pool of them.

Expanded, every latent is multiplied out into keys and values for all heads: dear, but a prefill chunk shares the price among
its many queries. Absorbed, the query is taken to the latents, which then are read as they lie, once, as key and as value:
the form for a decode row, whose single query could never pay for multiplying out its context. `mini_engine.attention.mla` is
the same in NumPy. `up` is the layer's up-projection, `mini_engine.models.latent_attention.UpProjection`.

Shapes: b rows, T queries, S tokens, H heads; Dn + Dr size of a query, Dc + Dr of a cached latent, Dv of a value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from mini_engine.backends.torch_attention import AttentionPlan, Gather


def expanded_attention(
    q: torch.Tensor,
    latent: torch.Tensor,
    up: Any,
    scale: float,
    mask: torch.Tensor | None = None,
    is_causal: bool = False,
) -> torch.Tensor:
    """q[b, T, H, Dn + Dr], latent[b, S, Dc + Dr] -> [b, T, H, Dv], over every head's own keys and values."""
    k, v = (x.unflatten(0, latent.shape[:2]).transpose(1, 2) for x in up.expand(latent.flatten(0, 1)))
    # PyTorch's fast kernels want values as wide as keys.
    wide = F.pad(v, (0, k.shape[-1] - v.shape[-1])) if v.shape[-1] < k.shape[-1] else v
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2), k, wide, attn_mask=mask, is_causal=is_causal, scale=scale
    )  # [b, H, T, at least Dv]
    return out[..., : v.shape[-1]].transpose(1, 2)


def latent_sums(q: torch.Tensor, latent: torch.Tensor, scale: float, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Absorbed queries q[b, H, Dc + Dr] over latent[b, S, Dc + Dr] -> sums of latents [b, H, Dc + Dr], for `up.values`.

    The heads stand where several queries would: no latent is read twice. The rotary key is summed along, as no copy of the
    values without it is worth making, and `up.values` leaves it out.
    """
    latent = latent[:, None]
    return F.scaled_dot_product_attention(q[:, None], latent, latent, attn_mask=mask, scale=scale)[:, 0]


def latent_attention(q: torch.Tensor, latent: torch.Tensor, up: Any, scale: float, offset: int = 0) -> torch.Tensor:
    """One sequence: q[T, H, Dn + Dr], latent[S, Dc + Dr] -> [T, H, Dv]. Query row t sees tokens 0 .. offset + t, S = offset + T."""
    if len(q) == 1:
        return up.values(latent_sums(up.absorb(q), latent[None], scale))
    mask = torch.ones(len(q), len(latent), dtype=torch.bool, device=q.device).tril(offset) if offset else None
    return expanded_attention(q[None], latent[None], up, scale, mask, is_causal=mask is None)[0]


def paged_latent_attention(
    plan: AttentionPlan,
    q: torch.Tensor,
    latent: torch.Tensor,
    up: Any,
    read: Callable[[Gather], list[torch.Tensor]],
    scale: float,
    mode: str = "absorbed",
) -> torch.Tensor:
    """One layer of a batch: q[T, H, Dn + Dr], latent[T, 1, Dc + Dr] just computed (and in the pool already) -> [T, H, Dv].

    read: see `AttentionPlan.attend`. mode: how decode rows are computed; prefill chunks are always expanded.
    """
    out = q.new_empty((*q.shape[:2], up.value_dim))
    for chunk in plan.chunks:
        context = latent[chunk.tokens].transpose(0, 1) if chunk.gather is None else read(chunk.gather)[0][:, 0]
        queries = q[chunk.tokens][None]
        out[chunk.tokens] = expanded_attention(queries, context, up, scale, chunk.mask, chunk.mask is None)[0]
    if mode == "expanded":
        for group in plan.groups:
            (found,) = read(group.gather)
            out[group.rows] = expanded_attention(q[group.rows][:, None], found[:, 0], up, scale, group.mask)[:, 0]
    elif plan.groups:
        # W_UK and W_UV are read once for all rows, whatever their lengths.
        rows = torch.cat([group.rows for group in plan.groups])
        queries = up.absorb(q[rows]).split([len(group.rows) for group in plan.groups])
        sums = [
            latent_sums(part, read(group.gather)[0][:, 0], scale, group.mask)
            for part, group in zip(queries, plan.groups)
        ]
        out[rows] = up.values(torch.cat(sums))
    return out
