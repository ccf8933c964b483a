"""Answers to lesson 12's two loops: right ones, written another way, and the wrong ones that people write."""

from __future__ import annotations

from mini_engine.course.own_scheduler import SchedulerLab
from mini_engine.scheduling import Request
from mini_engine.scheduling.plan import Draft


class Loops(SchedulerLab):
    """Serve those who run, in order; then start those who wait, in order, as long as there are seats, blocks and budget."""

    def schedule_running(self, draft: Draft) -> None:
        position = 0
        while position < len(self.running) and draft.budget > 0:
            if self.serve_one(position, draft):
                position += 1

    def serve_one(self, position: int, draft: Draft) -> bool:
        request = self.running[position]
        n = self.chunk_size(self.missing(request), draft.budget, self.behind(position))
        if not self.make_room(request, n, position, draft):
            return False
        draft.add_chunk(request, n)
        return True

    def behind(self, position: int) -> int:
        return len(self.running) - position - 1

    def schedule_waiting(self, draft: Draft) -> None:
        while draft.budget > 0 and (request := self.next_in_line()) is not None:
            if not self.may_start(request) or not self.start(request, draft):
                return

    def may_start(self, request: Request) -> bool:
        return not self.running or (self.has_seats(request) and self.admit(request))

    def has_seats(self, request: Request) -> bool:
        return self.num_seats_taken + request.num_seqs <= self.config.max_num_seqs


class ServedSet(Loops):
    """Right: asks again and again for the first who was not served yet."""

    def schedule_running(self, draft: Draft) -> None:
        served: list[Request] = []
        while draft.budget > 0:
            left = [request for request in self.running if request not in served]
            if not left:
                return
            request, position = left[0], len(self.running) - len(left)
            n = self.chunk_size(self.missing(request), draft.budget, len(left) - 1)
            if self.make_room(request, n, position, draft):
                draft.add_chunk(request, n)
                served.append(request)

    def schedule_waiting(self, draft: Draft) -> None:
        request = self.next_in_line()
        if request is None or draft.budget <= 0:
            return
        free = self.config.max_num_seqs - self.num_seats_taken
        if self.running and (request.num_seqs > free or not self.admit(request)):
            return
        if self.start(request, draft):
            self.schedule_waiting(draft)


class OneAStep(Loops):
    """Serves the first only."""

    def schedule_running(self, draft: Draft) -> None:
        if self.running:
            self.serve_one(0, draft)


class PromptsFirst(Loops):
    """As long as somebody waits, nobody decodes."""

    def schedule_running(self, draft: Draft) -> None:
        request = self.next_in_line()
        if request is None or not self.may_start(request):
            super().schedule_running(draft)


class SkipsTheLast(Loops):
    def schedule_running(self, draft: Draft) -> None:
        position = 0
        while position < max(1, len(self.running) - 1) and position < len(self.running) and draft.budget > 0:
            if self.serve_one(position, draft):
                position += 1


class WholeBatch(Loops):
    """Static: nobody starts beside somebody who runs already."""

    def schedule_waiting(self, draft: Draft) -> None:
        if not draft.chunks:
            super().schedule_waiting(draft)


class OneStart(Loops):
    def schedule_waiting(self, draft: Draft) -> None:
        request = self.next_in_line()
        if request is not None and draft.budget > 0 and self.may_start(request):
            self.start(request, draft)


class StartsInPairs(Loops):
    """Waits until two seats are free."""

    def has_seats(self, request: Request) -> bool:
        return super().has_seats(request) and self.num_seats_taken + 2 <= self.config.max_num_seqs


class NoSeats(Loops):
    def has_seats(self, request: Request) -> bool:
        return True


class OneSeatMore(Loops):
    def has_seats(self, request: Request) -> bool:
        return self.num_seats_taken < self.config.max_num_seqs + 1


class CountsRequests(Loops):
    """A request with several answers takes one seat."""

    def has_seats(self, request: Request) -> bool:
        return len(self.running) < self.config.max_num_seqs


class NoBudget(Loops):
    def schedule_waiting(self, draft: Draft) -> None:
        while (request := self.next_in_line()) is not None:
            if not self.may_start(request) or not self.start(request, draft):
                return


class OvertakesByBudget(Loops):
    """Who does not fit is passed over: the next one is tried."""

    def schedule_waiting(self, draft: Draft) -> None:
        for request in sorted(self.waiting, key=self.policy.queue_order):
            if draft.budget > 0 and self.may_start(request):
                self.start(request, draft)


class LastComeFirst(Loops):
    def schedule_waiting(self, draft: Draft) -> None:
        while draft.budget > 0 and self.next_in_line() is not None:
            request = max(self.waiting, key=self.policy.queue_order)
            if not self.may_start(request) or not self.start(request, draft):
                return


class AlwaysAsks(Loops):
    """`admit` refuses a request even when the whole pool is free."""

    def may_start(self, request: Request) -> bool:
        return self.has_seats(request) and self.admit(request)


class SeatsWhenAlone(Loops):
    """A request with more answers than there are seats never starts."""

    def may_start(self, request: Request) -> bool:
        return self.has_seats(request) and (not self.running or self.admit(request))


class NeverAsks(Loops):
    def may_start(self, request: Request) -> bool:
        return not self.running or self.has_seats(request)


class GoesOn(Loops):
    """Moves on by one, also when the request at this place had to go and the next has moved up."""

    def schedule_running(self, draft: Draft) -> None:
        for position in range(len(self.running)):
            if position < len(self.running) and draft.budget > 0:
                self.serve_one(position, draft)


class NoRoom(Loops):
    """Takes blocks without asking for room."""

    def schedule_running(self, draft: Draft) -> None:
        for position, request in enumerate(list(self.running)):
            if draft.budget <= 0:
                return
            n = self.chunk_size(self.missing(request), draft.budget, len(self.running) - position - 1)
            draft.cache_ops += self.kv.append(request, n)
            draft.add_chunk(request, n)


class StopsAtOnce(Loops):
    """When one had to go, nobody behind is served."""

    def schedule_running(self, draft: Draft) -> None:
        for position in range(len(self.running)):
            if draft.budget <= 0 or position >= len(self.running) or not self.serve_one(position, draft):
                return


class AllThatIsMissing(Loops):
    """Never cuts: as many tokens as are missing, or none."""

    def serve_one(self, position: int, draft: Draft) -> bool:
        request = self.running[position]
        n = min(self.missing(request), draft.budget)
        if not self.make_room(request, n, position, draft):
            return False
        draft.add_chunk(request, n)
        return True


class NoBudgetToRun(Loops):
    """Serves those who run without a look at the budget."""

    def schedule_running(self, draft: Draft) -> None:
        position = 0
        while position < len(self.running):
            if self.serve_one(position, draft):
                position += 1


class NobodyBehind(Loops):
    """Takes the whole budget, whoever is behind."""

    def behind(self, position: int) -> int:
        return 0


class CountsItself(Loops):
    """One too many is behind."""

    def behind(self, position: int) -> int:
        return len(self.running) - position


class BooksTwice(Loops):
    """`add_chunk` has taken the tokens from the budget already."""

    def serve_one(self, position: int, draft: Draft) -> bool:
        before = draft.budget
        if not super().serve_one(position, draft):
            return False
        draft.budget -= before - draft.budget
        return True


class OneTokenEach(Loops):
    """Takes everybody who runs for one who decodes."""

    def serve_one(self, position: int, draft: Draft) -> bool:
        request = self.running[position]
        self.chunk_size(self.missing(request), draft.budget, self.behind(position))  # and makes nothing of it
        if not self.make_room(request, 1, position, draft):
            return False
        draft.add_chunk(request, 1)
        return True
