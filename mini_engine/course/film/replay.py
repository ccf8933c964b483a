"""`replay`: the same arrivals served by an old allocator or by the paged engine, step by step, and the film of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from mini_engine.cache.contiguous import RESERVATIONS, ContiguousAllocator, NoRunError

Event = dict[str, Any]


class Arrival(NamedTuple):
    """A request that comes before step `step` with `prompt` tokens and will be given `output` more."""

    request_id: str
    step: int
    prompt: int
    output: int


def replay(
    arrivals: Iterable[Arrival], memory: Any, *, reserve: str = "max", max_len: int = 0, cell: int = 16
) -> list[Event]:
    """The film of serving `arrivals`, first come, first served: a prompt in one step, then one token a step.

    memory: a ContiguousAllocator, whose runs are made as long as RESERVATIONS[reserve] says (max_len: the longest a
    request may get), drawn `cell` slots to a cell; or an LLMEngine made with record=True. As in the engine, the last
    token of a request is never stored. ValueError for a request that cannot fit into an empty memory.
    """
    service = _Service(memory, reserve, max_len, cell) if isinstance(memory, ContiguousAllocator) else _Engine(memory)
    todo = sorted(arrivals, key=lambda arrival: arrival.step)
    step = 0
    while todo or service.is_busy():
        while todo and todo[0].step <= step:
            service.add(todo.pop(0), step)
        service.step(step)
        step += 1
    return service.events


class _Engine:
    """The paged engine: made-up prompts that share no prefix, greedy tokens."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.number = 0
        self.is_busy = engine.has_unfinished_requests

    @property
    def events(self) -> list[Event]:
        return self.engine.film

    def add(self, arrival: Arrival, step: int) -> None:
        from mini_engine.sampling import SamplingParams

        self.number += 1
        vocab_size = self.engine.backend.vocab_size
        tokens = [self.number // vocab_size ** (i % 3) % vocab_size for i in range(arrival.prompt)]
        params = SamplingParams(temperature=0, max_tokens=arrival.output, ignore_eos=True)
        self.engine.add_request(arrival.request_id, tokens, params)

    def step(self, step: int) -> None:
        self.engine.step()


class _Service:
    """What an engine over a contiguous allocator would do."""

    def __init__(self, memory: ContiguousAllocator, reserve: str, max_len: int, cell: int) -> None:
        self.memory = memory
        self.reserve, self.max_len = RESERVATIONS[reserve], max_len or memory.capacity
        self.waiting: list[Arrival] = []
        self.left: dict[str, int] = {}  # tokens still to be sampled
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(memory).__name__.removesuffix("Allocator")).lower()
        head = {"title": f"{name}, reserving {reserve}", "capacity": memory.capacity, "cell": cell}
        self.events: list[Event] = [{"kind": "memory", "step": 0, **head}]

    def is_busy(self) -> bool:
        return bool(self.waiting or self.left)

    def add(self, arrival: Arrival, step: int) -> None:
        self.waiting.append(arrival)
        self.events.append({"kind": "add", "step": step, "request_id": arrival.request_id, "prompt": arrival.prompt})

    def step(self, step: int) -> None:
        wrote = dict.fromkeys(self.left, 1)
        for request_id in self.left:
            self.memory.append(request_id)
        started, refused = self._admit()
        wrote |= {arrival.request_id: arrival.prompt for arrival in started}
        runs = {arrival.request_id: self.memory.runs[arrival.request_id] for arrival in started}
        read = sum(run.used for run in self.memory.runs.values())
        finished = self._sample()
        self.events.append(
            {
                "kind": "step",
                "step": step,
                "started": {request_id: [run.start, run.size] for request_id, run in runs.items()},
                "refused": refused,
                "wrote": wrote,
                "read": read,
                "finished": finished,
                "waiting": [arrival.request_id for arrival in self.waiting],
                "map": [list(part) for part in self.memory.memory_map()],
            }
        )

    def _admit(self) -> tuple[list[Arrival], Event | None]:
        """Give runs to those that wait until one does not fit: who started, and what the one lacked."""
        started: list[Arrival] = []
        while self.waiting:
            first = self.waiting[0]
            stored = first.prompt + first.output - 1
            size = max(stored, self.reserve(first.prompt, first.output, self.max_len))
            try:
                self.memory.allocate(first.request_id, first.prompt, reserve=size, final=stored)
            except NoRunError as error:
                if not self.memory.runs:
                    raise ValueError(f"request {first.request_id!r} can never run: {error}") from error
                lack = {"needed": error.needed, "free": error.free, "largest": error.largest}
                return started, {"request_id": first.request_id, **lack}
            started.append(self.waiting.pop(0))
            self.left[first.request_id] = first.output
        return started, None

    def _sample(self) -> list[str]:
        """A token for everybody; who has got its last one gives up its run."""
        self.left = {request_id: n - 1 for request_id, n in self.left.items()}
        finished = [request_id for request_id, n in self.left.items() if not n]
        for request_id in finished:
            del self.left[request_id]
            self.memory.free(request_id)
        return finished
