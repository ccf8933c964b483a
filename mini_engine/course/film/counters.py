"""The counter strip: six numbers that say how well the memory is used, the same that formulas and engine count."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

NAMES = ("allocated", "live", "wasted", "shared", "copied", "read")


class Counters(NamedTuple):
    """In token slots; times `bytes_per_token` they are bytes.

    allocated  slots that somebody has: blocks held times block_size, or the runs of the old allocators
    live       of them, slots that hold K/V
    wasted     of them, slots that hold nothing: allocated - live
    shared     slots that would have to be allocated on top if nobody shared: (table entries - blocks held) times block_size
    copied     slots copied on write in this step, whole blocks as a backend moves them (swaps not counted)
    read       tokens that attention reads in this step: every chunk reads its context once per layer
    total_copied   copied so far, over all steps
    """

    allocated: int
    live: int
    shared: int
    copied: int
    read: int
    total_copied: int

    @property
    def wasted(self) -> int:
        """Slots in blocks that are held, without a token in them."""
        return self.allocated - self.live

    @property
    def utilization(self) -> Fraction:
        """live / allocated; 1 when nothing is allocated. Without sharing it is `geometry.paged_utilization`."""
        return Fraction(self.live, self.allocated) if self.allocated else Fraction(1)

    def items(self) -> Iterator[tuple[str, int]]:
        """The six, in the order in which they are shown."""
        for name in NAMES:
            yield name, getattr(self, name)
