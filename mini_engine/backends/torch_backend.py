"""`TorchBackend`: a real model over a paged cache, one forward pass for prefill chunks and decodes together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from mini_engine.arguments import choice
from mini_engine.backends.base import BatchInput
from mini_engine.backends.kv_arrays import MLA_DECODE, kv_arrays
from mini_engine.backends.torch_attention import AttentionPlan, Gather
from mini_engine.backends.torch_latent import paged_latent_attention
from mini_engine.cache import CacheOp
from mini_engine.geometry import kv_elems_per_token


class TorchStepResult:
    """Logits [R, V] on the device they were computed on; only what is asked for is moved."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def argmax(self) -> np.ndarray:
        return self._tensor.argmax(dim=-1).cpu().numpy()

    def logits(self, row: int) -> np.ndarray:
        return self._tensor[row].float().cpu().numpy()


class TorchBackend:
    """Serves a torch model (`mini_engine.models`) on the device and in the dtype the model was loaded with.

    pools: the arrays of the cache by name, [L, N + 1, P, K, D] each, row 0 of N the null block: "k" and "v", or "latent" for
    a model with latent attention (`kv_arrays`). Swapped blocks lie in host memory, pinned when the model is on a GPU, so that
    copies need no staging. mla_decode: "absorbed" or "expanded", how latent attention computes rows of one query.
    """

    def __init__(self, model: Any, *, kv_cache_dtype: str = "auto", mla_decode: str = "absorbed") -> None:
        if kv_cache_dtype != "auto":
            raise ValueError(f"kv_cache_dtype={kv_cache_dtype!r}: only 'auto', the model's own dtype, is supported")
        self.model = model
        self.spec = model.spec
        self.vocab_size = model.spec.vocab_size
        self.eos_token_ids = tuple(model.spec.eos_token_ids)
        self.max_model_len = model.spec.max_model_len
        self.window_note = model.spec.window_note
        self.mla_decode = choice("mla_decode", mla_decode, MLA_DECODE)

    @property
    def kv_bytes_per_block(self) -> int:
        """Bytes of one block's part of the cache over all layers."""
        return kv_elems_per_token(self.spec) * self.block_size * self.model.dtype.itemsize

    def init_kv(self, num_blocks: int, block_size: int, num_swap_blocks: int = 0) -> None:
        model, layers = self.model, self.spec.num_hidden_layers
        self.block_size = block_size
        on_gpu = model.device.type == "cuda"

        def pools(rows: int, device: Any, pinned: bool = False) -> dict[str, torch.Tensor]:
            # Not cleared: memory that no request has used yet is not even taken, and no slot is read before it is written.
            return {
                name: torch.empty(
                    (layers, rows, block_size, *shape), dtype=model.dtype, device=device, pin_memory=pinned
                )
                for name, shape in kv_arrays(self.spec).items()
            }

        self.pools = pools(num_blocks + 1, model.device)
        self._host = pools(num_swap_blocks + 1, "cpu", on_gpu and num_swap_blocks > 0)
        self._scratch = self._new_scratch(0)

    def apply_ops(self, ops: Sequence[CacheOp]) -> None:
        for op in ops:
            for name, pool in self.pools.items():
                source = self._host[name] if op.kind == "swap_in" else pool
                target = self._host[name] if op.kind == "swap_out" else pool
                target[:, op.dst].copy_(source[:, op.src])

    @torch.inference_mode()
    def execute(self, batch: BatchInput) -> TorchStepResult:
        plan = AttentionPlan(batch, self.block_size, self.model.device)
        if plan.scratch_blocks > len(self._scratch[0]):
            self._scratch = self._new_scratch(plan.scratch_blocks)
        scale = self.model.softmax_scale
        written = np.flatnonzero(batch.slot_mapping >= 0)
        slots = torch.from_numpy(batch.slot_mapping[written]).to(self.model.device)
        rows = None if len(written) == len(batch.slot_mapping) else torch.from_numpy(written).to(self.model.device)
        pools = list(self.pools.values())

        def attend(layer: int, q: torch.Tensor, *new: Any) -> torch.Tensor:
            """new: k and v, or the latent and the layer's up-projection, which is not stored."""
            cached = [pool[layer] for pool in pools]
            for pool, values in zip(cached, new):
                pool.view(-1, *pool.shape[2:]).index_copy_(0, slots, values if rows is None else values[rows])

            def read(gather: Gather) -> list[torch.Tensor]:
                return [gather.read(pool, scratch) for pool, scratch in zip(cached, self._scratch)]

            if self.spec.is_mla:
                latent, up = new
                return paged_latent_attention(plan, q, latent, up, read, scale, self.mla_decode)
            k, v = new
            return plan.attend(q, k, v, read, scale)

        return TorchStepResult(self.model.forward(batch.token_ids, batch.positions, attend, batch.logits_rows))

    def block(self, block_id: int) -> dict[str, np.ndarray]:
        """{"k": [L, P, K, D], "v": ...} or {"latent": ...}: a copy of one block, as NumPy."""
        return {name: pool[:, block_id].float().cpu().numpy().copy() for name, pool in self.pools.items()}

    def _new_scratch(self, num_blocks: int) -> list[torch.Tensor]:
        return [pool.new_empty((num_blocks, *pool.shape[2:])) for pool in self.pools.values()]
