"""The ablation: every rung changes one option, and what a step gains is what the simulator says, nothing included."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, replace

import pytest

from mini_engine.simulator import Efficiency, SimulationOptions
from mini_engine.simulator.ablation import (
    BASE,
    ORDER,
    OTHER_ORDER,
    STEPS,
    Service,
    alone,
    ladder,
    measure,
    rungs,
    rungs_alone,
    table,
)
from tests.simulator.helpers import trace_of

QUARTERS = {"efficiency": Efficiency(flops=1000, bandwidth=1000, step_overhead=0.25)}
# Twenty pairs, a short answer and a long one; two seats.
TINY = {
    "trace": trace_of(*((float(i // 2), 8, 2 + 4 * (i % 2)) for i in range(40))),
    "ttft": 1.01,
    "tpot": 0.26,
    "meeting": 1,
    "rate": 1.0,
    "within": 0.01,
    "options": {"max_num_seqs": 2, **QUARTERS},
}


def differing(a: dict, b: dict) -> list[str]:
    return [name for name in a if a[name] != b[name]]


@pytest.mark.parametrize("order", [ORDER, OTHER_ORDER])
def test_each_rung_differs_from_the_one_before_in_one_option(order):
    found = rungs(order)
    assert found[0].options == BASE
    assert len(found) == 5
    for name, before, after in zip(order, found, found[1:]):
        option, value = STEPS[name]
        assert differing(before.options, after.options) == [option]
        assert (after.options[option], after.name) == (value, f"+ {name}")
    assert found[-1].options == {"batching": "chunked", "memory": "paged", "prefix_cache": True}
    assert set(BASE) <= set(SimulationOptions.__dataclass_fields__)
    for rung in found:
        SimulationOptions(**rung.options)


def test_alone_each_step_differs_from_the_base_in_one_option():
    base, *others = rungs_alone()
    assert [each.name for each in others] == [f"{name} alone" for name in STEPS]
    for name, rung in zip(STEPS, others):
        assert differing(base.options, rung.options) == [STEPS[name][0]]


@pytest.mark.parametrize(
    "order",
    [("pagging",), ("paging", "paging"), ("chunking", "iteration-level"), ("chunking", "paging", "iteration-level")],
)
def test_an_order_that_makes_no_sense(order):
    with pytest.raises(ValueError, match="order"):
        rungs(order)


def test_every_order_that_makes_sense_ends_at_the_same_options():
    sensible = [
        each for each in itertools.permutations(STEPS) if each.index("iteration-level") < each.index("chunking")
    ]
    assert len(sensible) == 12
    assert len({json.dumps(rungs(each)[-1].options, sort_keys=True) for each in sensible}) == 1


def test_a_tiny_case_by_hand():
    """Static: a pair takes the 6 steps of its long answer, 1.5 s, and 4 of its 12 places are padding. Pair k of 0 to 19 comes
    after k / 19 of 40 / rate seconds and gets its first tokens after 1.5 k + 0.25: the last one is on time, 1.01 s, up to a
    rate of 40 / (1.5 * 19 + 0.25 - 1.01). Iteration-level: both seats give a token in each step, so 160 tokens take 20 s
    and no less, the last long answer begins 1.25 s before the end, and 40 / (18.75 - 1.01) a second is out of reach.
    """
    static, paging, iteration, chunking, prefix = ladder(**TINY)
    assert static.capacity == paging.capacity == pytest.approx(40 / (1.5 * 19 + 0.25 - 1.01), rel=0.01)
    assert iteration.capacity == chunking.capacity == prefix.capacity
    assert 2 < iteration.capacity < 40 / (18.75 - 1.01)
    assert static.padding == pytest.approx(4 / (2 * 8 + 10))  # of 16 prompt tokens and 10 decodes
    assert iteration.padding == 0
    assert static.slots_used is not None
    assert static.slots_used < 0.01  # of regions for 8,192 tokens
    assert paging.slots_used > 0.5


def test_paging_gains_nothing_where_seats_are_the_limit_and_something_where_memory_is():
    """Regions of 8,192 tokens: a pool of 16,384 holds two. Two seats need no more; eight seats do."""
    for seats, gains in ((2, False), (8, True)):
        options = {"max_num_seqs": seats, "num_blocks": 1024, **QUARTERS}
        reserved, paged = ladder(("iteration-level", "paging"), **TINY | {"options": options})[1:]
        assert (paged.capacity > 1.5 * reserved.capacity) is gains


def test_the_prefix_cache_gains_nothing_without_pages_or_without_shared_prefixes():
    rows = {row.name: row for row in alone(**TINY)}
    same = replace(rows["prefix cache alone"], name=rows["static, reserved"].name, changed="")
    assert same == rows["static, reserved"]
    *_, chunking, prefix = ladder(**TINY)
    assert (prefix.hits, prefix.capacity) == (0, chunking.capacity)


def test_the_small_service_shows_that_gains_depend_on_the_order():
    """The prefix cache is worth several times the capacity, and a step that brings it to life gets the credit."""
    service = Service(within=0.3, options={"max_num_seqs": 64})
    first = measure([*rungs(), *rungs(OTHER_ORDER)], service)
    one, other = first[:5], first[5:]
    assert replace(one[-1], name="", changed="") == replace(other[-1], name="", changed="")
    assert one[4].capacity > 3 * one[3].capacity
    assert other[3].capacity == other[2].capacity  # the same step, without pages
    assert other[4].capacity > 3 * other[3].capacity
    assert one[1].capacity == one[0].capacity  # pages alone do not help who waits for a batch to end
    assert one[3].itl_p99 < one[2].itl_p99 / 2
    text = table(first)
    assert max(map(len, text.splitlines())) <= 79
    assert len(text.splitlines()) == 11
    json.dumps([asdict(row) for row in first], allow_nan=False)


def test_a_promise_that_cannot_be_kept_leaves_a_row_that_says_so():
    rows = ladder(("iteration-level",), **TINY | {"ttft": 0.1})
    assert [row.capacity for row in rows] == [0, 0]
    assert "0% meet the limits" in table(rows)


def test_rows_with_the_same_options_are_simulated_once():
    class Counting:
        asked = 0

        def submit(self, fn, *args):
            self.asked += 1
            result = fn(*args)
            return type("Done", (), {"result": lambda self: result})()

    executor = Counting()
    small = Service(**TINY | {"trace": TINY["trace"].head(6), "within": 1.0})
    rows = measure([*rungs(), *rungs(OTHER_ORDER), *rungs_alone()], small, executor)
    assert len(rows) == 15
    assert executor.asked == 9
