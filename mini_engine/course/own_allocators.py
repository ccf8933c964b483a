"""Contiguous allocators with a learner's functions inside: they run wherever the package's own do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mini_engine.cache.contiguous import BuddyAllocator, FirstFitAllocator, Hole, NoRunError

Take = Callable[[list[Hole], int], "tuple[int, list[Hole]] | None"]
GiveBack = Callable[[list[Hole], int, int], list[Hole]]


def _tuples(holes: Iterable[Any]) -> list[Hole]:
    """The holes as the package has them: a right answer may be made of lists, and of NumPy's numbers."""
    return [(int(start), int(size)) for start, size in holes]


class HoleListAllocator(FirstFitAllocator):
    """An allocator made of two functions on its list of holes (start, size), sorted by start.

    take(holes, size) gives the start of a run and the holes that are left, or None; give_back(holes, start, size) the holes
    with that run among them.
    """

    def __init__(self, capacity: int, take: Take, give_back: GiveBack) -> None:
        super().__init__(capacity)
        self._take_from, self._back_to = take, give_back

    def _take(self, size: int) -> tuple[int, int]:
        found = self._take_from(self.holes(), size)
        if found is None:
            raise NoRunError(size, self._holes)
        start, self._holes = int(found[0]), _tuples(found[1])
        return start, size

    def _give_back(self, start: int, size: int) -> None:
        self._holes = _tuples(self._back_to(self.holes(), start, size))


class JoiningBuddyAllocator(BuddyAllocator):
    """The package's buddy allocator, with a learner's join(holes, start, size) for the way back."""

    def __init__(self, capacity: int, join: GiveBack) -> None:
        super().__init__(capacity)
        self._join = join

    def _give_back(self, start: int, size: int) -> None:
        joined = _tuples(self._join(self.holes(), start, size))
        self._free = {}
        for hole_start, hole_size in joined:
            self._free.setdefault(hole_size, set()).add(hole_start)
