"""Each defect of the broken allocator: a scenario that fails there and passes on the engine's own manager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mini_engine.course.defects import DEFECTS
from tests.course.allocator_benches import BrokenBench, EngineBench, refused

SCENARIOS: dict[str, tuple[Callable[[Any], None], type[Exception]]] = {}


def shows(name: str, error: type[Exception] = AssertionError) -> Callable[[Callable[[Any], None]], None]:
    """Enter a scenario under the name of its defect, with the error that it ends in on the broken allocator."""

    def enter(scenario: Callable[[Any], None]) -> None:
        SCENARIOS[name] = scenario, error

    return enter


@shows("a second release goes unnoticed")
def _(make: Any) -> None:
    bench = make(2, 4)
    bench.start("a", [1, 2])
    bench.release("a")
    bench.release("a")
    assert bench.counts() == [0, 0]


@shows("a late release takes a block from its new owner")
def _(make: Any) -> None:
    bench = make(1, 4)
    bench.start("a", [1, 2])
    bench.release("a")
    bench.start("b", [5, 6])
    bench.release("a")
    assert refused(lambda: bench.start("c", [7]))


@shows("a released sequence still has its blocks")
def _(make: Any) -> None:
    bench = make(1, 4)
    bench.start("a", [1, 2])
    bench.release("a")
    bench.start("b", [5, 6])
    assert refused(lambda: bench.append("a", 99), ValueError)
    assert bench.contents("b") == [5, 6]


@shows("an empty prompt cannot grow", IndexError)
def _(make: Any) -> None:
    bench = make(2, 4)
    bench.start("a", [])
    bench.append("a", 1)
    assert bench.contents("a") == [1]


@shows("nobody can ask first", AttributeError)
def _(make: Any) -> None:
    bench = make(2, 4)
    assert [bench.can_start(range(length)) for length in (0, 8, 9)] == [True, True, False]
    assert bench.num_free == 2


@shows("nothing can be shared on purpose", AttributeError)
def _(make: Any) -> None:
    bench = make(2, 4)
    bench.start("a", [1, 2])
    bench.fork("a", "b")
    bench.append("b", 3)
    bench.append("a", 4)
    assert (bench.contents("a"), bench.contents("b")) == ([1, 2, 4], [1, 2, 3])


@shows("a copy gives up the shared block first")
def _(make: Any) -> None:
    bench = make(1, 4)
    bench.start("a", [1, 2])
    bench.share("a", "b")
    for _ in range(2):
        assert refused(lambda: bench.append("b", 9)), bench.contents("a")
    assert bench.counts() == [2]


@shows("nobody is told of a copy")
def _(make: Any) -> None:
    bench = make(2, 4)
    bench.start("a", [1, 2])
    bench.share("a", "b")
    assert bench.append("b", 3) == [(bench.table("a")[0], bench.table("b")[0])]


@shows("a refused prompt keeps what it took")
def _(make: Any) -> None:
    bench = make(4, 4)
    bench.start("a", range(9))
    bench.release("a")
    assert refused(lambda: bench.start("b", range(24)))
    assert (bench.num_free, bench.counts()) == (4, [0] * 4)


@shows("blocks filled by decoding are lost to the cache")
def _(make: Any) -> None:
    bench = make(8, 4)
    bench.start("a", [1, 2, 3])
    bench.append("a", 4, 5)
    bench.release("a")
    assert bench.look_up([1, 2, 3, 4, 9]) == 4


@shows("the head of a prompt goes first")
def _(make: Any) -> None:
    bench = make(4, 2)
    bench.start("a", range(8))
    bench.release("a")
    bench.start("b", [50])
    assert bench.look_up(range(9)) == 6


@shows("a full hit leaves nothing to compute")
def _(make: Any) -> None:
    bench = make(4, 4)
    bench.start("a", range(8))
    bench.release("a")
    assert bench.start("b", range(8)) == 4


@shows("a block is found before it is computed")
def _(make: Any) -> None:
    bench = make(8, 4)
    bench.start("a", range(16), computed=False)
    assert bench.look_up(range(9)) == 0


@shows("a token out of range stops halfway", OverflowError)
def _(make: Any) -> None:
    bench = make(4, 2)
    for bad in (2**70, -(2**70)):
        assert refused(lambda bad=bad: bench.start("a", [1, 2, bad, 3]), ValueError)
        assert bench.num_free == 4


@shows("a name is believed")
def _(make: Any) -> None:
    bench = make(4, 2, weak_names=True)
    bench.start("a", [1, 2, 9])
    assert bench.look_up([3, 7, 9]) == 0


@shows("one cache for all tenants", TypeError)
def _(make: Any) -> None:
    bench = make(4, 2)
    bench.start("a", [1, 2, 9], cache_salt="ann")
    assert [bench.look_up([1, 2, 9], cache_salt=salt) for salt in ("ann", "bob")] == [2, 0]


@shows("an evicted twin takes the name along")
def _(make: Any) -> None:
    bench = make(8, 2)
    bench.start("a", [1, 2, 3, 4, 5])
    head, tail, _ = bench.table("a")
    bench.release("a")
    bench.evict(head)
    bench.start("b", [1, 2, 3, 4, 5])
    bench.evict(tail)
    assert bench.look_up([1, 2, 3, 4, 5]) == 4


@shows("blank blocks wait behind cached ones")
def _(make: Any) -> None:
    bench = make(3, 4)
    bench.start("a", [1, 2, 3, 4])
    bench.release("a")
    bench.start("b", [50, 51])
    bench.release("b")
    bench.start("c", range(60, 68))
    assert bench.look_up([1, 2, 3, 4, 9]) == 4


def test_every_defect_has_its_scenario() -> None:
    assert list(SCENARIOS) == [defect.name for defect in DEFECTS if defect.where == "allocator"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_engine_does_not_have_it(name: str) -> None:
    scenario, _ = SCENARIOS[name]
    scenario(EngineBench)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_broken_allocator_has_it(name: str) -> None:
    scenario, error = SCENARIOS[name]
    with pytest.raises(error) as caught:
        scenario(BrokenBench)
    assert caught.type is error


def test_what_the_broken_allocator_does_well() -> None:
    """Else nobody would believe in it: prompts, growth, hits, eviction."""
    bench = BrokenBench(6, 2)
    assert bench.start("a", [1, 2, 3, 4, 5]) == 0
    bench.append("a", 6, 7)
    assert bench.contents("a") == [1, 2, 3, 4, 5, 6, 7]
    assert bench.num_free == 2
    assert bench.start("b", [1, 2, 3, 4, 9]) == 4
    assert bench.table("b")[:2] == bench.table("a")[:2]
    assert bench.counts()[:2] == [2, 2]
    assert refused(lambda: bench.append("b", 8, 8, 8, 8))
    for name in ("a", "b"):
        bench.release(name)
    assert (bench.num_free, bench.counts()) == (6, [0] * 6)
    assert bench.look_up([1, 2, 8, 8, 3, 4]) == 2  # the chain stops at the first miss
