"""`TritonBackend`: decode rows through the Triton kernels, everything else as `TorchBackend` does it.

A prefill chunk has many queries and is bound by its products, which torch's own kernels do well. A decode row has one query
and is bound by the bytes it reads: there a kernel that follows the block table itself saves the copy that gathering makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from mini_engine.arguments import choice
from mini_engine.backends.base import BatchInput
from mini_engine.backends.torch_attention import AttentionPlan, DecodeGroup, Gather
from mini_engine.backends.torch_backend import TorchBackend
from mini_engine.kernels import paged_gqa_decode, paged_mla_decode, write_kv
from mini_engine.kernels.launch import FLOATS, target

KV_CACHE_DTYPES = ("auto", "int8")
"""What the kernels can read: the model's dtype, or codes with scales."""


class TritonPlan(AttentionPlan):
    """A batch whose decode rows are left to a kernel: `decodes` are their tokens (None: every token is one), and their
    tables and lengths lie on the device."""

    def _groups(self, batch: BatchInput, decodes: np.ndarray) -> list[DecodeGroup]:
        every = len(decodes) == len(batch.token_ids)
        self.num_decodes = len(decodes)
        self.decodes = None if every else self._tensor(batch.query_start_loc[decodes].astype(np.int64))
        self.tables, self.lengths = (self._tensor(x[decodes]) for x in (batch.block_tables, batch.context_lens))
        return []


class TritonBackend(TorchBackend):
    """Serves a torch model with decode attention and cache writes in Triton: compiled on a GPU, else interpreted (slowly).

    kv_cache_dtype: "auto" (the model's own dtype) or "int8", whose scales the kernels read
    decode: a kernel of your own in place of `paged_gqa_decode` (or `paged_mla_decode` for a model with latent attention),
            called with the same arguments; write: one in place of `write_kv`

    Raises ValueError for another kv_cache_dtype, a model that the kernels have no numbers for, or one that is not where
    they run; TritonMissingError without Triton.
    """

    def __init__(
        self,
        model: Any,
        *,
        kv_cache_dtype: str = "auto",
        decode: Callable[..., torch.Tensor] | None = None,
        write: Callable[..., None] | None = None,
    ) -> None:
        super().__init__(model, kv_cache_dtype=choice("kv_cache_dtype", kv_cache_dtype, KV_CACHE_DTYPES))
        if model.dtype not in FLOATS:
            raise ValueError(f"a model of {model.dtype}: the kernels take float16, bfloat16 and float32")
        target(model.device)
        self.decode: Callable[..., torch.Tensor] = decode or (
            paged_mla_decode if self.spec.is_mla else paged_gqa_decode
        )
        self.write: Callable[..., None] = write or write_kv

    def init_kv(self, num_blocks: int, block_size: int, num_swap_blocks: int = 0) -> None:
        """The pools of `TorchBackend`, and each layer's part of them as the kernels take it."""
        super().init_kv(num_blocks, block_size, num_swap_blocks)
        arrays = [[self.pools[name] for name in parts] for parts in self._parts.values()]
        none: list[tuple[Any, Any]] = [(None, None)] * (2 - len(arrays))
        # [layer] -> K or the latent, then V: its pool [N, P, K, D] and its scales [N, P, K]; None without.
        self._layers = [
            [(pool[layer], scale[0][layer][..., 0] if scale else None) for pool, *scale in arrays] + none
            for layer in range(self.spec.num_hidden_layers)
        ]

    def _plan(self, batch: BatchInput) -> TritonPlan:
        return TritonPlan(batch, self.block_size, self.model.device)

    def _write(
        self, plan: AttentionPlan, layer: int, new: Sequence[Any], slots: torch.Tensor, rows: torch.Tensor | None
    ) -> list[torch.Tensor]:
        stored = list(new[: len(self._parts)])  # k and v, or the latent
        k, v = [x if rows is None else x[rows] for x in stored] + [None] * (2 - len(stored))
        (k_pool, k_scale), (v_pool, v_scale) = self._layers[layer]
        self.write(k, v, k_pool, v_pool, slots, k_scale=k_scale, v_scale=v_scale)
        if self.kv_cache_dtype == "auto" or not plan.chunks:
            return stored
        return [self.format.decode(self.format.encode(x)) for x in stored]  # what a chunk reads of itself

    def _attend(
        self,
        plan: AttentionPlan,
        layer: int,
        q: torch.Tensor,
        held: Sequence[torch.Tensor],
        new: Sequence[Any],
        read: Callable[[Gather], list[torch.Tensor]],
    ) -> torch.Tensor:
        assert isinstance(plan, TritonPlan)
        if plan.decodes is None:
            return self._decode(plan, layer, q, new)
        out = super()._attend(plan, layer, q, held, new, read)
        if plan.num_decodes:
            out[plan.decodes] = self._decode(plan, layer, q[plan.decodes], new)
        return out

    def _decode(self, plan: TritonPlan, layer: int, q: torch.Tensor, new: Sequence[Any]) -> torch.Tensor:
        """The decode rows of one layer: q[B, H, D] -> [B, H, Dv]."""
        tables, lengths, scale = plan.tables, plan.lengths, self.model.softmax_scale
        (k_pool, k_scale), (v_pool, v_scale) = self._layers[layer]
        if not self.spec.is_mla:
            return self.decode(q, k_pool, v_pool, tables, lengths, scale, k_scale=k_scale, v_scale=v_scale)
        up, size = new[1], self.spec.kv_lora_rank
        q = up.absorb(q)
        latent_scale = None if k_scale is None else k_scale[..., 0]
        sums = self.decode(
            q[..., :size], q[..., size:], k_pool[:, :, 0], tables, lengths, scale, latent_scale=latent_scale
        )
        return up.values(sums)
