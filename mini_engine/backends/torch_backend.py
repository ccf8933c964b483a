"""`TorchBackend`: a real model over a paged cache, one forward pass for prefill chunks and decodes together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from mini_engine.arguments import choice
from mini_engine.backends.base import BatchInput, check_peaks
from mini_engine.backends.kv_arrays import MLA_DECODE
from mini_engine.backends.kv_formats import bytes_per_token, kv_format, pool_parts
from mini_engine.backends.torch_attention import AttentionPlan, Gather
from mini_engine.backends.torch_latent import paged_latent_attention
from mini_engine.cache import CacheOp


class TorchStepResult:
    """Logits [R, V] on the device they were computed on; only what is asked for is moved."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def argmax(self) -> np.ndarray:
        """Greedy tokens [rows], int64. ValueError where the largest logit is NaN."""
        tokens = self._tensor.argmax(dim=-1)  # NaN counts as the largest here
        found = tokens.cpu().numpy()
        check_peaks(self._tensor.gather(-1, tokens[:, None])[:, 0].float().cpu().numpy(), found)
        return found

    def logits(self, row: int) -> np.ndarray:
        """Logits [V] of one row as NumPy float32."""
        return self._tensor[row].float().cpu().numpy()


class TorchBackend:
    """Serves a torch model (`mini_engine.models`) on the device and in the dtype the model was loaded with.

    pools: the arrays of the cache by name, [L, N + 1, P, K, D] each, row 0 of N the null block: "k" and "v", or "latent" for
    a model with latent attention (`kv_arrays`). Swapped blocks lie in host memory, pinned when the model is on a GPU, so that
    copies need no staging. mla_decode: "absorbed" or "expanded", how latent attention computes rows of one query.
    kv_cache_dtype: "auto" (the model's own), "fp8" or "int8", whose scales are pools of their own, "k_scale" and so on
    (`kv_formats`). ValueError for any other.
    """

    def __init__(self, model: Any, *, kv_cache_dtype: str = "auto", mla_decode: str = "absorbed") -> None:
        self.format = kv_format(kv_cache_dtype, model.dtype)
        self.kv_cache_dtype = kv_cache_dtype
        self.model = model
        self.spec = model.spec
        self.vocab_size = model.spec.vocab_size
        self.eos_token_ids = tuple(model.spec.eos_token_ids)
        self.max_model_len = model.spec.max_model_len
        self.window_note = model.spec.window_note
        self.mla_decode = choice("mla_decode", mla_decode, MLA_DECODE)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that one token takes in the cache over all layers, scales included."""
        return bytes_per_token(self.spec, self.format)

    @property
    def kv_bytes_per_block(self) -> int:
        """Bytes of one block's part of the cache over all layers."""
        return self.kv_bytes_per_token * self.block_size

    def init_kv(self, num_blocks: int, block_size: int, num_swap_blocks: int = 0) -> None:
        """Pools on the model's device, and as many as asked for in host memory, pinned beside a GPU."""
        model, layers = self.model, self.spec.num_hidden_layers
        self.block_size = block_size
        on_gpu = model.device.type == "cuda"

        def pools(rows: int, device: Any, pinned: bool = False) -> dict[str, torch.Tensor]:
            # Not cleared: memory that no request has used yet is not even taken, and no slot is read before it is written.
            return {
                name: torch.empty((layers, rows, block_size, *shape), dtype=dtype, device=device, pin_memory=pinned)
                for parts in self._parts.values()
                for name, (shape, dtype) in parts.items()
            }

        self._parts = pool_parts(self.spec, self.format)
        self.pools = pools(num_blocks + 1, model.device)
        self._host = pools(num_swap_blocks + 1, "cpu", on_gpu and num_swap_blocks > 0)
        self._scratch = self._new_scratch(0)

    def apply_ops(self, ops: Sequence[CacheOp]) -> None:
        """Copy blocks of every layer, on the device or to and from the host, in the order given."""
        for op in ops:
            for name, pool in self.pools.items():
                source = self._host[name] if op.kind == "swap_in" else pool
                target = self._host[name] if op.kind == "swap_out" else pool
                target[:, op.dst].copy_(source[:, op.src])

    @torch.inference_mode()
    def execute(self, batch: BatchInput) -> TorchStepResult:
        """One forward pass over all chunks: each layer writes its K/V, then attends along the block tables."""
        plan = self._plan(batch)
        if plan.scratch_blocks > self._scratch_blocks:
            self._scratch = self._new_scratch(plan.scratch_blocks)
        written = np.flatnonzero(batch.slot_mapping >= 0)
        slots = torch.from_numpy(batch.slot_mapping[written]).to(self.model.device)
        rows = None if len(written) == len(batch.slot_mapping) else torch.from_numpy(written).to(self.model.device)
        pools = [[(self.pools[name], self._scratch[name]) for name in parts] for parts in self._parts.values()]

        def attend(layer: int, q: torch.Tensor, *new: Any) -> torch.Tensor:
            """new: k and v, or the latent and the layer's up-projection, which is not stored."""
            held = self._write(plan, layer, new, slots, rows)

            def read(gather: Gather) -> list[torch.Tensor]:
                return [
                    self.format.decode([gather.read(pool[layer], scratch) for pool, scratch in parts])
                    for parts in pools
                ]

            return self._attend(plan, layer, q, held, new, read)

        return TorchStepResult(self.model.forward(batch.token_ids, batch.positions, attend, batch.logits_rows))

    def _plan(self, batch: BatchInput) -> AttentionPlan:
        """What the batch reads, worked out once for all layers."""
        return AttentionPlan(batch, self.block_size, self.model.device)

    def _write(
        self, plan: AttentionPlan, layer: int, new: Sequence[Any], slots: torch.Tensor, rows: torch.Tensor | None
    ) -> list[torch.Tensor]:
        """Store rows (None: all) of what a layer made in its slots; returns it as it was stored, for attention to read."""
        held = []
        for parts, x in zip(self._parts.values(), new):
            encoded = self.format.encode(x)
            for name, part in zip(parts, encoded):
                rows_of_layer = self.pools[name][layer].view(-1, *self.pools[name].shape[3:])
                rows_of_layer.index_copy_(0, slots, part if rows is None else part[rows])
            held.append(self.format.decode(encoded))
        return held

    def _attend(
        self,
        plan: AttentionPlan,
        layer: int,
        q: torch.Tensor,
        held: Sequence[torch.Tensor],
        new: Sequence[Any],
        read: Callable[[Gather], list[torch.Tensor]],
    ) -> torch.Tensor:
        """One layer of the batch, from `held` where a prefill chunk is its own context, else from the pools by `read`."""
        scale = self.model.softmax_scale
        if self.spec.is_mla:
            return paged_latent_attention(plan, q, held[0], new[1], read, scale, self.mla_decode)
        return plan.attend(q, held[0], held[1], read, scale)

    def block(self, block_id: int) -> dict[str, np.ndarray]:
        """{"k": [L, P, K, D], "v": ...} or {"latent": ...}: what one block holds, decoded, as NumPy."""
        return {
            array: self.format.decode([self.pools[name][:, block_id] for name in parts]).float().cpu().numpy().copy()
            for array, parts in self._parts.items()
        }

    def _new_scratch(self, num_blocks: int) -> dict[str, torch.Tensor]:
        self._scratch_blocks = num_blocks
        return {name: pool.new_empty((num_blocks, *pool.shape[2:])) for name, pool in self.pools.items()}
