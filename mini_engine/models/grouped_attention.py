"""The attention block of most models in torch: every query head reads the key/value head of its group.

As many key/value heads as query heads is multi-head attention, one is multi-query attention. Sources: Vaswani et al. 2017;
Shazeer 2019; Ainslie et al. 2023.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from mini_engine.catalog import ModelSpec
from mini_engine.models.families import family_of
from mini_engine.models.layout import layer_name
from mini_engine.models.rope import Rope
from mini_engine.models.rope_torch import rotate
from mini_engine.models.torch_weights import TorchWeights


class GroupedAttention:
    """One layer's projections. q, k and v come out of one product; `attend` owns the cache."""

    def __init__(self, weights: TorchWeights, spec: ModelSpec, layer: int) -> None:
        self.layer = layer
        self.heads, self.kv_heads, self.head_dim = spec.num_attention_heads, spec.num_key_value_heads, spec.head_dim
        self.qkv = weights.linear(*(layer_name(layer, f"self_attn.{x}_proj") for x in "qkv"))  # [(H + 2K) * D, hidden]
        self.o = weights.linear(layer_name(layer, "self_attn.o_proj"))  # [hidden, H * D]
        self.eps, self.qk_norm = spec.rms_norm_eps, None
        if family_of(spec).qk_norm:  # one weight for every head, spread over the heads of q and k: [H + K, D]
            q, k = (weights.tensor(layer_name(layer, f"self_attn.{x}_norm")) for x in "qk")
            self.qk_norm = torch.cat((q.expand(self.heads, -1), k.expand(self.kv_heads, -1)))

    def __call__(self, x: torch.Tensor, rope: Rope, attend: Callable[..., torch.Tensor]) -> torch.Tensor:
        """x[T, hidden] -> [T, hidden], through attend(layer, q[T, H, D], k[T, K, D], v[T, K, D]) -> [T, H, D]."""
        H, K, D = self.heads, self.kv_heads, self.head_dim
        qkv = self.qkv(x).view(-1, H + 2 * K, D)
        qk, v = qkv[:, : H + K], qkv[:, H + K :]
        if self.qk_norm is not None:
            qk = F.rms_norm(qk, (D,), eps=self.eps) * self.qk_norm
        qk = rotate(qk, rope)
        return self.o(attend(self.layer, qk[:, :H], qk[:, H:], v).reshape(-1, H * D))
