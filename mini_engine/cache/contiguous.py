"""The old world: each request gets one contiguous run of slots, sized before anyone knows how long it will get.

Three kinds of slots are lost that way, as the vLLM paper (section 3, figures 2 and 3) counts them:

reserved   will hold a token of this request later; nobody else can use it until then
internal   will never hold one: the run was made longer than the request turns out to be
external   free, but in holes too small for the request that waits

FirstFitAllocator and BuddyAllocator differ in where they put a run; RESERVATIONS in how long they make it. Units: slots,
one token each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

Hole = tuple[int, int]
"""A free run: its start and its size."""


class NoRunError(MemoryError):
    """No hole is large enough. Nothing was changed."""

    def __init__(self, needed: int, holes: list[Hole]) -> None:
        self.needed, self.free = needed, sum(size for _, size in holes)
        self.largest = max((size for _, size in holes), default=0)
        super().__init__(
            f"{needed} slots in a row needed; {self.free} are free, at most {self.largest} in a row: "
            "free a request, or reserve less"
        )


class Waste(NamedTuple):
    """Where all slots are, in slots; the five add up to the capacity. `free` can serve the request that waits."""

    used: int
    reserved: int
    internal: int
    external: int
    free: int


@dataclass
class Run:
    """The slots start ... start + size - 1 of one request."""

    request_id: str
    start: int
    size: int
    used: int
    final: int  # tokens the request will come to: only the count of waste looks at it

    @property
    def states(self) -> dict[str, int]:
        """Slots used, reserved and lost inside the run, in the order in which they lie."""
        return {"used": self.used, "reserved": self.final - self.used, "internal": self.size - self.final}


def _reserve_max(prompt: int, output: int, max_len: int) -> int:
    return max_len


def _reserve_pow2(prompt: int, output: int, max_len: int) -> int:
    return min(max_len, prompt + power_of_two(output))


def _reserve_oracle(prompt: int, output: int, max_len: int) -> int:
    return prompt + output - 1  # the last token is never stored: no token follows that would attend to it


# How many slots to reserve for (prompt tokens, output tokens, longest allowed): the three baselines of the vLLM paper.
# Only the first could be built; the others look at an output length that nobody knows beforehand.
RESERVATIONS: dict[str, Callable[[int, int, int], int]] = {
    "max": _reserve_max,
    "pow2": _reserve_pow2,
    "oracle": _reserve_oracle,
}


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n, and at least 1."""
    return 1 << max(0, n - 1).bit_length()


def count_waste(runs: Iterable[Run], holes: Iterable[Hole], next_size: int) -> tuple[int, int, int, int]:
    """Slots (used, reserved, internal, external) of runs and holes, for a request that needs next_size slots in a row."""
    used = reserved = internal = 0
    for run in runs:
        used += run.used
        reserved += run.final - run.used
        internal += run.size - run.final
    return used, reserved, internal, sum(size for _, size in holes if size < next_size)


def first_fit(holes: list[Hole], size: int) -> tuple[int, list[Hole]] | None:
    """The start of the first hole of at least `size` slots, and the holes that are left; None when there is none."""
    for i, (start, room) in enumerate(holes):
        if room >= size:
            rest = [(start + size, room - size)] if room > size else []
            return start, [*holes[:i], *rest, *holes[i + 1 :]]
    return None


def give_back(holes: list[Hole], start: int, size: int) -> list[Hole]:
    """The holes with the run start, size back among them: in order, and holes that touch are one."""
    merged: list[Hole] = []
    for hole_start, hole_size in sorted([*holes, (start, size)]):
        if merged and sum(merged[-1]) == hole_start:
            hole_start, hole_size = merged[-1][0], merged.pop()[1] + hole_size
        merged.append((hole_start, hole_size))
    return merged


class ContiguousAllocator(ABC):
    """Runs of slots in one memory of `capacity` slots. Subclasses say where a run goes."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity={capacity}: must be at least 1 slot")
        self.capacity = capacity
        self.runs: dict[str, Run] = {}

    def allocate(self, request_id: str, num_tokens: int, *, reserve: int, final: int | None = None) -> int:
        """Reserve a run for a request that has num_tokens tokens now; the first slot of the run.

        final: tokens it will come to (default: all it reserves). NoRunError when no hole is large enough, ValueError
        for a known request_id or when not 0 <= num_tokens <= final <= reserve.
        """
        final = reserve if final is None else final
        if request_id in self.runs:
            raise ValueError(f"request {request_id!r} has a run already")
        if not 0 <= num_tokens <= final <= reserve or reserve < 1:
            raise ValueError(f"num_tokens={num_tokens}, final={final}, reserve={reserve}: must not decrease")
        start, size = self._take(reserve)
        self.runs[request_id] = Run(request_id, start, size, num_tokens, final)
        return start

    def append(self, request_id: str, n: int = 1) -> None:
        """The request has n more tokens. ValueError when they are more than it was said to come to."""
        run = self.runs[request_id]
        if n < 0 or run.used + n > run.final:
            raise ValueError(f"request {request_id!r} has {run.used} of {run.final} tokens: cannot add {n}")
        run.used += n

    def free(self, request_id: str) -> None:
        """Give up a request's run. KeyError when it has none."""
        run = self.runs.pop(request_id)
        self._give_back(run.start, run.size)

    @abstractmethod
    def holes(self) -> list[Hole]:
        """The free runs as (start, size), in order of their addresses. A request must fit into one of them."""

    def waste(self, next_size: int = 1) -> Waste:
        """Count every slot. next_size: slots that the request that waits would need in a row."""
        counts, free = count_waste(self.runs.values(), self.holes(), next_size), sum(size for _, size in self.holes())
        return Waste(*counts, free=free - counts[-1])

    def memory_map(self) -> list[tuple[int, int, str, str | None]]:
        """The memory from its first slot to its last: (start, size, state, request_id), state "free" in a hole."""
        parts: list[tuple[int, int, str, str | None]] = [(start, size, "free", None) for start, size in self.holes()]
        for run in self.runs.values():
            start = run.start
            for state, size in run.states.items():
                if size:
                    parts.append((start, size, state, run.request_id))
                start += size
        return sorted(parts)

    @abstractmethod
    def _take(self, size: int) -> tuple[int, int]:
        """Take size slots in a row or more; their start and how many they are."""

    @abstractmethod
    def _give_back(self, start: int, size: int) -> None: ...


class FirstFitAllocator(ContiguousAllocator):
    """The first hole that is large enough. Holes that touch become one."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._holes = [(0, capacity)]

    def holes(self) -> list[Hole]:
        """Free runs of slots as (start, size), by start."""
        return list(self._holes)

    def _take(self, size: int) -> tuple[int, int]:
        found = first_fit(self._holes, size)
        if found is None:
            raise NoRunError(size, self._holes)
        start, self._holes = found
        return start, size

    def _give_back(self, start: int, size: int) -> None:
        self._holes = give_back(self._holes, start, size)


class BuddyAllocator(ContiguousAllocator):
    """Runs of 1, 2, 4, 8 ... slots only: fast to split and join, at the price of rounding every run up.

    A free run of 2^k slots is split into two buddies of 2^(k-1); two free buddies are joined again. The address of a
    run's buddy differs in one bit. capacity must be a power of two (Knuth, volume 1, section 2.5).
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        if capacity != power_of_two(capacity):
            raise ValueError(f"capacity={capacity}: a buddy allocator divides a power of two")
        self._free: dict[int, set[int]] = {capacity: {0}}  # size -> starts

    def holes(self) -> list[Hole]:
        """Free buddies as (start, size), by start; neighbours of different pairs stay apart."""
        return sorted((start, size) for size, starts in self._free.items() for start in starts)

    def _take(self, size: int) -> tuple[int, int]:
        size = power_of_two(size)
        room = size
        while not self._free.get(room):
            room *= 2
            if room > self.capacity:
                raise NoRunError(size, self.holes())
        start = min(self._free[room])
        self._free[room].remove(start)
        while room > size:
            room //= 2
            self._free.setdefault(room, set()).add(start + room)
        return start, size

    def _give_back(self, start: int, size: int) -> None:
        while size < self.capacity and (start ^ size) in self._free.get(size, ()):
            self._free[size].remove(start ^ size)
            start, size = min(start, start ^ size), size * 2
        self._free.setdefault(size, set()).add(start)
