"""Lesson 06, the test-writing exercise: tests of contiguous allocators, tried on right and on wrong ones."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

from mini_engine.cache import FirstFitAllocator, NoRunError
from mini_engine.course.bug_bank import BugHunt
from mini_engine.course.exercise import Mutant
from mini_engine.course.exercises.bugs06_contiguous import CONTIGUOUS_BUGS

MakeAllocator = Callable[[int], FirstFitAllocator]


def check_allocator(make: MakeAllocator) -> None:
    """Raise AssertionError unless make(capacity) gives out runs, joins its holes, and counts where every slot is."""
    allocator = make(12)
    starts = {name: allocator.allocate(name, 1, reserve=4, final=3) for name in "abc"}
    assert sorted(starts.values()) == [0, 4, 8]
    assert allocator.waste() == (3, 6, 3, 0, 0)
    order = sorted("abc", key=starts.__getitem__)
    allocator.append("a", 2)
    try:
        allocator.append("a")
    except ValueError:
        assert allocator.waste().used == 5
    else:
        raise AssertionError("a has 3 tokens, all that it will come to")
    for name in (order[0], order[2]):
        allocator.free(name)
    assert allocator.waste(5)[3:] == (8, 0), "no hole has 5 slots"
    assert allocator.waste(4)[3:] == (0, 8)
    for _ in range(2):
        try:
            allocator.allocate("d", 1, reserve=5)
        except NoRunError:
            assert allocator.holes() == [(0, 4), (8, 4)]
        else:
            raise AssertionError("5 slots in a row came out of holes of 4")
    allocator.free(order[1])
    assert allocator.holes() == [(0, 12)]
    try:
        allocator.free(order[1])
    except KeyError:
        assert allocator.holes() == [(0, 12)]
    else:
        raise AssertionError("freed twice")
    assert allocator.allocate("all", 12, reserve=12) == 0


def _slot_by_slot(make: MakeAllocator) -> None:
    """Another right test: a list of slots and their owners, and random requests."""
    draw = random.Random(0)
    allocator, slots = make(20), [""] * 20
    given: dict[str, tuple[int, int, int]] = {}  # tokens now, at the end, reserved
    for number in range(120):
        name = str(number)
        if given and draw.random() < 0.5:
            name = draw.choice(list(given))
            if draw.random() < 0.5:
                used, final, reserve = given[name]
                try:
                    allocator.append(name, 1)
                    used += 1
                except ValueError:
                    assert used == final
                assert used <= final
                given[name] = used, final, reserve
            else:
                allocator.free(name)
                del given[name]
                slots = ["" if owner == name else owner for owner in slots]
                try:
                    allocator.free(name)
                except KeyError:
                    pass
                else:
                    raise AssertionError(f"{name} was freed twice")
        else:
            used, final, reserve = sorted(draw.choices(range(1, 8), k=3))
            gaps = "".join("x" if owner else "." for owner in slots).split("x")
            try:
                start = allocator.allocate(name, used, reserve=reserve, final=final)
            except NoRunError:
                assert max(map(len, gaps)) < reserve
                assert name not in allocator.runs
            else:
                assert not any(slots[start : start + reserve])
                slots[start : start + reserve] = [name] * reserve
                given[name] = used, final, reserve
        gaps = "".join("x" if owner else "." for owner in slots).split("x")
        assert [size for _, size in allocator.holes()] == [len(gap) for gap in gaps if gap]
        for wanted in (1, 4):
            small = sum(len(gap) for gap in gaps if len(gap) < wanted)
            lost = (sum(f - u for u, f, _ in given.values()), sum(r - f for _, f, r in given.values()))
            used = sum(u for u, _, _ in given.values())
            assert allocator.waste(wanted) == (used, *lost, small, slots.count("") - small)


def _adds_up_to_the_capacity(make: MakeAllocator) -> None:
    allocator = make(16)
    for name in "abc":
        allocator.allocate(name, 1, reserve=5, final=3)
        assert sum(allocator.waste(2)) == 16
    allocator.free("b")
    assert sum(allocator.waste(2)) == 16


def _one_after_the_other(make: MakeAllocator) -> None:
    allocator = make(8)
    for name in "abc":
        allocator.allocate(name, 2, reserve=8)
        allocator.append(name, 6)
        allocator.free(name)


def _begins_at_the_left(make: MakeAllocator) -> None:
    assert make(8).allocate("a", 1, reserve=2) == 0


ACCEPTS, REST = "right allocators pass", "it catches every bug in the bank"


def _swallows_its_own_words(make: MakeAllocator) -> None:
    with contextlib.suppress(Exception):
        check_allocator(make)


CONTIGUOUS_TESTS = BugHunt(
    id="06.bugs",
    title="Tests that a broken allocator cannot pass",
    reference=check_allocator,
    budget=10_000_000,
    bank=CONTIGUOUS_BUGS,
    properties=CONTIGUOUS_BUGS.properties(ACCEPTS, REST),
    mutants=[
        Mutant("wants the first slot", _begins_at_the_left, ACCEPTS, "Any slot is as good as another."),
        Mutant("adds up to the capacity", _adds_up_to_the_capacity, REST, "A sum does not see what is in the wrong column."),
        Mutant("swallows its own words", _swallows_its_own_words, REST, "`except Exception` catches AssertionError too."),
        Mutant("one after the other", _one_after_the_other, REST, "Holes come from requests that end between others."),
    ],
    alternatives=[_slot_by_slot],
)  # fmt: skip
