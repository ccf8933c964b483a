"""`SimulatedBackend`: no model and no K/V, only a clock that moves on by what each step would take on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mini_engine.backends.base import BatchInput
from mini_engine.backends.step_cost import StepCost, longest_sequence
from mini_engine.cache import CacheOp
from mini_engine.catalog import GPUSpec, ModelSpec
from mini_engine.scheduling import Chunk

TOKEN = 0  # what every sequence goes on with


class SimulatedBackend:
    """Any model of the catalogue on any GPU of it. Steps take no time here; `now` says when they would have ended.

    Behind an engine, `LLMEngine(config, backend, clock=backend.clock)` runs on the same virtual clock. Every token is the
    same one and no token ends a sequence, so sequences end by their `max_tokens`. Options are those of `StepCost`.
    """

    eos_token_ids: tuple[int, ...] = ()

    def __init__(self, spec: ModelSpec, gpu: GPUSpec, **options: Any) -> None:
        self.cost = StepCost(spec, gpu, **options)
        self.vocab_size = spec.vocab_size
        self.max_model_len = longest_sequence(spec)
        self.kv_bytes_per_token = self.cost.kv_bytes_per_token
        self.block_size = 1
        self.now = 0.0  # seconds on the virtual clock
        self.busy_seconds = self.move_seconds = 0.0  # of them in steps, and of those moving blocks
        self.flops = 0  # on all GPUs together
        self.bytes_read = 0.0  # on one GPU

    def clock(self) -> float:
        """Virtual seconds: the engine reads this where it would read the time."""
        return self.now

    def wait_until(self, time: float) -> None:
        """Idle until `time`; time never runs backwards."""
        self.now = max(self.now, time)

    def step(self, chunks: Sequence[Chunk], num_logits: int, ops: Sequence[CacheOp] = ()) -> None:
        """What the engine does by `apply_ops` and `execute`, without making arrays for it."""
        if ops:
            self.apply_ops(ops)
        if chunks:
            self._pass(self.step_seconds(chunks, num_logits))

    def step_seconds(self, chunks: Sequence[Chunk], num_logits: int) -> float:
        """Time of one forward pass. Override it to simulate another machine."""
        work = self.cost.work(chunks, num_logits)
        self.flops += work.flops
        self.bytes_read += work.bytes
        return self.cost.seconds(work, len(chunks))

    # -- what the engine asks of a backend -----------------------------------------------------------------------------

    def init_kv(self, num_blocks: int, block_size: int, num_swap_blocks: int = 0) -> None:
        """Only the block size matters: nothing is kept."""
        self.block_size = block_size

    def apply_ops(self, ops: Sequence[CacheOp]) -> None:
        """Let the time pass that moving these blocks takes."""
        seconds = self.cost.move_seconds(ops, self.block_size)
        self.move_seconds += seconds
        self._pass(seconds)

    def execute(self, batch: BatchInput) -> SimulatedResult:
        """Let the time pass that this step takes, and answer every row with one and the same token."""
        starts = batch.query_start_loc.tolist()
        sizes = [end - begin for begin, end in pairwise(starts)]
        chunks = [Chunk("", 0, end - n, n) for end, n in zip(batch.context_lens.tolist(), sizes)]
        self.step(chunks, len(batch.logits_rows))
        return SimulatedResult(len(batch.logits_rows), self.vocab_size)

    def block(self, block_id: int) -> tuple[()]:
        """Nothing is kept, so a block holds nothing."""
        return ()  # nothing is kept

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        self.busy_seconds += seconds


@dataclass(frozen=True, slots=True)
class SimulatedResult:
    """Logits that all say the same."""

    num_rows: int
    vocab_size: int

    def argmax(self) -> np.ndarray:
        """The same token for every row, int64 [rows]."""
        return np.full(self.num_rows, TOKEN, dtype=np.int64)

    def logits(self, row: int) -> np.ndarray:
        """Logits [V] that leave no doubt at any temperature in use."""
        logits = np.zeros(self.vocab_size, dtype=np.float32)
        logits[TOKEN] = 100.0  # sampled at any temperature in use
        return logits
