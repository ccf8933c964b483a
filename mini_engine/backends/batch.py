"""From a plan to arrays: `BatchBuilder` makes the `BatchInput` of a step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mini_engine.backends.base import BatchInput
from mini_engine.scheduling.plan import StepPlan
from mini_engine.scheduling.request import Request


class BatchBuilder:
    """Keeps the block tables of running sequences in one array, so that a decode of a long context costs no more.

    From start to preemption a sequence's table changes only from the block on that its chunk begins in; each start has
    a new table. Whoever is finished must be forgotten, as another may come under its name.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.clear()

    def clear(self) -> None:
        """Forget everybody."""
        self._tables = np.zeros((0, 1), dtype=np.int32)
        self._rows: dict[tuple[str, int], tuple[int, int]] = {}  # row, and the start it belongs to
        self._unused: list[int] = []

    def forget(self, key: tuple[str, int]) -> None:
        """Drop the table of a sequence."""
        row, _ = self._rows.pop(key, (None, 0))
        if row is not None:
            self._tables[row] = 0  # whoever gets the row next finds a tail of null blocks
            self._unused.append(row)

    def build(self, plan: StepPlan, requests: Mapping[tuple[str, int], Request]) -> BatchInput:
        """The batch of a plan's chunks, one row each, in their order. Logits for those that reach their last token."""
        size = self._block_size
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        rows, lengths, starts, logits_rows = [], [], [0], []
        widest = 1
        for chunk in plan.chunks:
            request = requests[chunk.request_id, chunk.index]
            start, end = chunk.start, chunk.start + chunk.num_tokens
            table = request.block_table
            if chunk.num_tokens == 1:
                token_ids.append(request.token_ids[start])
                positions.append(start)
                slots.append(table[start // size] * size + start % size)
            else:
                token_ids += request.token_ids[start:end]
                positions += range(start, end)
                slots += [table[at // size] * size + at % size for at in range(start, end)]
            if end == len(request.token_ids):
                logits_rows.append(len(token_ids) - 1)
            starts.append(len(token_ids))
            lengths.append(end)
            num_blocks = -(-end // size)
            widest = max(widest, num_blocks)
            rows.append(self._keep(request, start // size, num_blocks))
        return BatchInput(
            token_ids=np.array(token_ids, dtype=np.int64),
            positions=np.array(positions, dtype=np.int64),
            slot_mapping=np.array(slots, dtype=np.int64),
            block_tables=self._tables[rows, :widest],  # a copy: fancy indexing makes one
            context_lens=np.array(lengths, dtype=np.int32),
            query_start_loc=np.array(starts, dtype=np.int32),
            logits_rows=np.array(logits_rows, dtype=np.int64),
        )

    def _keep(self, request: Request, first: int, num_blocks: int) -> int:
        """Bring a sequence's row up to date from block `first` on, all of it after a new start; returns the row."""
        row, start = self._rows.get(request.key, (-1, 0))
        if start != request.num_starts:
            self.forget(request.key)
            if not self._unused:
                self._grow(rows=max(8, len(self._tables)))
            row, first = self._unused.pop(), 0
            self._rows[request.key] = (row, request.num_starts)
        if num_blocks > self._tables.shape[1]:
            self._grow(columns=2 * num_blocks - self._tables.shape[1])
        self._tables[row, first:num_blocks] = request.block_table[first:num_blocks]
        return row

    def _grow(self, rows: int = 0, columns: int = 0) -> None:
        self._unused += range(len(self._tables), len(self._tables) + rows)
        self._tables = np.pad(self._tables, ((0, rows), (0, columns)))
