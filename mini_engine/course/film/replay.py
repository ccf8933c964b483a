"""`replay`: the same arrivals served by an old allocator or by the paged engine, step by step, and the film of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from mini_engine.cache.contiguous import ContiguousAllocator
from mini_engine.course.contiguous_service import ContiguousService

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
    is_old = isinstance(memory, ContiguousAllocator)
    service = _Contiguous(memory, reserve, max_len, cell) if is_old else _Engine(memory)
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


class _Contiguous:
    """What an engine over a contiguous allocator would do."""

    def __init__(self, memory: ContiguousAllocator, reserve: str, max_len: int, cell: int) -> None:
        self.memory = memory
        self.service = ContiguousService(memory, reserve, max_len or memory.capacity)
        self.is_busy = self.service.is_busy
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(memory).__name__.removesuffix("Allocator")).lower()
        head = {"title": f"{name}, reserving {reserve}", "capacity": memory.capacity, "cell": cell}
        self.events: list[Event] = [{"kind": "memory", "step": 0, **head}]

    def add(self, arrival: Arrival, step: int) -> None:
        self.service.add(arrival.request_id, arrival.prompt, arrival.output)
        self.events.append({"kind": "add", "step": step, "request_id": arrival.request_id, "prompt": arrival.prompt})

    def step(self, step: int) -> None:
        wrote = dict.fromkeys(self.memory.runs, 1)
        started, lack = self.service.begin()
        wrote |= {one.request_id: one.prompt for one in started}
        runs = {one.request_id: self.memory.runs[one.request_id] for one in started}
        read = sum(run.used for run in self.memory.runs.values())
        finished = self.service.end()
        waiting = [one.request_id for one in self.service.waiting]
        refused = lack and {"request_id": waiting[0], "needed": lack.needed, "free": lack.free, "largest": lack.largest}
        self.events.append(
            {
                "kind": "step",
                "step": step,
                "started": {request_id: [run.start, run.size] for request_id, run in runs.items()},
                "refused": refused,
                "wrote": wrote,
                "read": read,
                "finished": finished,
                "waiting": waiting,
                "map": [list(part) for part in self.memory.memory_map()],
            }
        )
