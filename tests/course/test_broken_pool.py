"""Each defect of the broken pool: a scenario that fails there and passes on the engine's own arrays and tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mini_engine.attention import decode_attention
from mini_engine.course.broken_pool import PagedKVPool, check_pool
from mini_engine.course.defects import DEFECTS
from tests.course.allocator_benches import refused
from tests.course.pool_benches import BrokenPoolBench, EnginePoolBench

SCENARIOS: dict[str, tuple[Callable[[Any], None], type[Exception]]] = {}


def shows(name: str, error: type[Exception] = AssertionError) -> Callable[[Callable[[Any], None]], None]:
    """Enter a scenario under the name of its defect, with the error that it ends in on the broken pool."""

    def enter(scenario: Callable[[Any], None]) -> None:
        SCENARIOS[name] = scenario, error

    return enter


def numbers(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """K and V of n tokens, of 2 heads of size 4; exact in float32."""
    k, v = np.random.default_rng(seed).integers(-64, 64, size=(2, n, 2, 4)) / 8
    return k, v


def filled(make: Any, n: int, room: int | None = None, **options: int) -> tuple[Any, np.ndarray, np.ndarray]:
    bench, (k, v) = make(**options), numbers(n)
    bench.add("a", n if room is None else room)
    for position in range(n):
        bench.write("a", position, k[position], v[position])
    return bench, k, v


@shows("nothing can be read back", AttributeError)
def _(make: Any) -> None:
    for n in (1, 3, 4, 5, 9):
        bench, k, v = filled(make, n)
        q = np.random.default_rng(1).normal(size=(4, 4))
        np.testing.assert_allclose(bench.attend("a", q, 0.5), decode_attention(q, k, v, 0.5), rtol=1e-12)


@shows("nothing is ever given back", AttributeError)
def _(make: Any) -> None:
    bench = make(num_blocks=1)
    for name in "abc":
        bench.add(name, 3)
        bench.free(name)


@shows("a larger pool is slower")
def _(make: Any) -> None:
    assert make.work_of_one_block(10) == make.work_of_one_block(10_000)


@shows("position -1 writes into the last slot")
def _(make: Any) -> None:
    bench, k, v = filled(make, 8)
    refused(lambda: bench.write("a", -1, k[0] + 100, v[0] + 100), (ValueError, IndexError))  # or nothing happens
    assert np.array_equal(bench.peek("a", 8)[0], k)


@shows("a wrong shape is spread over the heads")
def _(make: Any) -> None:
    for wrong in (3.0, np.ones(4), np.ones((1, 4)), np.ones((2, 1))):
        bench, _, v = filled(make, 1, room=2)
        assert refused(lambda bench=bench, wrong=wrong, v=v: bench.write("a", 1, wrong, v[0]), ValueError)


@shows("a table cannot grow", IndexError)
def _(make: Any) -> None:
    bench, k, _ = filled(make, 9, room=4)
    assert np.array_equal(bench.peek("a", 9)[0], k)


@shows("numbers come back rounded")
def _(make: Any) -> None:
    bench, third = make(), np.full((2, 4), 1 / 3)
    bench.add("a", 1)
    bench.write("a", 0, third, third)
    assert np.array_equal(bench.peek("a", 1)[0][0], third)


@shows("one layer for a whole model")
def _(make: Any) -> None:
    bench, (k, v) = make(layers=2), numbers(2)
    bench.add("a", 1)
    for layer in (0, 1):
        bench.write("a", 0, k[layer], v[layer], layer=layer)
    assert np.array_equal(bench.peek("a", 1, layer=0)[0][0], k[0])


@shows("the values are the keys")
def _(make: Any) -> None:
    bench, k, v = filled(make, 9)
    assert np.array_equal(bench.peek("a", 9)[0], k)
    assert np.array_equal(bench.peek("a", 9)[1], v)


@shows("no branch can be made", AttributeError)
def _(make: Any) -> None:
    bench, k, _ = filled(make, 5)
    bench.fork("a", "b")
    assert np.array_equal(bench.peek("b", 5)[0], k)


@shows("a write to a shared block changes the sibling")
def _(make: Any) -> None:
    bench, _, _ = filled(make, 5, room=6)
    bench.share("a", "b")
    k, v = numbers(2, seed=1)
    bench.write("a", 5, k[0], v[0])
    bench.write("b", 5, k[1], v[1])
    assert np.array_equal(bench.peek("a", 6)[0][5], k[0])
    assert np.array_equal(bench.peek("b", 6)[0][5], k[1])
    assert np.array_equal(bench.peek("a", 5)[0], bench.peek("b", 5)[0])


def test_every_defect_has_its_scenario() -> None:
    assert list(SCENARIOS) == [defect.name for defect in DEFECTS if defect.where == "pool"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_engine_does_not_have_it(name: str) -> None:
    scenario, _ = SCENARIOS[name]
    scenario(EnginePoolBench)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_broken_pool_has_it(name: str) -> None:
    scenario, error = SCENARIOS[name]
    with pytest.raises(error) as caught:
        scenario(BrokenPoolBench)
    assert caught.type is error


def test_its_own_check_finds_nothing() -> None:
    """One token, K alone, and V equal to K."""
    check_pool()


def test_what_the_broken_pool_does_well() -> None:
    """Else nobody would believe in it: keys of many tokens over many blocks, and a full pool says so."""
    bench, k, _ = filled(BrokenPoolBench, 9)
    assert np.array_equal(bench.peek("a", 9)[0], k)
    assert bench.pool.utilization == 3 / 8
    pool = PagedKVPool(2, 4, 1, 1)
    assert refused(lambda: pool.add("a", 9))


def test_names_are_unique() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)
    assert {defect.lesson for defect in DEFECTS} == {"07", "08", "09"}
