"""Paged attention in torch: what one batch must read, worked out once a step and then used by every layer.

Two kinds of rows need two kinds of work. A prefill chunk has many queries, so its own products dominate. A decode row has
one query and is bound by memory: what counts is how many bytes are moved. So decode rows are sorted by length and cut into
groups small enough that the blocks gathered for one group are still in the processor's cache when they are read; a group is
padded to its own longest row, never to the longest of the batch. Blocks that lie side by side in the pool are not gathered
at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from mini_engine.backends.base import BatchInput

GROUP_TOKENS = 4096  # K and V of this many tokens: about 3 MB each for 3 KV heads of 64 in fp32
GROUP_PADDING = 1.25  # a group's longest row has at most this many times the blocks of its shortest


@dataclass(frozen=True)
class Gather:
    """Where the K/V of some rows lie: `blocks` [b, M] of the pool, and which of the gathered slots are nobody's."""

    blocks: torch.Tensor  # [b * M] int64
    run: slice | None  # the same blocks as one slice of the pool, when they are consecutive
    shape: tuple[int, int]  # b, M
    dead: torch.Tensor  # gathered slots past each row's context, in its last block or in padding

    def read(self, pool: torch.Tensor, scratch: torch.Tensor) -> torch.Tensor:
        """[b, K, M * P, D] out of pool [N, P, K, D]. Dead slots read as zero: whatever they hold must not reach a sum."""
        b, M = self.shape
        _, P, K, D = pool.shape
        if self.run is not None and not len(self.dead):
            found = pool[self.run]
        else:
            found = scratch[: b * M]
            torch.index_select(pool, 0, self.blocks, out=found)
            found.view(b * M * P, K, D).index_fill_(0, self.dead, 0)
        return found.view(b, M * P, K, D).transpose(1, 2)


@dataclass(frozen=True)
class DecodeGroup:
    """Sequences with one new token each, attended to together."""

    rows: torch.Tensor  # [b] tokens of the batch, one per sequence
    gather: Gather
    mask: torch.Tensor | None  # [b, 1, 1, M * P] True where the row may look; None when it may look everywhere


@dataclass(frozen=True)
class PrefillChunk:
    """Some new tokens of one sequence, and where the rest of its context lies."""

    tokens: slice  # of the batch
    gather: Gather | None  # None: the chunk is the whole context, so its keys are the ones just computed
    mask: torch.Tensor | None  # [T, M * P]


class AttentionPlan:
    """The reads of one batch. Building it looks at block tables and lengths only; `attend` does the work of one layer."""

    def __init__(self, batch: BatchInput, block_size: int, device: torch.device) -> None:
        self.block_size, self.device = block_size, device
        starts, lengths = batch.query_start_loc, batch.context_lens
        num_queries = np.diff(starts)
        self.chunks = [
            self._chunk(slice(int(starts[r]), int(starts[r + 1])), int(lengths[r]), batch.block_tables[r])
            for r in np.flatnonzero(num_queries > 1)
        ]
        self.groups = self._groups(batch, np.flatnonzero(num_queries == 1))
        gathers = [group.gather for group in self.groups] + [c.gather for c in self.chunks if c.gather is not None]
        self.scratch_blocks = max((g.shape[0] * g.shape[1] for g in gathers), default=0)

    def _groups(self, batch: BatchInput, decodes: np.ndarray) -> list[DecodeGroup]:
        """The decode rows of the batch, sorted by length and cut."""
        starts, lengths = batch.query_start_loc, batch.context_lens
        by_length = decodes[np.argsort(lengths[decodes], kind="stable")]
        return [
            self._group(starts[rows], lengths[rows], batch.block_tables[rows])
            for rows in np.split(by_length, self._cuts(-(-lengths[by_length] // self.block_size)))
            if len(rows)
        ]

    def _cuts(self, num_blocks: np.ndarray) -> list[int]:
        """Where to cut rows sorted by length into groups."""
        cuts, first = [], 0
        for i, blocks in enumerate(num_blocks.tolist()):
            too_long = blocks > GROUP_PADDING * num_blocks[first] + 1
            if i > first and (too_long or (i - first + 1) * blocks * self.block_size > GROUP_TOKENS):
                cuts.append(i)
                first = i
        return cuts

    def _gather(self, tables: np.ndarray, lengths: np.ndarray) -> tuple[Gather, np.ndarray]:
        """The reads of some rows, and [b, M * P] True where a slot belongs to its row."""
        M = int(-(-lengths.max() // self.block_size))
        blocks = tables[:, :M].astype(np.int64)
        live = np.arange(M * self.block_size) < lengths[:, None]
        # A table's tail may hold anything; only the blocks that the context needs are looked up.
        blocks[~live[:, :: self.block_size]] = 0
        flat = blocks.ravel()
        run = slice(int(flat[0]), int(flat[-1]) + 1) if len(tables) == 1 and (np.diff(flat) == 1).all() else None
        gather = Gather(self._tensor(flat), run, blocks.shape, self._tensor(np.flatnonzero(~live)))
        return gather, live

    def _group(self, tokens: np.ndarray, lengths: np.ndarray, tables: np.ndarray) -> DecodeGroup:
        gather, live = self._gather(tables, lengths)
        mask = None if live.all() else self._tensor(live)[:, None, None]
        return DecodeGroup(self._tensor(tokens.astype(np.int64)), gather, mask)

    def _chunk(self, tokens: slice, length: int, table: np.ndarray) -> PrefillChunk:
        num_queries = tokens.stop - tokens.start
        if num_queries == length:
            return PrefillChunk(tokens, None, None)
        gather, live = self._gather(table[None], np.array([length]))
        query_positions = np.arange(length - num_queries, length)
        return PrefillChunk(tokens, gather, self._tensor(np.arange(live.shape[1]) <= query_positions[:, None]))

    def attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        read: Callable[[Gather], list[torch.Tensor]],
        scale: float,
    ) -> torch.Tensor:
        """q[T, H, D], k and v[T, K, D] just computed (and in the pools already) -> [T, H, D].

        `read(gather)` gives the keys and values [b, K, S, D] of this layer that `gather` describes, good until the next call.
        """
        H, K, D = q.shape[1], k.shape[1], q.shape[2]
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for chunk in self.chunks:
            queries = q[chunk.tokens].transpose(0, 1)[None]
            if chunk.gather is None:
                keys, values = (x[chunk.tokens].transpose(0, 1)[None] for x in (k, v))
            else:
                keys, values = read(chunk.gather)
            attended = F.scaled_dot_product_attention(
                queries,
                keys,
                values,
                attn_mask=chunk.mask,
                is_causal=chunk.mask is None,
                scale=scale,
                enable_gqa=H != K,
            )
            out[chunk.tokens] = attended[0].transpose(0, 1)
        for group in self.groups:
            keys, values = read(group.gather)
            # The H/K query heads that share a KV head stand where several queries would: no key is read or copied twice.
            queries = q[group.rows].view(-1, K, H // K, D)
            attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=group.mask, scale=scale)
            out[group.rows] = attended.reshape(-1, H, D)
        return out

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, non_blocking=True)
