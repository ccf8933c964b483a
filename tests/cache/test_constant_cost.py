"""The work per block does not depend on the size of the pool: counted in executed bytecodes, not in time."""

from __future__ import annotations

import os
import sys
from collections import Counter

import pytest

import mini_engine.cache
from mini_engine.cache import KVCacheManager
from tests.cache.world import FakeRequest

CACHE = os.path.dirname(mini_engine.cache.__file__)
SIZE = 4


class Count:
    """Bytecodes executed in mini_engine.cache, and calls of built-in functions made from there."""

    def __init__(self) -> None:
        self.bytecodes = 0
        self.builtins: Counter[str] = Counter()

    def __enter__(self):
        self._before = sys.gettrace(), sys.getprofile()
        sys.setprofile(self._profile)
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(self._before[0])
        sys.setprofile(self._before[1])

    def _trace(self, frame, event, _):
        if not frame.f_code.co_filename.startswith(CACHE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.bytecodes += event == "opcode"
        return self._trace

    def _profile(self, frame, event, function):
        if event == "c_call" and frame.f_code.co_filename.startswith(CACHE):
            self.builtins[function.__name__] += 1


def serve(manager: KVCacheManager, first: int, num_blocks: int) -> None:
    """A prompt's whole life: match, allocate, publish, free."""
    request = FakeRequest("a", list(range(first, first + num_blocks * SIZE)))
    manager.match(request)
    request.num_computed_tokens = manager.allocate(request, len(request.token_ids))
    request.num_computed_tokens = len(request.token_ids)
    manager.publish(request)
    manager.free(request)


def counted(prefix_index: str, pool_blocks: int, num_blocks: int, first: int) -> Count:
    """Serve a prompt in a pool where one of 400 blocks, beginning with token 0, is cached already."""
    manager = KVCacheManager(pool_blocks, SIZE, prefix_index=prefix_index)
    serve(manager, 0, 400)
    with Count() as count:
        serve(manager, first, num_blocks)
    return count


@pytest.mark.parametrize("prefix_index", ["hash", "radix"])
@pytest.mark.parametrize("first", [0, 10_000], ids=["all hit", "no hit"])
def test_work_is_equal_in_pools_of_a_thousand_and_of_a_million_blocks(prefix_index, first):
    small, medium, large = (counted(prefix_index, n, 300, first) for n in (1_000, 30_000, 1_000_000))
    assert small.bytecodes > 300
    assert small.bytecodes == medium.bytecodes == large.bytecodes
    assert small.builtins == medium.builtins == large.builtins


@pytest.mark.parametrize("prefix_index", ["hash", "radix"])
@pytest.mark.parametrize("first", [0, 10_000], ids=["all hit", "no hit"])
def test_work_grows_by_the_same_amount_with_every_block(prefix_index, first):
    a, b, c = (counted(prefix_index, 2_000, n, first) for n in (100, 200, 300))
    assert b.bytecodes - a.bytecodes == c.bytecodes - b.bytecodes
    assert (b.bytecodes - a.bytecodes) / 100 < 600


@pytest.mark.parametrize("prefix_index", ["hash", "radix"])
def test_evicting_costs_the_same_in_any_pool(prefix_index):
    """The pool is full of cached blocks: every block taken is one evicted."""
    counts = []
    for pool_blocks in (400, 8_000):
        manager = KVCacheManager(pool_blocks, SIZE, prefix_index=prefix_index)
        for first in range(0, pool_blocks, 200):
            serve(manager, 1_000 * first, 200)
        assert manager.num_cached_blocks == pool_blocks
        with Count() as count:
            serve(manager, -10_000, 200)
        counts.append(count)
    assert counts[0].bytecodes == counts[1].bytecodes


@pytest.mark.parametrize("prefix_index", ["hash", "radix"])
def test_no_builtin_that_searches_or_shifts_is_called(prefix_index):
    """list.remove and its like cost time in proportion to the list and would not show in bytecodes."""
    called = {name for first in (0, 10_000) for name in counted(prefix_index, 1_000, 50, first).builtins}
    assert "append" in called
    assert not called & {"remove", "index", "insert", "count", "sort", "sorted", "rotate"}


def test_a_decode_step_costs_the_same_at_any_context_length():
    counts = []
    for length in (1_000, 100_000):
        manager = KVCacheManager(30_000, SIZE)
        request = FakeRequest("a", list(range(length)))
        manager.allocate(request, length)
        request.num_computed_tokens = length - 1
        manager.publish(request)
        with Count() as count:
            manager.append(request)
            request.num_computed_tokens += 1
            request.token_ids.append(5)
            manager.publish(request)
        counts.append(count)
    assert counts[0].bytecodes == counts[1].bytecodes < 1_000
