"""What a backend is: something that holds a paged K/V pool and runs one batch at a time.

The engine above deals in integers only. Everything a forward pass needs to know reaches it in one `BatchInput`, so the same
scheduler drives exact integers (audit), NumPy, torch, Triton and a simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mini_engine.cache import CacheOp
from mini_engine.sampling import check_peak


@dataclass(frozen=True, slots=True)
class BatchInput:
    """One step's batch: R sequences, T new tokens, tables padded to M blocks with the null block.

    token_ids, positions [T] int64; slot_mapping [T] int64: block id * block_size + offset, -1 writes nothing
    block_tables [R, M] int32; context_lens [R] int32: tokens of each sequence, this step's included
    query_start_loc [R + 1] int32: row r owns tokens query_start_loc[r] to query_start_loc[r + 1]
    logits_rows: indices into T whose logits are wanted
    """

    token_ids: np.ndarray
    positions: np.ndarray
    slot_mapping: np.ndarray
    block_tables: np.ndarray
    context_lens: np.ndarray
    query_start_loc: np.ndarray
    logits_rows: np.ndarray

    @property
    def num_seqs(self) -> int:
        """R."""
        return len(self.context_lens)


class StepResult(Protocol):
    """The logits of one step, left where they are until somebody asks."""

    def argmax(self) -> np.ndarray:
        """Greedy tokens, one per entry of `logits_rows`, in that order; int64. ValueError where the largest logit is NaN."""

    def logits(self, row: int) -> np.ndarray:
        """Logits [V] of entry `row` of `logits_rows`, as NumPy floats."""


class Backend(Protocol):
    """A model with a paged K/V pool. Nothing above this line sees a tensor."""

    vocab_size: int
    eos_token_ids: tuple[int, ...]
    max_model_len: int

    def init_kv(self, num_blocks: int, block_size: int, num_swap_blocks: int = 0) -> None:
        """Make pools of num_blocks + 1 rows (row 0 is the null block) and num_swap_blocks + 1 of host memory (row 0 unused)."""

    def apply_ops(self, ops: Sequence[CacheOp]) -> None:
        """Run copy, swap_out and swap_in in the order given; the forward pass comes after."""

    def execute(self, batch: BatchInput) -> StepResult:
        """One forward pass. Every new K/V of a layer is stored before any attention of that layer reads."""

    def block(self, block_id: int) -> Any:
        """What a block holds: arrays, or for the audit backend a list of slots."""


def check_peaks(values: np.ndarray, tokens: np.ndarray) -> None:
    """ValueError unless every row's largest logit, values[R] at tokens[R], is finite: greedy text would go on as nonsense."""
    for row in np.flatnonzero(~np.isfinite(values))[:1]:
        check_peak(float(values[row]), int(tokens[row]))


@dataclass(frozen=True, slots=True)
class NumpyStepResult:
    """A StepResult over an array [R, V] that is already in memory."""

    array: np.ndarray

    def argmax(self) -> np.ndarray:
        """Greedy tokens [rows], int64. ValueError where the largest logit is NaN."""
        tokens = self.array.argmax(axis=-1)  # NaN counts as the largest here
        check_peaks(np.take_along_axis(self.array, tokens[:, None], axis=-1)[:, 0], tokens)
        return tokens

    def logits(self, row: int) -> np.ndarray:
        """Logits [V] of one row."""
        return self.array[row]
