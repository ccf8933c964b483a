"""`AuditBackend`: a model whose K/V are three integers, so that every bug above it is an exact failure.

A slot holds the token, its position, and the writer: a fingerprint of the whole history that the writer had behind that
token, as a real K/V depends on everything before it. Each step reads every history back through the block tables. A slot
that was lost, overwritten, copied too late or taken from another history cannot hide, and since the logits are a hash of
the history, a wrong history also speaks wrongly. No float decides anything: batching, chunking, caching and preemption
must leave the output identical, to the last token.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mini_engine.backends.base import BatchInput, NumpyStepResult
from mini_engine.cache import CacheOp

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


class Slot(NamedTuple):
    """What the K/V of one token is made of here."""

    token: int
    position: int
    writer: int


class KVCorruption(AssertionError):
    """The pool does not hold what the block tables say it holds."""


def fingerprint(history: int, token: int) -> int:
    """The fingerprint of `history` followed by `token`: one round of splitmix64 (Steele, Lea and Flood, 2014)."""
    x = ((history ^ token) + _GOLDEN) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


class AuditBackend:
    """A backend that remembers who wrote each slot and refuses to read anything else. Raises KVCorruption."""

    def __init__(
        self, vocab_size: int = 64, *, seed: int = 0, eos_token_ids: tuple[int, ...] = (), max_model_len: int = 1 << 20
    ) -> None:
        self.vocab_size = vocab_size
        self.eos_token_ids = eos_token_ids
        self.max_model_len = max_model_len
        self._root = fingerprint(0, seed)
        self._token_keys = np.arange(1, vocab_size + 1, dtype=np.uint64) * np.uint64(_GOLDEN)

    def init_kv(self, num_blocks: int, block_size: int, num_swap_blocks: int = 0) -> None:
        """Pools of empty slots: num_blocks + 1 blocks here, num_swap_blocks + 1 on the host."""
        self.block_size = block_size
        self._pool: list[list[Slot | None]] = [[None] * block_size for _ in range(num_blocks + 1)]
        self._swap: list[list[Slot | None]] = [[None] * block_size for _ in range(num_swap_blocks + 1)]

    def block(self, block_id: int) -> list[Slot | None]:
        """The slots of a block: what each holds, or None."""
        return list(self._pool[block_id])

    def apply_ops(self, ops: Sequence[CacheOp]) -> None:
        """Copy whole blocks, in the order given."""
        for op in ops:
            source = self._swap if op.kind == "swap_in" else self._pool
            target = self._swap if op.kind == "swap_out" else self._pool
            target[op.dst] = list(source[op.src])

    def execute(self, batch: BatchInput) -> NumpyStepResult:
        """Write the slots of every new token and read every history. KVCorruption for anything that does not belong there."""
        size = self.block_size
        starts = batch.query_start_loc.tolist()
        tokens, positions, slots = batch.token_ids.tolist(), batch.positions.tolist(), batch.slot_mapping.tolist()
        tables, lengths = batch.block_tables.tolist(), batch.context_lens.tolist()

        # Every history is read once before this step writes, and once more after: a write into another's history shows.
        writers: list[int] = []
        for row, (begin, end) in enumerate(pairwise(starts)):
            history = self._read(row, tables[row], lengths[row] - (end - begin))
            for token in tokens[begin:end]:
                history = fingerprint(history, token)
                writers.append(history)

        written: set[int] = set()
        for token, position, slot, writer in zip(tokens, positions, slots, writers):
            if slot < 0:
                continue
            if slot in written:
                raise KVCorruption(f"slot {slot} of block {slot // size} is written twice in one step")
            if slot < size:
                raise KVCorruption(f"slot {slot} lies in the null block: nothing may be written there")
            written.add(slot)
            self._pool[slot // size][slot % size] = Slot(token, position, writer)

        for row, end in enumerate(starts[1:]):
            found = self._read(row, tables[row], lengths[row])
            if end > starts[row] and found != writers[end - 1]:
                raise KVCorruption(f"row {row}: its {lengths[row]} tokens are not the history it was planned with")
        return NumpyStepResult(self._logits([writers[at] for at in batch.logits_rows.tolist()]))

    def history(self, block_table: Sequence[int], num_tokens: int) -> list[int]:
        """The tokens that a block table leads to, verified as in a step."""
        self._read(0, block_table, num_tokens)
        size = self.block_size
        slots = (self._pool[block_table[at // size]][at % size] for at in range(num_tokens))
        return [slot.token for slot in slots if slot is not None]

    def logits_after(self, token_ids: Sequence[int]) -> np.ndarray:
        """Logits [V] behind a history of tokens, without any cache: the truth to compare with."""
        history = self._root
        for token in token_ids:
            history = fingerprint(history, token)
        return self._logits([history])[0]

    def _read(self, row: int, table: Sequence[int], num_tokens: int) -> int:
        """Fingerprint of the first `num_tokens` tokens behind `table`; KVCorruption where a slot is not its own."""
        size, history = self.block_size, self._root
        for position in range(num_tokens):
            block_id = table[position // size]
            slot = self._pool[block_id][position % size]
            if slot is None:
                raise KVCorruption(f"row {row}, position {position}: block {block_id} holds nothing there")
            history = fingerprint(history, slot.token)
            if slot.position != position or slot.writer != history:
                expected = Slot(slot.token, position, history)
                raise KVCorruption(
                    f"row {row}, position {position}, block {block_id}: expected {expected}, found {slot}"
                )
        return history

    def _logits(self, histories: list[int]) -> np.ndarray:
        """A float in [0, 8) for every history and token, from the hash of both."""
        x = np.array(histories, dtype=np.uint64).reshape(-1, 1) ^ self._token_keys
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (x ^ (x >> np.uint64(31))).astype(np.float64) * (8.0 / 2.0**64)
