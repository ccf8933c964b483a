"""The contiguous allocators: placement against a memory of single slots, and the three kinds of waste."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mini_engine.cache.contiguous import (
    RESERVATIONS,
    BuddyAllocator,
    FirstFitAllocator,
    NoRunError,
    Waste,
    power_of_two,
)


class ContiguousMachine(RuleBasedStateMachine):
    """The model: one cell per slot, with the name of its owner or None."""

    @initialize(buddy=st.booleans(), exponent=st.integers(0, 6))
    def start(self, buddy, exponent):
        self.buddy = buddy
        self.allocator = (BuddyAllocator if buddy else FirstFitAllocator)(2**exponent)
        self.cells: list[str | None] = [None] * 2**exponent
        self.num_made = 0

    def fits(self, start, size):
        return start + size <= len(self.cells) and not any(self.cells[start : start + size])

    @rule(data=st.data(), reserve=st.integers(1, 40))
    def allocate(self, data, reserve):
        final = data.draw(st.integers(0, reserve))
        used = data.draw(st.integers(0, final))
        name = f"r{self.num_made}"
        size = power_of_two(reserve) if self.buddy else reserve
        step = size if self.buddy else 1
        starts = [start for start in range(0, len(self.cells), step) if self.fits(start, size)]
        before = self.allocator.memory_map()
        if not starts:
            with pytest.raises(NoRunError, match=f"{size} slots in a row needed"):
                self.allocator.allocate(name, used, reserve=reserve, final=final)
            assert self.allocator.memory_map() == before
            return
        start = self.allocator.allocate(name, used, reserve=reserve, final=final)
        assert start in starts
        assert self.buddy or start == starts[0]
        self.cells[start : start + size] = [name] * size
        self.num_made += 1

    @precondition(lambda self: self.allocator.runs)
    @rule(which=st.integers(0, 100), n=st.integers(0, 3))
    def append(self, which, n):
        run = list(self.allocator.runs.values())[which % len(self.allocator.runs)]
        if run.used + n > run.final:
            with pytest.raises(ValueError, match="cannot add"):
                self.allocator.append(run.request_id, n)
        else:
            self.allocator.append(run.request_id, n)

    @precondition(lambda self: self.allocator.runs)
    @rule(which=st.integers(0, 100))
    def free(self, which):
        name = list(self.allocator.runs)[which % len(self.allocator.runs)]
        self.allocator.free(name)
        self.cells = [None if owner == name else owner for owner in self.cells]

    @invariant()
    def every_slot_is_accounted_for(self):
        if not hasattr(self, "cells"):
            return
        owners, position = [], 0
        for start, size, state, request in self.allocator.memory_map():
            assert start == position
            assert (state == "free") == (request is None)
            owners += [request] * size
            position += size
        assert owners == self.cells
        for next_size in (1, 3, 1000):
            waste = self.allocator.waste(next_size)
            assert sum(waste) == len(self.cells)
            assert min(waste) >= 0
            assert waste.external + waste.free == self.cells.count(None)
        holes = self.allocator.holes()
        if self.buddy:
            for start, size in holes:
                assert start % size == 0
                assert (start ^ size, size) not in holes or size == len(self.cells)
        else:
            assert all(a + size < b for (a, size), (b, _) in itertools.pairwise(holes)), "holes that touch"


TestContiguous = ContiguousMachine.TestCase
TestContiguous.settings = settings(max_examples=80, stateful_step_count=40, suppress_health_check=list(HealthCheck))


def test_a_reservation_to_the_maximum_is_mostly_idle():
    """2048 slots reserved, 200 tokens in the end: 90 % of them are never used."""
    allocator = FirstFitAllocator(4096)
    allocator.allocate("a", 150, reserve=2048, final=200)
    assert allocator.waste(2048) == Waste(used=150, reserved=50, internal=1848, external=0, free=2048)
    allocator.append("a", 50)
    assert allocator.waste().reserved == 0
    assert allocator.waste().internal / 2048 == 0.90234375


def test_a_request_grows_token_by_token_up_to_what_it_reserved():
    allocator = FirstFitAllocator(8)
    allocator.allocate("a", 2, reserve=6)
    for used in (3, 4, 5, 6):
        allocator.append("a")
        assert allocator.waste().used == used
    with pytest.raises(ValueError, match="has 6 of 6 tokens"):
        allocator.append("a")


def test_requests_that_come_and_go_leave_holes_nobody_fits_into():
    allocator = FirstFitAllocator(100)
    for i in range(10):
        allocator.allocate(str(i), 10, reserve=10)
    for i in range(0, 10, 2):
        allocator.free(str(i))
    with pytest.raises(NoRunError, match="11 slots in a row needed; 50 are free, at most 10 in a row"):
        allocator.allocate("long", 11, reserve=11)
    assert allocator.waste(11) == Waste(used=50, reserved=0, internal=0, external=50, free=0)
    assert allocator.waste(10) == Waste(used=50, reserved=0, internal=0, external=0, free=50)


def test_buddies_round_up_and_join_again():
    allocator = BuddyAllocator(16)
    assert allocator.allocate("a", 3, reserve=3) == 0
    assert allocator.waste().internal == 1
    assert allocator.allocate("b", 5, reserve=5) == 8
    assert allocator.holes() == [(4, 4)]
    allocator.free("a")
    assert allocator.holes() == [(0, 8)]
    allocator.free("b")
    assert allocator.holes() == [(0, 16)]


def test_the_three_ways_to_reserve():
    lengths = {name: reserve(100, 60, 2048) for name, reserve in RESERVATIONS.items()}
    assert lengths == {"max": 2048, "pow2": 164, "oracle": 159}  # the last token is never stored
    assert RESERVATIONS["pow2"](2000, 60, 2048) == 2048
    assert [power_of_two(n) for n in (0, 1, 2, 3, 4, 5, 1024, 1025)] == [1, 1, 2, 4, 4, 8, 1024, 2048]


def test_memory_map_shows_what_lies_where():
    allocator = FirstFitAllocator(10)
    allocator.allocate("a", 2, reserve=6, final=4)
    assert allocator.memory_map() == [
        (0, 2, "used", "a"),
        (2, 2, "reserved", "a"),
        (4, 2, "internal", "a"),
        (6, 4, "free", None),
    ]


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="capacity=0"):
        FirstFitAllocator(0)
    with pytest.raises(ValueError, match="capacity=12"):
        BuddyAllocator(12)
    allocator = FirstFitAllocator(10)
    allocator.allocate("a", 1, reserve=2)
    for arguments, message in [
        ({"request_id": "a", "num_tokens": 1, "reserve": 2}, "has a run already"),
        ({"request_id": "b", "num_tokens": 3, "reserve": 2}, "must not decrease"),
        ({"request_id": "b", "num_tokens": 0, "reserve": 0}, "must not decrease"),
        ({"request_id": "b", "num_tokens": 2, "reserve": 4, "final": 1}, "must not decrease"),
    ]:
        with pytest.raises(ValueError, match=message):
            allocator.allocate(**arguments)
    with pytest.raises(KeyError):
        allocator.free("b")
    assert allocator.holes() == [(2, 8)]
