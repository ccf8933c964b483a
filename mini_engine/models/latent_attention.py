"""The attention block of DeepSeek-V2 and V3 in torch: multi-head latent attention (MLA).

A token leaves one latent vector in the cache, from which every head's key and value could be made again, and one rotary key
that all heads share. How the cache is read, multiplied out or as it is, is the business of `attend`; `UpProjection` gives it
both ways. Source: DeepSeek-V2 (2024), section 2.1. Layout as in transformers' `DeepseekV2ForCausalLM` and `DeepseekV3ForCausalLM`.

Shapes: T tokens, H heads; Dn a head's own part of query and key, Dr the rotary part, Dv a value, Dc the latent.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from mini_engine.catalog import ModelSpec
from mini_engine.models.families import family_of
from mini_engine.models.latent_layout import LATENT_NORM_EPS, latent_sizes
from mini_engine.models.layout import layer_name
from mini_engine.models.rope import Rope
from mini_engine.models.rope_torch import rotate
from mini_engine.models.torch_weights import TorchWeights


class UpProjection:
    """W_UK and W_UV of one layer, which make each head's key and value from a latent."""

    def __init__(self, weight: torch.Tensor, heads: int, key_dim: int) -> None:
        """weight[H * (Dn + Dv), Dc]: for each head the rows of its key, then those of its value."""
        self.weight = weight
        by_head = weight.view(heads, -1, weight.shape[1])
        self.w_uk, self.w_uv = by_head[:, :key_dim], by_head[:, key_dim:]  # [H, Dn, Dc], [H, Dv, Dc]
        self.value_dim = self.w_uv.shape[1]

    def expand(self, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Every head's keys and values: latent[S, Dc + Dr] as cached -> k[S, H, Dn + Dr], v[S, H, Dv]."""
        heads, key_dim, size = self.w_uk.shape
        k_nope, v = (
            F.linear(latent[:, :size], self.weight)
            .view(len(latent), heads, -1)
            .split([key_dim, self.value_dim], dim=-1)
        )
        k_rope = latent[:, None, size:].expand(-1, heads, -1)
        return torch.cat((k_nope, k_rope), dim=-1), v

    def absorb(self, q: torch.Tensor) -> torch.Tensor:
        """Queries in the space of the latent: q[T, H, Dn + Dr] -> [T, H, Dc + Dr], to be compared with it as cached."""
        q_nope, q_rope = q.tensor_split([self.w_uk.shape[1]], dim=-1)
        return torch.cat((torch.bmm(q_nope.transpose(0, 1), self.w_uk).transpose(0, 1), q_rope), dim=-1)

    def values(self, sums: torch.Tensor) -> torch.Tensor:
        """Sums of values from sums of latents: sums[T, H, Dc or more] -> [T, H, Dv]. What follows the Dc is not looked at."""
        sums = sums[..., : self.w_uv.shape[2]].transpose(0, 1)
        return torch.bmm(sums, self.w_uv.transpose(1, 2)).transpose(0, 1)


class LatentAttention:
    """One layer's projections. `attend` owns the cache."""

    def __init__(self, weights: TorchWeights, spec: ModelSpec, layer: int) -> None:
        def name(part: str) -> str:
            return layer_name(layer, f"self_attn.{part}")

        self.layer, self.spec, self.sizes = layer, spec, latent_sizes(spec)
        self.keeps_pairs = family_of(spec).keeps_pairs
        # The query, or what it is made from, and the latent come out of one product.
        self.down = weights.linear(name("q_a_proj" if spec.q_lora_rank else "q_proj"), name("kv_a_proj_with_mqa"))
        if spec.q_lora_rank:
            self.q_norm, self.q_up = weights.tensor(name("q_a_layernorm")), weights.linear(name("q_b_proj"))
        self.latent_norm = weights.tensor(name("kv_a_layernorm"))
        self.up = UpProjection(weights.tensor(name("kv_b_proj")), spec.num_attention_heads, self.sizes.key)
        self.o = weights.linear(name("o_proj"))  # [hidden, H * Dv]

    def __call__(self, x: torch.Tensor, rope: Rope, attend: Callable[..., torch.Tensor]) -> torch.Tensor:
        """x[T, hidden] -> [T, hidden], through attend(layer, q[T, H, Dn + Dr], latent[T, 1, Dc + Dr], up) -> [T, H, Dv]."""
        Dc, Dr = self.sizes.latent, self.sizes.rotary
        q, latent, k_rope = self.down(x).tensor_split([-(Dc + Dr), -Dr], dim=-1)
        if self.spec.q_lora_rank:
            q = self.q_up(F.rms_norm(q, self.q_norm.shape, self.q_norm, LATENT_NORM_EPS))
        q_nope, q_rope = q.unflatten(-1, (self.spec.num_attention_heads, -1)).tensor_split([-Dr], dim=-1)
        latent = F.rms_norm(latent, self.latent_norm.shape, self.latent_norm, LATENT_NORM_EPS)

        q = torch.cat((q_nope, self._rotate(q_rope, rope)), dim=-1)
        cached = torch.cat((latent[:, None], self._rotate(k_rope[:, None], rope)), dim=-1)
        return self.o(attend(self.layer, q, cached, self.up).flatten(1))

    def _rotate(self, x: torch.Tensor, rope: Rope) -> torch.Tensor:
        """x[T, heads, Dr] turned: neighbours with each other where the family's weights have them side by side."""
        if not self.spec.rope_interleave:
            return rotate(x, rope)
        turned = rotate(torch.cat((x[..., ::2], x[..., 1::2]), dim=-1), rope)
        return turned.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2) if self.keeps_pairs else turned
