"""The shortest way to each defect of the broken pool: scenario(make) raises where it is, and returns where it is not.

make(num_blocks=8, block_size=4, layers=1) gives a bench with 2 heads of size 4, see `benches`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from mini_engine.attention import decode_attention
from mini_engine.course.defects.benches import refused
from mini_engine.course.defects.scenario import Scenarios
from mini_engine.course.expect import expect, expect_close

POOL_SCENARIOS = Scenarios()


def _numbers(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """K and V of n tokens; exact in float32."""
    k, v = np.random.default_rng(seed).integers(-64, 64, size=(2, n, 2, 4)) / 8
    return k, v


def _filled(make: Any, n: int, room: int | None = None, **options: int) -> tuple[Any, np.ndarray, np.ndarray]:
    bench, (k, v) = make(**options), _numbers(n)
    bench.add("a", n if room is None else room)
    for position in range(n):
        bench.write("a", position, k[position], v[position])
    return bench, k, v


def _expect_keys(bench: Any, name: str, want: np.ndarray, case: str, layer: int = 0) -> None:
    expect_close(bench.peek(name, len(want), layer)[0], want, case, rtol=0, same_dtype=False)


@POOL_SCENARIOS.shows("nothing can be read back", AttributeError)
def _read(make: Any) -> None:
    q = np.random.default_rng(1).normal(size=(4, 4))
    for n in (1, 3, 4, 5, 9):
        bench, k, v = _filled(make, n)
        want = decode_attention(q, k, v, 0.5)
        expect_close(bench.attend("a", q, 0.5, n), want, f"attention over {n} tokens in blocks of 4", same_dtype=False)


@POOL_SCENARIOS.shows("nothing is ever given back", AttributeError)
def _free(make: Any) -> None:
    bench = make(num_blocks=1)
    for name in "abc":
        bench.add(name, 3)
        bench.free(name)


@POOL_SCENARIOS.shows("a larger pool is slower")
def _slow(make: Any) -> None:
    work = [make(num_blocks=num_blocks).work_of_one_block() for num_blocks in (10, 1000)]
    expect(work[0] == work[1], "take a block of 10, and one of 1000", work=str(work))


@POOL_SCENARIOS.shows("position -1 writes into the last slot")
def _padding(make: Any) -> None:
    bench, k, v = _filled(make, 8)
    refused(lambda: bench.write("a", -1, k[0] + 100, v[0] + 100), (ValueError, IndexError))  # or nothing happens
    _expect_keys(bench, "a", k, "write 8 tokens, then one at position -1: the keys")


@POOL_SCENARIOS.shows("a wrong shape is spread over the heads")
def _shape(make: Any) -> None:
    for wrong in (np.array(3.0), np.ones(4), np.ones((1, 4)), np.ones((2, 1))):
        bench, _, v = _filled(make, 1, room=2)
        case = f"write a key of shape {wrong.shape} for 2 heads of size 4"
        expect(refused(partial(bench.write, "a", 1, wrong, v[0]), ValueError), case, expected="ValueError")


@POOL_SCENARIOS.shows("a table cannot grow", IndexError)
def _grow(make: Any) -> None:
    bench, k, _ = _filled(make, 9, room=4)
    _expect_keys(bench, "a", k, "room for 4 tokens, 9 written: the keys")


@POOL_SCENARIOS.shows("numbers come back rounded")
def _precision(make: Any) -> None:
    bench, third = make(), np.full((2, 4), 1 / 3)
    bench.add("a", 1)
    bench.write("a", 0, third, third)
    _expect_keys(bench, "a", third[None], "write 1/3 in float64: the key")


@POOL_SCENARIOS.shows("one layer for a whole model")
def _layers(make: Any) -> None:
    bench, (k, v) = make(layers=2), _numbers(2)
    bench.add("a", 1)
    for layer in (0, 1):
        bench.write("a", 0, k[layer], v[layer], layer=layer)
    _expect_keys(bench, "a", k[:1], "write one token in layer 0, then in layer 1: layer 0's key")


@POOL_SCENARIOS.shows("the values are the keys")
def _values(make: Any) -> None:
    for n in (1, 9):
        bench, k, v = _filled(make, n)
        _expect_keys(bench, "a", k, f"write {n} token{'s' * (n > 1)}: the keys")
        expect_close(bench.peek("a", n)[1], v, f"write {n} token{'s' * (n > 1)}: the values", rtol=0, same_dtype=False)


@POOL_SCENARIOS.shows("no branch can be made", AttributeError)
def _branch(make: Any) -> None:
    bench, k, _ = _filled(make, 5)
    bench.fork("a", "b")
    _expect_keys(bench, "b", k, "fork b from a: b's keys")


@POOL_SCENARIOS.shows("a write to a shared block changes the sibling")
def _sibling(make: Any) -> None:
    bench, k, _ = _filled(make, 5, room=6)
    bench.share("a", "b")
    new_k, new_v = _numbers(2, seed=1)
    for name, i in (("a", 0), ("b", 1)):
        bench.write(name, 5, new_k[i], new_v[i])
    for name, i in (("a", 0), ("b", 1)):
        case = f"a and b share 5 tokens, each writes its sixth: {name}'s keys"
        _expect_keys(bench, name, np.concatenate([k, new_k[i : i + 1]]), case)
