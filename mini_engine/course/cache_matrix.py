"""Five ways to keep K and V, on the same arrivals and the same memory: what each uses, wastes, copies and computes again.

    rows = compare(chats())
    print(table(rows))

Everything is counted, nothing is timed. In a contiguous memory the branches of a request are requests of their own: the first
computes the prompt, the others copy its K/V while one of them is there. In the engine branches share it. The last token of a
branch is never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from mini_engine import EngineConfig, LLMEngine, SamplingParams
from mini_engine.backends import AuditBackend
from mini_engine.backends.base import BatchInput
from mini_engine.cache.contiguous import BuddyAllocator, ContiguousAllocator, FirstFitAllocator, NoRunError
from mini_engine.course.contiguous_service import ContiguousService

SLOTS, BLOCK, MAX_LEN = 4096, 16, 512


class Ask(NamedTuple):
    """A request that comes before step `step`, and wants `branches` answers of `output` tokens each."""

    request_id: str
    step: int
    prompt: tuple[int, ...]
    output: int
    branches: int = 1


@dataclass
class Row:
    """What one way of keeping K and V came to. Slots are summed over the steps in which somebody is served.

    used:       slots that hold a token, each once, however many branches read it
    reserved, internal, external: as in lesson 06; external: free slots, in steps in which a request waits for more
    copied:     slots whose K and V were moved from one place to another; the engine moves whole blocks
    shared:     the most slots that branches and requests saved at one time by holding the same block
    computed:   tokens that prompts cost, and `needless` of them had been computed before
    """

    name: str
    capacity: int
    used: int = 0
    reserved: int = 0
    internal: int = 0
    external: int = 0
    copied: int = 0
    shared: int = 0
    computed: int = 0
    needless: int = 0
    num_steps: int = 0

    @property
    def taken(self) -> int:
        """Slots taken, used or not."""
        return self.used + self.reserved + self.internal

    @property
    def used_share(self) -> float:
        """Of the slots that were taken, the share that held a token."""
        return self.used / self.taken


def chats(num_users: int = 24, *, system: int = 96, seed: int = 9) -> list[Ask]:
    """Users of one system prompt with a question each, and every third wants four answers to choose from. Made up."""
    draw = Random(seed)
    head = tuple(draw.randrange(64) for _ in range(system))
    asks = []
    for user in range(num_users):
        question = tuple(draw.randrange(64) for _ in range(draw.randrange(8, 72)))
        asks.append(Ask(f"u{user}", 2 * user, head + question, draw.randrange(16, 80), 4 if user % 3 == 2 else 1))
    return asks


def static(asks: Sequence[Ask], max_len: int = MAX_LEN) -> Row:
    """Runs of max_len slots for everybody."""
    return serve_runs("static, max reserved", asks, FirstFitAllocator(SLOTS), "max", max_len)


def compare(asks: Sequence[Ask]) -> list[Row]:
    """The five rows, in order of invention."""
    return [
        static(asks),
        serve_concatenated("dynamic, concatenated", asks),
        serve_runs("buddy, powers of 2", asks, BuddyAllocator(SLOTS), "pow2"),
        serve_paged("paged", asks, prefix_caching=False),
        serve_paged("paged, with prefix cache", asks, prefix_caching=True),
    ]


def table(rows: Iterable[Row]) -> str:
    """The matrix as text, at most 79 columns wide. held: slots that were taken, summed over all steps, in thousands."""
    lines = [
        f"{'':<24}{'used':>7}{'idle':>7}{'outside':>8}{'held':>6}{'steps':>6}{'copied':>8}{'shared':>7}{'again':>6}",
        f"{'':<24}{'% of taken':>14}{'% of all':>9}{'k':>5}{'':>6}{'slots':>8}{'slots':>7}{'tok.':>6}",
    ]
    for row in rows:
        external = row.external / row.capacity / row.num_steps
        lines.append(
            f"{row.name:<24}{row.used_share:7.1%}{1 - row.used_share:7.1%}{external:8.1%}{row.taken / 1000:6.0f}"
            f"{row.num_steps:6}{row.copied:8,}{row.shared:7,}{row.needless:6,}"
        )
    return "\n".join(lines)


def distinct_tokens(prompts: Iterable[Sequence[int]]) -> int:
    """Prompt tokens that differ in themselves or in what comes before: what has to be computed once, at least."""
    return len({tuple(prompt[:end]) for prompt in prompts for end in range(1, len(prompt) + 1)})


def _as_they_come(
    asks: Sequence[Ask], add: Callable[[Ask], object], is_busy: Callable[[], bool], step: Callable[[], object]
) -> None:
    """The arrivals of all five: add each request before its step, and go on until nobody is left."""
    todo = sorted(asks, key=lambda ask: ask.step)[::-1]
    now = 0
    while todo or is_busy():
        while todo and todo[-1].step <= now:
            add(todo.pop())
        step()
        now += 1


def serve_runs(
    name: str, asks: Sequence[Ask], memory: ContiguousAllocator, reserve: str, max_len: int = MAX_LEN
) -> Row:
    """One run for each branch, as long as RESERVATIONS[reserve] says."""
    row = Row(name, memory.capacity)
    service = ContiguousService(memory, reserve, max_len)

    def add(ask: Ask) -> None:
        for branch in range(ask.branches):
            service.add(f"{ask.request_id}.{branch}", len(ask.prompt), ask.output)

    def step() -> None:
        there = {request_id.rpartition(".")[0] for request_id in memory.runs}
        started, refused = service.begin()
        for one in started:
            owner = one.request_id.rpartition(".")[0]
            if owner in there:
                row.copied += one.prompt
            else:
                row.computed += one.prompt
            there.add(owner)
        if memory.runs:
            used, reserved, internal, external, _ = memory.waste(service.waiting[0].size if refused else 1)
            row.num_steps += 1
            row.used += used
            row.reserved += reserved
            row.internal += internal
            row.external += external
        service.end()

    _as_they_come(asks, add, service.is_busy, step)
    row.needless = row.computed - distinct_tokens(ask.prompt for ask in asks)
    return row


class _Scattered(ContiguousAllocator):
    """Arrays anywhere: refused only when all together do not fit. Counts what it copies to append a token."""

    num_copied = 0

    def append(self, request_id: str, n: int = 1) -> None:
        self.num_copied += self.runs[request_id].used
        super().append(request_id, n)

    def holes(self) -> list[tuple[int, int]]:
        taken = sum(run.size for run in self.runs.values())
        return [(taken, self.capacity - taken)] if taken < self.capacity else []

    def _take(self, size: int) -> tuple[int, int]:
        if size > sum(free for _, free in self.holes()):
            raise NoRunError(size, self.holes())
        return 0, size

    def _give_back(self, start: int, size: int) -> None: ...


def serve_concatenated(name: str, asks: Sequence[Ask]) -> Row:
    """An array for each branch, made anew for each token. Admits while the final lengths fit, which nobody knows.

    What an array will grow to is promised to it, so it counts as reserved: nobody else may have it. While it grows, the old
    and the new array of a layer stand side by side for a moment; that is not counted.
    """
    memory = _Scattered(SLOTS)
    row = serve_runs(name, asks, memory, "oracle")
    row.copied += memory.num_copied
    return row


class _Counting(AuditBackend):
    """The audit backend, which raises on K/V of another history, and counts the blocks of each step before it computes."""

    def __init__(self, row: Row) -> None:
        super().__init__(64)
        self.row = row

    def execute(self, batch: BatchInput) -> Any:
        filled: dict[int, int] = {}
        entries = 0
        for blocks, length in zip(batch.block_tables.tolist(), batch.context_lens.tolist()):
            for i in range(-(-length // BLOCK)):
                filled[blocks[i]] = max(filled.get(blocks[i], 0), min(BLOCK, length - i * BLOCK))
                entries += 1
        self.row.num_steps += 1
        self.row.used += sum(filled.values())
        self.row.internal += len(filled) * BLOCK - sum(filled.values())
        self.row.shared = max(self.row.shared, (entries - len(filled)) * BLOCK)
        return super().execute(batch)


def serve_paged(name: str, asks: Sequence[Ask], *, prefix_caching: bool) -> Row:
    """The engine. Every request that runs is in every step, so the step's block tables are all that is held."""
    config = EngineConfig(num_blocks=SLOTS // BLOCK, block_size=BLOCK, enable_prefix_caching=prefix_caching)
    row = Row(name, SLOTS)
    engine = LLMEngine(config, _Counting(row))

    def add(ask: Ask) -> None:
        params = SamplingParams(n=ask.branches, max_tokens=ask.output, ignore_eos=True, seed=1)
        engine.add_request(ask.request_id, ask.prompt, params)

    def step() -> None:
        engine.step()
        now = engine.stats()
        row.external += now.num_free_blocks * BLOCK if now.num_waiting else 0

    _as_they_come(asks, add, engine.has_unfinished_requests, step)
    stats = engine.stats()
    row.copied, row.computed = stats.num_copied_blocks * BLOCK, stats.num_prefill_tokens
    row.needless = row.computed - distinct_tokens(ask.prompt for ask in asks)
    return row
