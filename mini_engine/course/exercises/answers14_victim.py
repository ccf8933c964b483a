"""Lesson 14, exercise 1: right and wrong ways to choose a victim."""

from __future__ import annotations

from typing import Any

from mini_engine.scheduling import Request, RequestStatus, Scheduler


class LeastImportant(Scheduler):
    """The least important goes, and of equals the one that started last."""

    def pick_victim(self, running: list[Request]) -> Request:
        return max(reversed(running), key=lambda request: request.priority)


class LeastImportantByLoop(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        victim = running[0]
        for request in running[1:]:
            if request.priority >= victim.priority:
                victim = request
        return victim


class LeastImportantSorted(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return sorted(running, key=lambda request: request.priority)[-1]


class MostBlocks(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return max(reversed(running), key=lambda request: (request.priority, len(request.block_table)))


class FewestTokens(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return max(reversed(running), key=lambda request: (request.priority, -len(request.token_ids)))


class MarksIt(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        victim = LeastImportant.pick_victim(self, running)  # type: ignore[arg-type]
        victim.status = RequestStatus.PREEMPTED
        return victim


class LatestArrival(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return sorted(running, key=lambda request: (request.priority, request.arrival))[-1]


class LastByName(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return max(running, key=lambda request: (request.priority, request.request_id))


class FirstGoes(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return min(running, key=lambda request: -request.priority)


class FirstOfEquals(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return max(running, key=lambda request: request.priority)


class MostComputed(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return max(reversed(running), key=lambda request: (request.priority, request.num_computed_tokens))


class LastAlways(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return running[-1]


class MostImportant(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return min(reversed(running), key=lambda request: request.priority)


class TakesItOut(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        victim = LeastImportant.pick_victim(self, running)  # type: ignore[arg-type]
        running.remove(victim)
        return victim


class SortsTheQueue(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        running.sort(key=lambda request: request.priority)
        return running[-1]


class ItsName(Scheduler):
    def pick_victim(self, running: list[Request]) -> Any:
        return max(reversed(running), key=lambda request: request.priority).request_id
