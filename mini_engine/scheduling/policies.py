"""Who starts first, who is served first, and who makes room: three questions that a policy answers."""

from __future__ import annotations

from collections.abc import Sequence

from mini_engine.scheduling.request import Request, RequestStatus


class FirstComeFirstServed:
    """First come, first served. Room is made by the sequence that started last (LIFO), which has the least to lose.

    Waiting is strict: when the first in line does not fit, nobody overtakes it. A sequence that was preempted arrived
    before everybody who has not started, so it comes back first.
    """

    def queue_order(self, request: Request) -> tuple[int, ...]:
        """The smallest of the waiting starts next."""
        return (request.arrival, request.index)

    def rank(self, request: Request, admission: int) -> tuple[int, ...]:
        """The smallest of the running is served first. `admission` counts the starts so far."""
        return (admission,)

    def pick_victim(self, running: Sequence[Request]) -> Request:
        """Who gives up its blocks. `running` holds those not served yet in this step, in order of service."""
        return running[-1]


class ShortestFirst(FirstComeFirstServed):
    """The fewest tokens first: a low mean waiting time, at the price that long prompts may wait for ever."""

    def queue_order(self, request: Request) -> tuple[int, ...]:
        """Those that were preempted before those that never ran, then by length."""
        return (request.status is RequestStatus.WAITING, request.num_tokens, request.arrival, request.index)


class Priority(FirstComeFirstServed):
    """The smallest priority number first, then first come. Room is made by the least important, latest arrival."""

    def queue_order(self, request: Request) -> tuple[int, ...]:
        """By priority number, then by arrival."""
        return (request.priority, request.arrival, request.index)

    def rank(self, request: Request, admission: int) -> tuple[int, ...]:
        """Served in the order of the queue, whenever it started."""
        return self.queue_order(request)

    def pick_victim(self, running: Sequence[Request]) -> Request:
        """The one that the queue would start last."""
        return max(running, key=self.queue_order)


POLICIES = {"fcfs": FirstComeFirstServed, "shortest_first": ShortestFirst, "priority": Priority}
