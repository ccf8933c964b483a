"""The manager under random use: whatever is called in whatever order, no invariant breaks and every slot is right."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mini_engine.cache import BlockHasher, NoFreeBlocksError, WeakHasher
from mini_engine.cache.invariants import check_idle, unchanged_on_failure
from tests.cache.world import World

TOKENS = st.integers(0, 2)
WHICH = st.integers(0, 100)


class ManagerMachine(RuleBasedStateMachine):
    @initialize(
        num_blocks=st.one_of(st.integers(1, 6), st.integers(7, 30)),
        block_size=st.sampled_from([1, 2, 5, 16]),
        num_swap_blocks=st.integers(0, 12),
        prefix_index=st.sampled_from(["hash", "radix"]),
        caching=st.sampled_from([True, True, True, False]),
        weak=st.booleans(),
    )
    def start(self, num_blocks, block_size, num_swap_blocks, prefix_index, caching, weak):
        self.size = block_size
        self.weak = weak and prefix_index == "hash"
        self.caching = caching
        self.world = World(
            num_blocks,
            block_size,
            num_swap_blocks=num_swap_blocks,
            prefix_index=prefix_index,
            enable_prefix_caching=caching,
            hasher=WeakHasher() if self.weak else BlockHasher("m"),
        )
        self.manager = self.world.manager
        self.num_added = 0

    def those(self, wanted):
        return [request for request in self.world.requests if wanted(request)]

    def pick(self, which, wanted):
        able = self.those(wanted)
        return able[which % len(able)]

    def is_waiting(self, request):
        return not request.block_table and not request.num_computed_tokens and not self.manager.is_swapped(request)

    def is_running(self, request):
        return bool(request.block_table)

    def is_between_steps(self, request):
        return self.is_running(request) and request not in self.world.scheduled

    def attempt(self, num_needed, operation):
        """An operation that needs num_needed device blocks: it must succeed exactly when they are there."""
        free_before = self.manager.num_free_blocks
        try:
            with unchanged_on_failure(self.manager, self.world.requests):
                operation()
        except NoFreeBlocksError:
            assert num_needed > free_before, f"failed with {free_before} free, {num_needed} needed"
            return False
        assert self.manager.num_free_blocks == free_before - num_needed
        return True

    @rule(
        blocks=st.integers(0, 5),
        own=st.lists(TOKENS, min_size=1, max_size=20),
        salt=st.sampled_from([None, None, None, "a"]),
        adapter=st.sampled_from([None, None, None, "v1"]),
    )
    def arrive(self, blocks, own, salt, adapter):
        """A request that shares some blocks with the others, and goes to work at once if the pool has room."""
        common = [position % 3 for position in range(min(blocks, self.manager.pool.num_blocks) * self.size)]
        self.world.add(f"r{self.num_added}", common + own[: self.size + 2], cache_salt=salt, adapter=adapter)
        self.num_added += 1
        self.admit(-1, 1.0)

    @precondition(lambda self: self.those(self.is_waiting))
    @rule(which=WHICH, share=st.sampled_from([0.0, 0.3, 1.0, 1.0, 1.2]))
    def admit(self, which, share):
        request = self.pick(which, self.is_waiting)
        num_tokens = int(share * len(request.token_ids))
        found = self.world.computed_prefix(request) if self.caching else 0
        hits = len(self.manager.match(request))
        assert hits == found or (self.weak and hits < found)
        needed = self.manager.num_blocks_to_allocate(request, num_tokens)
        self.attempt(needed, lambda: self.world.admit(request, num_tokens))

    @precondition(lambda self: self.those(self.is_between_steps))
    @rule(which=WHICH, n=st.integers(1, 40))
    def append(self, which, n):
        request = self.pick(which, self.is_between_steps)
        n = min(n, len(request.token_ids) - request.num_computed_tokens)
        self.attempt(self.manager.num_blocks_to_append(request, n), lambda: self.world.append(request, n))

    @precondition(lambda self: self.world.planned or self.world.scheduled)
    @rule(sample=TOKENS)
    def execute(self, sample):
        self.world.execute(sample)

    @precondition(lambda self: self.world.planned or self.world.scheduled)
    @rule()
    def roll_back(self):
        self.world.roll_back()

    @precondition(lambda self: self.those(self.is_between_steps))
    @rule(chunk=st.sampled_from([1, 3, 1000]), sample=TOKENS)
    def step(self, chunk, sample):
        """What an engine does: everybody who can goes on, then the step runs."""
        for request in self.those(self.is_between_steps):
            n = min(chunk, len(request.token_ids) - request.num_computed_tokens)
            self.attempt(self.manager.num_blocks_to_append(request, n), lambda r=request, n=n: self.world.append(r, n))
        self.world.execute(sample)

    @precondition(lambda self: not self.world.planned and self.those(self.is_between_steps))
    @rule(which=WHICH, last=TOKENS)
    def fork(self, which, last):
        src = self.pick(which, self.is_between_steps)
        index = 1 + max(request.index for request in self.world.requests if request.request_id == src.request_id)
        token_ids = list(src.token_ids)
        if src.num_computed_tokens == len(token_ids) - 1:  # each branch samples its own token
            token_ids[-1] = last
        self.attempt(0, lambda: self.world.fork(src, index, token_ids))

    @precondition(lambda self: self.those(self.is_running))
    @rule(which=WHICH)
    def preempt(self, which):
        self.world.preempt(self.pick(which, self.is_running))

    @precondition(lambda self: self.those(self.is_running))
    @rule(which=WHICH)
    def swap_out(self, which):
        request = self.pick(which, self.is_running)
        needed = -(-request.num_computed_tokens // self.manager.block_size)
        free = self.manager.num_free_swap_blocks
        try:
            with unchanged_on_failure(self.manager, self.world.requests):
                self.world.swap_out(request)
        except NoFreeBlocksError:
            assert needed > free
        else:
            assert self.manager.num_free_swap_blocks == free - needed

    @precondition(lambda self: self.those(self.manager.is_swapped))
    @rule(which=WHICH)
    def swap_in(self, which):
        request = self.pick(which, self.manager.is_swapped)
        self.attempt(self.manager.num_blocks_to_swap_in(request), lambda: self.world.swap_in(request))

    @precondition(lambda self: len(self.world.requests) > 3)
    @rule(which=WHICH)
    def finish(self, which):
        self.world.free(self.pick(which, lambda request: True))

    @precondition(lambda self: self.cached_and_free())
    @rule(which=WHICH)
    def evict(self, which):
        cached = self.cached_and_free()
        self.manager.pool.evict(cached[which % len(cached)])

    def cached_and_free(self):
        return [block for block in self.manager.pool.free_blocks() if self.manager.pool.is_published(block)]

    @precondition(lambda self: not self.world.planned and self.manager.num_cached_blocks)
    @rule()
    def reset_prefix_cache(self):
        idle = all(not r.block_table and not self.manager.host_blocks(r) for r in self.world.requests)
        assert self.manager.reset_prefix_cache() == idle
        assert not idle or self.manager.num_cached_blocks == 0

    @invariant()
    def everything_is_right(self):
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self):
        if hasattr(self, "world"):
            for request in list(self.world.requests):
                self.world.free(request)
            check_idle(self.manager)


TestManager = ManagerMachine.TestCase
TestManager.settings = settings(max_examples=300, stateful_step_count=60, suppress_health_check=list(HealthCheck))
