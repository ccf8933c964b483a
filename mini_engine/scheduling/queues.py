"""Where every sequence is: waiting, running, or about to end. `Queues` moves them, and their blocks with them."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import Counter
from collections.abc import Iterator

from mini_engine.cache import KVCacheManager
from mini_engine.config import EngineConfig
from mini_engine.outputs import FinishReason
from mini_engine.scheduling.policies import FirstComeFirstServed
from mini_engine.scheduling.request import FINISHED, Request, RequestStatus


class WaitingQueue:
    """The waiting sequences, first in line first. Add and take cost O(log n); leaving from the middle costs O(1)."""

    def __init__(self, policy: FirstComeFirstServed) -> None:
        self._policy = policy
        self._heap: list[tuple[tuple, int, Request]] = []
        self._tickets: dict[Request, int] = {}  # a heap entry whose ticket is no longer here has left
        self._next_ticket = 0

    def add(self, request: Request) -> None:
        """Put a request in its place."""
        self._next_ticket += 1
        self._tickets[request] = self._next_ticket
        heapq.heappush(self._heap, (self._policy.queue_order(request), self._next_ticket, request))

    def remove(self, request: Request) -> None:
        """Take a request out, wherever it stands. KeyError for one that does not wait."""
        del self._tickets[request]

    def first(self) -> Request:
        """The one that starts next, left where it is. IndexError when nobody waits."""
        while True:
            _, ticket, request = self._heap[0]
            if self._tickets.get(request) == ticket:
                return request
            heapq.heappop(self._heap)

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, request: Request) -> bool:
        return request in self._tickets

    def __iter__(self) -> Iterator[Request]:
        return iter(self._tickets)


class Queues:
    """The sequences that are alive. Each is in exactly one of `waiting`, `running` and `ending`."""

    def __init__(self, config: EngineConfig, kv: KVCacheManager, policy: FirstComeFirstServed) -> None:
        self.config = config
        self.kv = kv
        self.policy = policy
        self.requests: dict[tuple[str, int], Request] = {}
        self.waiting = WaitingQueue(policy)
        self.running: list[Request] = []  # in order of service
        self.ending: list[Request] = []  # finished by the next commit; they hold no blocks
        self._num_arrivals = self._num_starts = 0

    def add_request(self, request: Request) -> None:
        """Queue a sequence. One that asks for no token ends in the next step, whoever waits before it."""
        self._num_arrivals += 1
        request.arrival = self._num_arrivals
        self.requests[request.key] = request
        if request.num_tokens >= request.max_num_tokens:
            self.ending.append(request)
        else:
            self.waiting.add(request)

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a sequence, in whatever state it is, and free its blocks at once."""
        self._leave(request)
        self.kv.free(request)
        request.status = FINISHED[reason]
        del self.requests[request.key]

    def fork(self, source: Request, index: int, last_token_id: int | None = None) -> Request:
        """A branch with the tokens of `source`: it shares every block if a seat is free, else it waits and recomputes.

        With `last_token_id` it has another last token, which has no K/V yet.
        """
        branch = source.branch(index)
        if last_token_id is not None:
            branch.token_ids[-1] = last_token_id
        self.requests[branch.key] = branch
        if source in self.ending:
            self.ending.append(branch)
        elif source.status is RequestStatus.RUNNING and self.num_seats_taken < self.config.max_num_seqs:
            branch.num_computed_tokens = source.num_computed_tokens
            self.kv.fork(source, branch)
            self._run(branch)
        else:
            if source.status is not RequestStatus.WAITING:
                branch.status = RequestStatus.PREEMPTED
            self.waiting.add(branch)
        return branch

    @property
    def num_seats_taken(self) -> int:
        """Sequences that run, and branches that will be forked from them."""
        return sum(request.num_seqs for request in self.running)

    def _run(self, request: Request) -> None:
        self._num_starts += 1
        request.status = RequestStatus.RUNNING
        request.num_starts += 1
        request.rank = self.policy.rank(request, self._num_starts)
        insort(self.running, request, key=lambda running: running.rank)

    def _requeue(self, request: Request, status: RequestStatus) -> None:
        """Take a running sequence's blocks away and let it wait for new ones."""
        self._leave(request)
        self.kv.free(request)
        request.num_computed_tokens = 0
        request.status = status
        self.waiting.add(request)

    @property
    def is_torn(self) -> bool:
        """Whether somebody is in no queue, in two, or not where the status says: a scheduler of one's own broke off."""
        places, running = Counter([*self.waiting, *self.running, *self.ending]), set(self.running)
        alive = list(self.requests.values())
        return sorted(places.values()) != [1] * len(alive) or any(
            request not in places or (request in running) != (request.status is RequestStatus.RUNNING)
            for request in alive
        )

    def start_over(self) -> None:
        """Everybody who is alive waits again, without blocks, but those that are about to end."""
        alive = list(self.requests.values())
        for request in {*self.waiting, *self.running, *alive}:
            self.kv.free(request)
            request.num_computed_tokens = 0
        self.ending = [request for request in alive if request in self.ending]
        self.running, self.waiting = [], WaitingQueue(self.policy)
        for request in alive:
            if request.status is not RequestStatus.WAITING:
                request.status = RequestStatus.PREEMPTED
            if request not in self.ending:
                self.waiting.add(request)

    def end(self, request: Request) -> None:
        """Take everything away for good: the next commit finishes it."""
        self._leave(request)
        self.kv.free(request)
        request.num_computed_tokens = 0
        request.status = RequestStatus.PREEMPTED
        self.ending.append(request)

    def _leave(self, request: Request) -> None:
        if request in self.ending:
            self.ending.remove(request)
        elif request.status is RequestStatus.RUNNING:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
