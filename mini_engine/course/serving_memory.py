"""One memory, one queue of requests, several ways to hand out slots: how much of the memory holds tokens?

The experiment behind figure 2 of the vLLM paper, on any lengths. All requests wait from the start, first come, first served:
a prompt takes one step, each further token another. Only steps in which somebody still waits are counted, for only then is a
slot that holds nothing missed. As in the engine, the last token of a request is never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mini_engine.cache.contiguous import RESERVATIONS, ContiguousAllocator, NoRunError, Run
from mini_engine.geometry import FragBreakdown, frag_breakdown

Lengths = Sequence[tuple[int, int]]
Hole = tuple[int, int]
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
        return frag_breakdown(self.used, self.reserved, self.internal, self.external)

    @property
    def running(self) -> float:
        """Requests that run at a time, on average."""
        return self.num_running / self.num_steps


def count_waste(runs: Iterable[Run], holes: Iterable[Hole], next_size: int) -> tuple[int, int, int, int]:
    """Slots (used, reserved, internal, external) of a contiguous memory: `Waste` without what is free."""
    used = reserved = internal = 0
    for run in runs:
        used += run.used
        reserved += run.final - run.used
        internal += run.size - run.final
    return used, reserved, internal, sum(size for _, size in holes if size < next_size)


def serve(
    lengths: Lengths, memory: Any, *, reserve: str = "max", max_len: int = 8192, count: Counter = count_waste
) -> Served:
    """Serve requests of (prompt, output) tokens out of `memory`: a ContiguousAllocator, or an LLMEngine.

    reserve, max_len: how long a run is made, see RESERVATIONS. count: who counts the slots of a contiguous memory.
    ValueError for a request that cannot fit into an empty memory.
    """
    if not isinstance(memory, ContiguousAllocator):
        return _serve_paged(lengths, memory)
    waiting = [
        (
            str(number),
            prompt,
            prompt + output - 1,
            max(prompt + output - 1, RESERVATIONS[reserve](prompt, output, max_len)),
        )
        for number, (prompt, output) in enumerate(lengths)
    ]
    waiting.reverse()
    asked: dict[str, int] = {}
    totals, num_running, num_steps = [0] * 5, 0, 0
    while waiting:
        for request_id, run in list(memory.runs.items()):
            if run.used == run.final:
                memory.free(request_id)
            else:
                memory.append(request_id)
        while waiting:
            request_id, prompt, stored, size = waiting[-1]
            try:
                memory.allocate(request_id, prompt, reserve=size, final=stored)
            except NoRunError as error:
                if not memory.runs:
                    raise ValueError(f"request {request_id} can never run: {error}") from error
                break
            asked[request_id] = size
            waiting.pop()
        if waiting:
            runs, holes = list(memory.runs.values()), memory.holes()
            needed = waiting[-1][3]
            rounding = sum(run.size - asked[run.request_id] for run in runs)
            used, reserved, internal, external = count(runs, holes, needed)
            now = (
                used,
                reserved,
                internal - rounding,
                memory.capacity - used - reserved - internal + rounding,
                rounding,
            )
            if external > memory.capacity - used - reserved - internal:
                raise ValueError(f"{external} slots counted as external, more than are free")
            totals = [total + new for total, new in zip(totals, now)]
            num_running, num_steps = num_running + len(runs), num_steps + 1
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

    def init_kv(self, num_blocks: int, block_size: int, num_swap_blocks: int = 0) -> None: ...

    def apply_ops(self, ops: Sequence[Any]) -> None: ...

    def execute(self, batch: Any) -> NoModel:
        self._rows = len(batch.logits_rows)
        return self

    def argmax(self) -> np.ndarray:
        return np.zeros(self._rows, dtype=np.int64)

    def logits(self, row: int) -> np.ndarray:
        return np.zeros(self.vocab_size)

    def block(self, block_id: int) -> None: ...
