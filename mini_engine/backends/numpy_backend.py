"""`NumpyBackend`: the readable tensor backend. float64, one dense gather per sequence, nothing fused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mini_engine.attention import causal_attention
from mini_engine.backends.base import BatchInput, NumpyStepResult
from mini_engine.cache import CacheOp


class NumpyBackend:
    """A NumPy model over a paged pool k, v [L, N + 1, P, K, D]. Fresh blocks hold NaN: reading one shows in the logits."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.vocab_size: int = model.spec.vocab_size
        self.eos_token_ids: tuple[int, ...] = tuple(model.spec.eos_token_ids)
        self.max_model_len: int = model.spec.max_position_embeddings

    def init_kv(self, num_blocks: int, block_size: int, num_swap_blocks: int = 0) -> None:
        spec = self.model.spec
        block = (block_size, spec.num_key_value_heads, spec.head_dim)
        pools = (spec.num_hidden_layers, num_blocks + 1, *block)
        host = (spec.num_hidden_layers, num_swap_blocks + 1, *block)
        self.block_size = block_size
        self.k, self.v = np.full(pools, np.nan), np.full(pools, np.nan)
        self._host_k, self._host_v = np.full(host, np.nan), np.full(host, np.nan)

    def block(self, block_id: int) -> dict[str, np.ndarray]:
        """{"k": [L, P, K, D], "v": ...}: a copy of one block."""
        return {"k": self.k[:, block_id].copy(), "v": self.v[:, block_id].copy()}

    def apply_ops(self, ops: Sequence[CacheOp]) -> None:
        for kind, src, dst in ops:
            for pool, host in ((self.k, self._host_k), (self.v, self._host_v)):
                source = host if kind == "swap_in" else pool
                target = host if kind == "swap_out" else pool
                target[:, dst] = source[:, src]

    def execute(self, batch: BatchInput) -> NumpyStepResult:
        spec = self.model.spec
        scale = spec.head_dim**-0.5
        written = batch.slot_mapping >= 0
        slots = batch.slot_mapping[written]
        starts, lengths = batch.query_start_loc.tolist(), batch.context_lens.tolist()
        blocks_used = [-(-length // self.block_size) for length in lengths]

        def attend(layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
            heads = (spec.num_key_value_heads, spec.head_dim)
            k_slots, v_slots = self.k[layer].reshape(-1, *heads), self.v[layer].reshape(-1, *heads)  # views
            k_slots[slots], v_slots[slots] = k[written], v[written]
            out = np.empty_like(q)
            for row, (begin, end) in enumerate(pairwise(starts)):
                table = batch.block_tables[row, : blocks_used[row]]
                keys = self.k[layer, table].reshape(-1, *heads)[: lengths[row]]
                values = self.v[layer, table].reshape(-1, *heads)[: lengths[row]]
                out[begin:end] = causal_attention(
                    q[begin:end], keys, values, scale, offset=lengths[row] - (end - begin)
                )
            return out

        logits = self.model.forward(batch.token_ids, batch.positions, attend, logits_rows=batch.logits_rows)
        return NumpyStepResult(np.asarray(logits))
