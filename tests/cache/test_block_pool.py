"""The block pool against a model of plain lists, and its refusals one by one."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mini_engine.cache import NULL_BLOCK, BlockPool, NoFreeBlocksError
from mini_engine.cache.invariants import check_pool


class PoolMachine(RuleBasedStateMachine):
    """The model: two lists, oldest first, for the free blocks; a dictionary of counts for the others."""

    @initialize(num_blocks=st.integers(0, 9))
    def start(self, num_blocks):
        self.evicted: list[int] = []
        self.pool = BlockPool(num_blocks, on_evict=self.evicted.append)
        self.blank = list(range(1, num_blocks + 1))
        self.cached: list[int] = []
        self.refs: dict[int, int] = {}
        self.published: set[int] = set()

    @rule(n=st.integers(-1, 10))
    def allocate(self, n):
        if n < 0 or n > len(self.blank) + len(self.cached):
            with pytest.raises(ValueError if n < 0 else NoFreeBlocksError):
                self.pool.allocate(n)
            return
        order = self.blank + self.cached
        expected, self.evicted[:] = order[:n], []
        lost = [block for block in expected if block in self.cached]
        assert self.pool.allocate(n) == expected
        assert self.evicted == lost
        self.blank = self.blank[n:]
        self.cached = [block for block in self.cached if block not in lost]
        self.published -= set(lost)
        self.refs.update(dict.fromkeys(expected, 1))

    @rule(blocks=st.lists(st.integers(-1, 10), max_size=4))
    def touch(self, blocks):
        if any(block not in self.refs and block not in self.cached for block in blocks):
            with pytest.raises(ValueError, match="block"):
                self.pool.touch(blocks)
            return
        self.pool.touch(blocks)
        for block in blocks:
            self.refs[block] = self.refs.get(block, 0) + 1
        self.cached = [block for block in self.cached if block not in blocks]

    @rule(blocks=st.lists(st.integers(-1, 10), max_size=4))
    def release(self, blocks):
        if any(blocks.count(block) > self.refs.get(block, 0) for block in blocks):
            with pytest.raises(ValueError, match="block"):
                self.pool.release(blocks)
            return
        self.release_valid(blocks)

    @rule(data=st.data())
    def release_some(self, data):
        held = [block for block, count in self.refs.items() for _ in range(count)]
        self.release_valid(data.draw(st.permutations(held))[: data.draw(st.integers(0, len(held)))])

    def release_valid(self, blocks):
        self.pool.release(blocks)
        for block in reversed(blocks):
            self.refs[block] -= 1
            if not self.refs[block]:
                del self.refs[block]
                (self.cached if block in self.published else self.blank).append(block)

    @rule(blocks=st.lists(st.integers(0, 10), max_size=3, unique=True))
    def publish(self, blocks):
        if any(block not in self.refs or block in self.published for block in blocks):
            with pytest.raises(ValueError, match="block"):
                self.pool.publish(blocks)
            return
        self.pool.publish(blocks)
        self.published |= set(blocks)

    @rule(block=st.integers(0, 10))
    def evict(self, block):
        if block not in self.cached:
            with pytest.raises(ValueError, match="block"):
                self.pool.evict(block)
            return
        self.evicted[:] = []
        self.pool.evict(block)
        assert self.evicted == [block]
        self.cached.remove(block)
        self.published.remove(block)
        self.blank.append(block)

    @invariant()
    def pool_equals_model(self):
        if not hasattr(self, "pool"):
            return
        check_pool(self.pool)
        assert self.pool.free_blocks() == self.blank + self.cached
        assert self.pool.num_free == len(self.blank) + len(self.cached)
        assert self.pool.num_cached == len(self.published)
        assert set(self.pool.published_blocks()) == self.published
        for block in range(1, self.pool.num_blocks + 1):
            count, published = self.refs.get(block, 0), block in self.published
            assert self.pool.block(block) == (block, count, published)
            assert self.pool.is_private(block) == (count == 1 and not published)


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=150, stateful_step_count=40, suppress_health_check=list(HealthCheck))


def test_a_new_pool_hands_out_its_blocks_in_order_and_never_the_null_block():
    pool = BlockPool(3)
    assert pool.allocate(3) == [1, 2, 3]
    assert NULL_BLOCK not in {1, 2, 3}
    assert pool.num_free == 0


def test_allocation_is_all_or_nothing():
    pool = BlockPool(3)
    with pytest.raises(NoFreeBlocksError, match=r"4 KV cache blocks needed, 3 free") as raised:
        pool.allocate(4)
    assert isinstance(raised.value, MemoryError)
    assert (raised.value.needed, raised.value.free) == (4, 3)
    assert pool.free_blocks() == [1, 2, 3]


def test_an_empty_pool_and_an_empty_request_are_no_errors():
    assert BlockPool(0).allocate(0) == []
    pool = BlockPool(1)
    pool.release([])
    pool.touch([])
    assert pool.free_blocks() == [1]
    with pytest.raises(ValueError, match="num_blocks=-1"):
        BlockPool(-1)


def test_a_table_is_released_from_its_tail():
    pool = BlockPool(4)
    blocks = pool.allocate(4)
    pool.publish(blocks)
    pool.release(blocks)
    assert pool.free_blocks() == [4, 3, 2, 1]


def test_double_free_is_refused_and_changes_nothing():
    pool = BlockPool(2)
    a, b = pool.allocate(2)
    pool.release([a])
    with pytest.raises(ValueError, match="block 1 is free already"):
        pool.release([a, b])  # b is dropped first, then a is found to be free: b must be restored
    assert pool.ref_count(b) == 1
    assert pool.free_blocks() == [a]


def test_one_call_that_names_a_block_twice_vllm_42571():
    """vllm #42571/#42612: free([b, b]) with count 1 raised num_free by 2."""
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    with pytest.raises(ValueError, match="more often than it was held"):
        pool.release([block, block])
    assert (pool.ref_count(block), pool.num_free) == (1, 1)
    pool.touch([block])
    pool.release([block, block])  # held twice, released twice: fine, and one block is free
    assert (pool.ref_count(block), pool.num_free) == (0, 2)
    check_pool(pool)


def test_a_freed_block_given_to_another_cannot_be_freed_by_its_first_owner_again():
    """free(a), allocate to b, free(a): counts alone cannot tell; but the third owner's release is then refused."""
    pool = BlockPool(1)
    first = pool.allocate(1)
    pool.release(first)
    second = pool.allocate(1)
    assert first == second
    pool.release(first)
    with pytest.raises(ValueError, match="free already"):
        pool.release(second)


def test_touching_a_blank_free_block_is_refused():
    pool = BlockPool(2)
    with pytest.raises(ValueError, match="holds nothing"):
        pool.touch([1])


@pytest.mark.parametrize("block", [-1, 0, 3])
def test_numbers_that_are_no_blocks_are_refused_everywhere(block):
    pool = BlockPool(2)
    calls = [
        lambda: pool.ref_count(block),
        lambda: pool.touch([block]),
        lambda: pool.release([block]),
        lambda: pool.publish([block]),
        lambda: pool.evict(block),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="numbered 1 to 2"):
            call()


def test_a_block_can_be_taken_back_until_it_is_reused():
    evicted = []
    pool = BlockPool(2, on_evict=evicted.append)
    blocks = pool.allocate(2)
    pool.publish(blocks)
    pool.release(blocks)
    pool.touch([blocks[0]])
    assert pool.free_blocks() == [blocks[1]]
    assert evicted == []
    assert pool.allocate(1) == [blocks[1]]
    assert evicted == [blocks[1]]


def test_reused_block_carries_no_hash_kvcached_362():
    """kvcached #362: a reused block kept the hash of its old content."""
    pool = BlockPool(1)
    pool.publish(pool.allocate(1))
    pool.release([1])
    assert pool.block(1).is_published
    assert not pool.block(pool.allocate(1)[0]).is_published
    assert pool.num_cached == 0
