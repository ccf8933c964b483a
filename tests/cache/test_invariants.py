"""A check that cannot fail checks nothing: each invariant is broken by hand once, and must be named.

(mini-sglang #149 is about an integrity check that could never fail.)
"""

from __future__ import annotations

from array import array

import pytest

from mini_engine.cache import CacheOp
from mini_engine.cache.block_pool import BlockPool
from mini_engine.cache.invariants import check_idle, check_manager, check_ops, check_pool, unchanged_on_failure
from tests.cache.world import World


def busy_world(prefix_index: str = "hash") -> World:
    """a has blocks 1, 2, 3 with 9 computed tokens, b shares 1 and 2 and has 4; 5 and 6 are cached and free."""
    world = World(8, 4, prefix_index=prefix_index, num_swap_blocks=4)
    world.prefill(world.add("a", list(range(1, 10))))
    world.prefill(world.add("b", list(range(1, 10))))
    world.run("c", list(range(50, 58)))
    assert [request.block_table for request in world.requests] == [[1, 2, 3], [1, 2, 4]]
    world.check()
    return world


def count_wrong(world):
    world.manager.pool._refs[1] += 1


def count_lost(world):
    world.manager.pool._refs[3] = 0


def length_wrong(world):
    world.manager.pool.free_queue._length -= 1


def block_both_free_and_used(world):
    world.manager.pool.free_queue.pop(1)
    world.manager.pool.free_queue.push_blank(3)


def cached_before_blank(world):
    queue = world.manager.pool.free_queue
    queue.remove(5)
    queue._insert_after(0, 5)


def gauge_wrong(world):
    world.manager.pool.num_cached += 1


def published_too_early(world):
    world.requests[0].num_computed_tokens = 7
    world.requests[1].num_computed_tokens = 7


def other_tokens(world):
    world.requests[0].token_ids[1] = 99


def published_partly(world):
    entry = world.manager.index._entry_of[5]
    entry.tokens = array("q", [50, 51, 52])


def only_in_pool(world):
    world.manager.index.evict(6)


def only_in_index(world):
    world.manager.pool._published[6] = False
    world.manager.pool.num_cached -= 1


def table_too_short(world):
    request = world.requests[1]
    world.manager.pool.release([request.block_table.pop()])


def table_does_not_cover(world):
    world.requests[0].num_computed_tokens = 13


def block_twice(world):
    request = world.requests[1]
    world.manager.pool.release([request.block_table[0]])
    world.manager.pool.touch([request.block_table[1]])
    request.block_table[0] = request.block_table[1]


def swapped_but_lost(world):
    world.manager.swap_out(world.requests[0])
    world.requests[0].num_computed_tokens = 4


def unknown_holder(world):
    del world.manager._sequences["b", 0]


def dead_holder(world):
    world.requests.pop()


@pytest.mark.parametrize(
    ("corrupt", "message"),
    [
        (count_wrong, "I2: block 1 has count 3"),
        (count_lost, "I1: "),
        (length_wrong, "I1: 3 free"),
        (block_both_free_and_used, "I3: block 3 is in the free queue"),
        (cached_before_blank, "I3: a blank block stands behind a cached one"),
        (gauge_wrong, "I3: 5 cached"),
        (published_too_early, "I4: block 2 of request 'a' .* 7 of its 8"),
        (other_tokens, "I4: block 1 of request 'a' .* other tokens"),
        (published_partly, "I4: block [56] is published with [37] tokens"),
        (only_in_pool, "I5: only in the index: .*only in the pool: .*6"),
        (only_in_index, "I5: only in the index: .6"),
        (table_too_short, "I6: request 'b' .* 2 blocks for 9"),
        (table_does_not_cover, "I6: request 'a' .* 13 tokens"),
        (block_twice, "I6: request 'b' .* twice"),
        (swapped_but_lost, "I6: request 'a' .* swapped out, 1 host"),
        (unknown_holder, "I6: request 'b' .* unknown"),
        (dead_holder, "I2: request .*'b'.* not alive"),
    ],
)
def test_each_corruption_is_named(corrupt, message):
    world = busy_world()
    corrupt(world)
    with pytest.raises(AssertionError, match=message):
        check_manager(world.manager, world.requests)


@pytest.mark.parametrize("num_blocks", [1, 2, 5])
def test_a_free_queue_that_runs_in_a_circle_is_named(num_blocks):
    pool = BlockPool(num_blocks)
    check_pool(pool)
    pool.free_queue._next[num_blocks] = 1
    with pytest.raises(AssertionError, match="I3: block 1 is in the free queue 2 times"):
        check_pool(pool)


def test_a_write_to_a_shared_or_published_block_is_named():
    world = busy_world()
    a, b = world.requests
    check_manager(world.manager, world.requests, {("a", 0): 3})
    a.num_computed_tokens = b.num_computed_tokens = 8
    check_manager(world.manager, world.requests, {("a", 0): 1})
    world.fork(a, 1)
    world.manager.pool.touch([3])
    world.requests[-1].block_table.append(3)
    world.manager._sequences["a", 1].num_allocated = 9
    with pytest.raises(AssertionError, match=r"I7: request 'a' \(branch 0\) is about to write to Block\(block_id=3"):
        check_manager(world.manager, world.requests, {("a", 0): 1})


def test_scheduled_tokens_must_be_covered():
    world = busy_world()
    with pytest.raises(AssertionError, match=r"I6: request 'a' .* 13 tokens"):
        check_manager(world.manager, world.requests, {("a", 0): 4})


@pytest.mark.parametrize("prefix_index", ["hash", "radix"])
def test_a_broken_index_is_named(prefix_index):
    world = busy_world(prefix_index)
    index = world.manager.index
    if prefix_index == "hash":
        index._entry_of[6], index._entry_of[5] = index._entry_of[5], index._entry_of[6]
    else:
        index._depth_of[6] = 0
    with pytest.raises(AssertionError, match=r"I5: block [56]"):
        check_manager(world.manager, world.requests)


def test_an_operation_on_a_freed_block_is_named():
    world = busy_world()
    check_ops(world.manager, [CacheOp("copy", 1, 3)])
    for op in (CacheOp("copy", 3, 7), CacheOp("swap_in", 1, 7), CacheOp("swap_out", 3, 1)):
        with pytest.raises(AssertionError, match=r"I11: operation 0, .* which nobody holds"):
            check_ops(world.manager, [op])
    check_ops(world.manager, [CacheOp("copy", 3, 7), CacheOp("swap_out", 7, 1), CacheOp("swap_in", 1, 3)])


def test_a_failure_that_changes_something_is_named():
    world = busy_world()

    def half_done():
        with unchanged_on_failure(world.manager, world.requests):
            world.manager.pool.allocate(1)
            raise MemoryError

    with pytest.raises(AssertionError, match=r"I10: .* left the free blocks changed"):
        half_done()
    with unchanged_on_failure(world.manager, world.requests):
        world.manager.pool.allocate(1)  # no failure, no complaint


def test_an_idle_manager_holds_and_remembers_nothing():
    world = busy_world()
    for request in list(world.requests):
        world.free(request)
    check_idle(world.manager)
    world.manager.match(world.add("d", [1, 2, 3, 4, 5]))
    with pytest.raises(AssertionError, match=r"I14: .*remembered: .*'d'"):
        check_idle(world.manager)
    world.manager.free(world.requests[0])
    world.manager.host_pool.allocate(1)
    with pytest.raises(AssertionError, match=r"I2: host block 1|I14: .* host block 1 has count 1"):
        check_idle(world.manager)
