"""First-fit allocators with one bug each: the engine's own, with one method overridden."""

from __future__ import annotations

from functools import partial

from mini_engine.cache import FirstFitAllocator, NoRunError, Waste
from mini_engine.course.bug_bank import Bug, BugBank, hand_out_class


class BestFit(FirstFitAllocator):
    """Right: the smallest hole that is large enough. Where a run lies is nobody's business."""

    def _take(self, size: int) -> tuple[int, int]:
        self._holes.sort(key=lambda hole: hole[1])
        try:
            return super()._take(size)
        finally:
            self._holes.sort()


class FromTheEnd(FirstFitAllocator):
    """Right: the end of the last hole that is large enough."""

    def _take(self, size: int) -> tuple[int, int]:
        for i in reversed(range(len(self._holes))):
            start, room = self._holes[i]
            if room >= size:
                self._holes[i : i + 1] = [(start, room - size)] if room > size else []
                return start + room - size, size
        raise NoRunError(size, self._holes)


RIGHT = {"the engine's own": FirstFitAllocator, "the smallest hole": BestFit, "from the other end": FromTheEnd}


class _NeverJoins(FirstFitAllocator):
    def _give_back(self, start: int, size: int) -> None:
        self._holes = sorted([*self._holes, (start, size)])


class _WantsMoreThanEnough(FirstFitAllocator):
    def _take(self, size: int) -> tuple[int, int]:
        if all(room <= size for _, room in self._holes):
            raise NoRunError(size, self._holes)
        return super()._take(size)


class _AddsUpTheHoles(FirstFitAllocator):
    def _take(self, size: int) -> tuple[int, int]:
        if max((room for _, room in self._holes), default=0) < size <= sum(room for _, room in self._holes):
            return self._holes.pop(0)[0], size
        return super()._take(size)


class _KeepsTheName(FirstFitAllocator):
    def allocate(self, request_id: str, num_tokens: int, *, reserve: int, final: int | None = None) -> int:
        try:
            return super().allocate(request_id, num_tokens, reserve=reserve, final=final)
        except NoRunError:
            self._holes, before = [(0, self.capacity)], self._holes
            super().allocate(request_id, 0, reserve=1)
            self._holes = before
            raise


class _OverTheEnd(FirstFitAllocator):
    def append(self, request_id: str, n: int = 1) -> None:
        self.runs[request_id].used += n


class _GivesBackTheUsed(FirstFitAllocator):
    def free(self, request_id: str) -> None:
        run = self.runs[request_id]
        run.size = max(run.used, 1)
        super().free(request_id)


class _FreesAnything(FirstFitAllocator):
    def free(self, request_id: str) -> None:
        if request_id in self.runs:
            super().free(request_id)


class _EveryHoleServes(FirstFitAllocator):
    def waste(self, next_size: int = 1) -> Waste:
        return super().waste(1)


class _ReservedForNobody(FirstFitAllocator):
    def waste(self, next_size: int = 1) -> Waste:
        waste = super().waste(next_size)
        return waste._replace(reserved=waste.reserved + waste.internal, internal=0)


WRONG = {
    "holes that touch stay apart": Bug(
        _NeverJoins, "Free two neighbours, then ask for a run as large as both; look at holes(), too."
    ),
    "a hole must be larger than needed": Bug(_WantsMoreThanEnough, "Ask for exactly as many slots as a hole has."),
    "adds up the holes": Bug(_AddsUpTheHoles, "Ask for more than any hole has, and less than all of them together."),
    "a refused request keeps its name": Bug(_KeepsTheName, "After a refusal, allocate for the same request once more."),
    "appends beyond the end": Bug(_OverTheEnd, "Append more tokens than the request was said to come to."),
    "gives back what was used": Bug(_GivesBackTheUsed, "Free a request that did not use all that it reserved."),
    "frees what it does not have": Bug(_FreesAnything, "Free a request twice: the second time must be an error."),
    "every hole counts as free": Bug(
        _EveryHoleServes, "waste(next_size) with a next_size that some hole is too small for."
    ),
    "internal waste counts as reserved": Bug(
        _ReservedForNobody, "Allocate with final below reserve: those slots will never hold a token."
    ),
}

CONTIGUOUS_BUGS = BugBank("allocator", RIGHT, WRONG, partial(hand_out_class, name="Allocator"), crash_counts=True)
