"""`NumpyBackend`: the readable tensor backend. float64, one dense gather per sequence, nothing fused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mini_engine.arguments import choice
from mini_engine.attention import causal_attention, gather, mla_expanded, store
from mini_engine.backends.base import BatchInput, NumpyStepResult
from mini_engine.backends.kv_arrays import MLA_DECODE, kv_arrays
from mini_engine.backends.numpy_latent import latent_attention
from mini_engine.cache import CacheOp
from mini_engine.geometry import kv_elems_per_token


class NumpyBackend:
    """A NumPy model over paged pools [L, N + 1, P, K, D], those of `TorchBackend`.

    Fresh blocks hold NaN: reading one shows in the logits. mla_decode: "absorbed" or "expanded", how latent attention
    computes rows of one query.

    write_kv, paged_attention: functions of your own with the signatures of those in `mini_engine.attention`, for models
    that cache K and V. With yours, each query of a chunk is a call of its own: the one at position p sees p + 1 tokens.
    ValueError for a model with latent attention, which has one pool.
    """

    def __init__(
        self,
        model: Any,
        *,
        mla_decode: str = "absorbed",
        write_kv: Callable[..., None] | None = None,
        paged_attention: Callable[..., np.ndarray] | None = None,
    ) -> None:
        self.model = model
        self.vocab_size: int = model.spec.vocab_size
        self.eos_token_ids: tuple[int, ...] = tuple(model.spec.eos_token_ids)
        self.max_model_len: int = model.spec.max_model_len
        self.window_note: str = model.spec.window_note
        self.mla_decode = choice("mla_decode", mla_decode, MLA_DECODE)
        self._write_kv, self._paged_attention = write_kv, paged_attention
        for name, function in (("write_kv", write_kv), ("paged_attention", paged_attention)):
            if function is not None and model.spec.is_mla:
                raise ValueError(f"{name}={function!r}: a model with latent attention has no K and V to give it")

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that one token takes in the cache over all layers: float64 numbers, whatever the model's dtype."""
        return 8 * kv_elems_per_token(self.model.spec)

    def init_kv(self, num_blocks: int, block_size: int, num_swap_blocks: int = 0) -> None:
        """Pools [layers, num_blocks + 1, block_size, ...] of NaN, so that reading what nobody wrote shows."""
        layers, shapes = self.model.spec.num_hidden_layers, kv_arrays(self.model.spec)
        self.block_size = block_size

        def pools(rows: int) -> dict[str, np.ndarray]:
            return {name: np.full((layers, rows, block_size, *shape), np.nan) for name, shape in shapes.items()}

        self.pools, self._host = pools(num_blocks + 1), pools(num_swap_blocks + 1)

    def block(self, block_id: int) -> dict[str, np.ndarray]:
        """{"k": [L, P, K, D], "v": ...} or {"latent": ...}: a copy of one block."""
        return {name: pool[:, block_id].copy() for name, pool in self.pools.items()}

    def apply_ops(self, ops: Sequence[CacheOp]) -> None:
        """Copy blocks of every layer between the pools and the host, in the order given."""
        for kind, src, dst in ops:
            for name, pool in self.pools.items():
                source = self._host[name] if kind == "swap_in" else pool
                target = self._host[name] if kind == "swap_out" else pool
                target[:, dst] = source[:, src]

    def execute(self, batch: BatchInput) -> NumpyStepResult:
        """One forward pass in float64: write new K/V into their slots, attend along the block tables."""
        starts, lengths = batch.query_start_loc.tolist(), batch.context_lens.tolist()

        def attend(layer: int, q: np.ndarray, *new: Any) -> np.ndarray:
            """new: k and v, or the latent and the layer's up-projection, which is not stored."""
            cached = [pool[layer] for pool in self.pools.values()]
            if self._write_kv is not None:
                self._write_kv(*new, *cached, batch.slot_mapping)
            else:
                store(new[: len(cached)], cached, batch.slot_mapping)
            if self._paged_attention is not None:
                return self._one_by_one(q, cached, batch)
            out = []
            for row, (begin, end) in enumerate(pairwise(starts)):
                context = [gather(pool, batch.block_tables[row], lengths[row]) for pool in cached]
                out.append(self._attention(q[begin:end], context, new[-1], lengths[row] - (end - begin)))
            return np.concatenate(out)

        logits = self.model.forward(batch.token_ids, batch.positions, attend, logits_rows=batch.logits_rows)
        return NumpyStepResult(np.asarray(logits))

    def _one_by_one(self, q: np.ndarray, pools: list[np.ndarray], batch: BatchInput) -> np.ndarray:
        """The learner's attention, for each query of each sequence."""
        out, scale, starts = np.empty_like(q), self.model.softmax_scale, batch.query_start_loc.tolist()
        for row, (begin, end) in enumerate(pairwise(starts)):
            for i in range(begin, end):
                length = int(batch.context_lens[row]) - (end - 1 - i)
                out[i] = self._paged_attention(q[i], *pools, batch.block_tables[row], length, scale)  # type: ignore[misc]
        return out

    def _attention(self, q: np.ndarray, context: list[np.ndarray], up: Any, offset: int) -> np.ndarray:
        """The queries of one sequence over its context, as the pools hold it."""
        scale = self.model.softmax_scale
        if self.model.spec.is_mla:
            form = mla_expanded if self.mla_decode == "expanded" else None
            return latent_attention(q, context[0][:, 0], up, scale, offset, form)
        k, v = context
        return causal_attention(q, k, v, scale, offset)
