"""What an engine over a contiguous allocator would do: first come, first served, a prompt in one step, then a token a step."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from mini_engine.cache.contiguous import RESERVATIONS, ContiguousAllocator, NoRunError


class Waiting(NamedTuple):
    """A request that has no run yet. stored: the slots it will have filled in the end; size: those that are reserved for it."""

    request_id: str
    prompt: int
    stored: int
    size: int


class ContiguousService:
    """A queue of requests before a contiguous memory. A step is `begin`, a look at the memory if you like, and `end`.

    As in the engine, the last token of a request is never stored.
    reserve, max_len: how long a run is made, see RESERVATIONS.
    """

    def __init__(self, memory: ContiguousAllocator, reserve: str, max_len: int) -> None:
        self.memory, self.max_len = memory, max_len
        self.reservation = RESERVATIONS[reserve]
        self.waiting: deque[Waiting] = deque()

    def is_busy(self) -> bool:
        """True while somebody waits or holds memory."""
        return bool(self.waiting or self.memory.runs)

    def add(self, request_id: str, prompt: int, output: int) -> None:
        """Queue a request of so many prompt and output tokens; its last token is never stored."""
        stored = prompt + output - 1
        size = max(stored, self.reservation(prompt, output, self.max_len))
        self.waiting.append(Waiting(request_id, prompt, stored, size))

    def begin(self) -> tuple[list[Waiting], NoRunError | None]:
        """A token more for everybody, and runs for those that wait, until one does not fit: who started, and what that one lacked.

        ValueError for a request that does not fit into an empty memory.
        """
        for request_id in self.memory.runs:
            self.memory.append(request_id)
        started: list[Waiting] = []
        while self.waiting:
            request_id, prompt, stored, size = self.waiting[0]
            try:
                self.memory.allocate(request_id, prompt, reserve=size, final=stored)
            except NoRunError as error:
                if not self.memory.runs:
                    raise ValueError(f"request {request_id!r} can never run: {error}") from error
                return started, error
            started.append(self.waiting.popleft())
        return started, None

    def end(self) -> list[str]:
        """Who has got its last token gives up its run."""
        finished = [run.request_id for run in self.memory.runs.values() if run.used == run.final]
        for request_id in finished:
            self.memory.free(request_id)
        return finished
