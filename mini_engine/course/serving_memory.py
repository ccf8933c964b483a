"""One memory, one queue of requests, several ways to hand out slots: how much of the memory holds tokens?

The experiment behind figure 2 of the vLLM paper, on any lengths. All requests wait from the start, first come, first served:
a prompt takes one step, each further token another. Only steps in which somebody still waits are counted, for only then is a
slot that holds nothing missed. As in the engine, the last token of a request is never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mini_engine.cache.contiguous import ContiguousAllocator, Hole, Run, count_waste
from mini_engine.course.contiguous_service import ContiguousService
from mini_engine.geometry import FragBreakdown, frag_breakdown

Lengths = Sequence[tuple[int, int]]
Counter = Callable[[list[Run], list[Hole], int], tuple[int, int, int, int]]


class Served(NamedTuple):
    """Slots summed over `num_steps` steps; divided by their sum they are the shares of the memory.

    rounding: slots of a run beyond what was asked for, as a buddy allocator adds them. external holds them too, as in the paper.
    """

    used: int
    reserved: int
    internal: int
    external: int
    rounding: int
    num_running: int
    num_steps: int

    @property
    def shares(self) -> FragBreakdown:
        """The four shares of memory, averaged over the steps."""
        return frag_breakdown(self.used, self.reserved, self.internal, self.external)

    @property
    def rounding_share(self) -> float:
        """The part of the external share that is rounding."""
        return self.rounding / (self.used + self.reserved + self.internal + self.external)

    @property
    def running(self) -> float:
        """Requests that run at a time, on average."""
        return self.num_running / self.num_steps


def serve(
    lengths: Lengths, memory: Any, *, reserve: str = "max", max_len: int = 8192, count: Counter = count_waste
) -> Served:
    """Serve requests of (prompt, output) tokens out of `memory`: a ContiguousAllocator, or an LLMEngine.

    reserve, max_len: how long a run is made, see RESERVATIONS. count: who counts the slots of a contiguous memory.
    ValueError for a request that cannot fit into an empty memory, and for counts that do not add up to the capacity.
    """
    if not isinstance(memory, ContiguousAllocator):
        return _serve_paged(lengths, memory)
    service = ContiguousService(memory, reserve, max_len)
    for number, (prompt, output) in enumerate(lengths):
        service.add(str(number), prompt, output)
    asked = {one.request_id: one.size for one in service.waiting}
    totals, num_running, num_steps = [0] * 5, 0, 0
    while service.waiting:
        service.begin()
        if service.waiting:
            runs, holes = list(memory.runs.values()), memory.holes()
            used, reserved, internal, external = count(runs, holes, service.waiting[0].size)
            if used + reserved + internal + external != memory.capacity:
                told = f"used {used}, reserved {reserved}, internal {internal}, external {external}"
                raise ValueError(f"{told}: while a request waits, these must add up to {memory.capacity} slots")
            rounding = sum(run.size - asked[run.request_id] for run in runs)
            now = (used, reserved, internal - rounding, external + rounding, rounding)
            totals = [total + new for total, new in zip(totals, now)]
            num_running, num_steps = num_running + len(runs), num_steps + 1
        service.end()
    used, reserved, internal, external, rounding = totals
    return Served(used, reserved, internal, external, rounding, num_running, num_steps)


def _serve_paged(lengths: Lengths, engine: Any) -> Served:
    """The same with the paged engine: made-up prompts that share no prefix."""
    from mini_engine.sampling import SamplingParams

    for number, (prompt, output) in enumerate(lengths):
        params = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True)
        engine.add_request(str(number), [(number + i) % engine.backend.vocab_size for i in range(prompt)], params)
    size, capacity = engine.config.block_size, engine.config.num_blocks * engine.config.block_size
    used = in_blocks = num_running = num_steps = 0
    while engine.has_unfinished_requests():
        engine.step()
        stats = engine.stats()
        if not stats.num_waiting:
            continue
        used += sum(sequence.num_computed_tokens for sequence in engine.scheduler.running)
        in_blocks += capacity - stats.num_free_blocks * size
        num_running, num_steps = num_running + stats.num_running, num_steps + 1
    return Served(used, 0, in_blocks - used, capacity * num_steps - in_blocks, 0, num_running, num_steps)


class NoModel:
    """A backend that computes nothing and keeps nothing: for counting slots, which is done above it."""

    vocab_size, eos_token_ids, max_model_len = 64, (), 1 << 20

    def init_kv(self, num_blocks: int, block_size: int, num_swap_blocks: int = 0) -> None:
        """Nothing is kept."""

    def apply_ops(self, ops: Sequence[Any]) -> None:
        """Nothing is moved."""

    def execute(self, batch: Any) -> NoModel:
        """Remember how many rows want an answer."""
        self._rows = len(batch.logits_rows)
        return self

    def argmax(self) -> np.ndarray:
        """Token 0 for every row."""
        return np.zeros(self._rows, dtype=np.int64)

    def logits(self, row: int) -> np.ndarray:
        """Zeros [V]."""
        return np.zeros(self.vocab_size)

    def block(self, block_id: int) -> None:
        """Nothing is in it."""
