"""`TorchBackend`: a real model over a paged K/V pool, one forward pass for prefill chunks and decodes together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from mini_engine.backends.base import BatchInput
from mini_engine.backends.torch_attention import AttentionPlan
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

    The pools are k and v [L, N + 1, P, K, D], row 0 of N the null block. Swapped blocks lie in host memory, pinned when
    the model is on a GPU, so that copies need no staging.
    """

    def __init__(self, model: Any, *, kv_cache_dtype: str = "auto") -> None:
        if kv_cache_dtype != "auto":
            raise ValueError(f"kv_cache_dtype={kv_cache_dtype!r}: only 'auto', the model's own dtype, is supported")
        self.model = model
        self.spec = model.spec
        self.vocab_size = model.spec.vocab_size
        self.eos_token_ids = tuple(model.spec.eos_token_ids)
        self.max_model_len = model.spec.max_position_embeddings

    @property
    def kv_bytes_per_block(self) -> int:
        """Bytes of K and V of one block over all layers."""
        return kv_elems_per_token(self.spec) * self.block_size * self.model.dtype.itemsize

    def init_kv(self, num_blocks: int, block_size: int, num_swap_blocks: int = 0) -> None:
        spec, model = self.spec, self.model
        self.block_size = block_size
        tail = (block_size, spec.num_key_value_heads, spec.head_dim)
        on_gpu = model.device.type == "cuda"

        def pool(rows: int, device: Any, pinned: bool = False) -> torch.Tensor:
            shape = (spec.num_hidden_layers, rows, *tail)
            # Not cleared: memory that no request has used yet is not even taken, and no slot is read before it is written.
            return torch.empty(shape, dtype=model.dtype, device=device, pin_memory=pinned)

        self.k_pool, self.v_pool = pool(num_blocks + 1, model.device), pool(num_blocks + 1, model.device)
        self._host = [pool(num_swap_blocks + 1, "cpu", on_gpu and num_swap_blocks > 0) for _ in "kv"]
        self._scratch = self._new_scratch(0)

    def apply_ops(self, ops: Sequence[CacheOp]) -> None:
        for op in ops:
            for pool, host in zip((self.k_pool, self.v_pool), self._host):
                source = host if op.kind == "swap_in" else pool
                target = host if op.kind == "swap_out" else pool
                target[:, op.dst].copy_(source[:, op.src])

    @torch.inference_mode()
    def execute(self, batch: BatchInput) -> TorchStepResult:
        plan = AttentionPlan(batch, self.block_size, self.model.device)
        if plan.scratch_blocks > len(self._scratch[0]):
            self._scratch = self._new_scratch(plan.scratch_blocks)
        written = np.flatnonzero(batch.slot_mapping >= 0)
        slots = torch.from_numpy(batch.slot_mapping[written]).to(self.model.device)
        rows = None if len(written) == len(batch.slot_mapping) else torch.from_numpy(written).to(self.model.device)

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            k_pool, v_pool = self.k_pool[layer], self.v_pool[layer]
            for pool, new in ((k_pool, k), (v_pool, v)):
                pool.view(-1, *pool.shape[2:]).index_copy_(0, slots, new if rows is None else new[rows])
            return plan.attend(q, k, v, k_pool, v_pool, self._scratch)

        return TorchStepResult(self.model.forward(batch.token_ids, batch.positions, attend, batch.logits_rows))

    def block(self, block_id: int) -> dict[str, np.ndarray]:
        """{"k": [L, P, K, D], "v": ...}: a copy of one block, as NumPy."""
        return {
            name: pool[:, block_id].float().cpu().numpy().copy()
            for name, pool in [("k", self.k_pool), ("v", self.v_pool)]
        }

    def _new_scratch(self, num_blocks: int) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (num_blocks, *self.k_pool.shape[2:])
        return self.k_pool.new_empty(shape), self.k_pool.new_empty(shape)
