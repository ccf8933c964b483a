"""Mistakes of a typical small block allocator, each as the scenario that shows it: block size 4 unless said otherwise.

Lesson 09 lets learners find them; these tests make sure that the manager has none. Long because it is a list: each entry
stands alone.
"""

from __future__ import annotations

import pytest

from mini_engine.cache import KVCacheManager, NoFreeBlocksError, WeakHasher
from mini_engine.cache.invariants import check_idle, unchanged_on_failure
from tests.cache.world import World


def tokens(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


def test_blocks_filled_by_decoding_are_published():
    """Else a conversation's second turn finds nothing of the first one's answer."""
    world = World(8, 4)
    a = world.add("a", [1, 2, 3])
    world.prefill(a, sample=4)
    for sample in (5, 6):
        world.append(a)
        world.execute(sample)
    world.free(a)
    assert world.run("b", [1, 2, 3, 4, 9]) == 4


def test_blocks_after_a_decode_filled_one_are_published_too():
    world = World(8, 4)
    a = world.add("a", tokens(1, 6))
    world.prefill(a, sample=7)
    for sample in range(8, 14):
        world.append(a)
        world.execute(sample)
    assert a.num_computed_tokens == 12
    assert [world.manager.pool.is_published(block) for block in a.block_table] == [True, True, True]


def test_the_sampled_token_does_not_fill_a_block():
    """The last token has no K/V yet: 3 computed tokens and one sampled are no full block."""
    world = World(8, 4)
    world.prefill(world.add("a", [1, 2, 3]), sample=4)
    assert world.manager.num_cached_blocks == 0


def test_evicting_one_twin_leaves_the_other_findable():
    """Where the map holds one block per name, the newer twin is lost together with the older."""
    world = World(12, 4)
    a, b = world.add("a", tokens(1, 9)), world.add("b", tokens(1, 9))
    for request in (a, b):
        world.admit(request)
        world.append(request, 9)
    world.execute()
    first, second = a.block_table[:2], b.block_table[:2]
    world.free(a)
    for block in first:
        world.manager.pool.evict(block)
    assert world.manager.match(world.add("c", tokens(1, 9))) == second


def test_a_prompt_that_does_not_fit_takes_nothing():
    world = World(4, 4)
    a = world.add("a", tokens(1, 24))
    fails = pytest.raises(NoFreeBlocksError, match="6 KV cache blocks needed, 4 free")
    with fails, unchanged_on_failure(world.manager, world.requests):
        world.admit(a)
    world.free(a)
    assert world.run("b", [1]) == 0


def test_a_prompt_that_does_not_fit_keeps_no_hold_on_its_hits():
    world = World(4, 4)
    world.run("a", tokens(1, 9))
    b = world.add("b", tokens(1, 24))
    with pytest.raises(NoFreeBlocksError), unchanged_on_failure(world.manager, world.requests):
        world.admit(b)
    assert world.manager.pool.num_free == 4


def test_hits_that_are_free_count_as_needed():
    """Four blocks, two of them the hit: 9 to 16 tokens need both and two more, 17 would need a fifth block."""
    for last, fits in ((16, True), (17, False)):
        world = World(4, 4)
        world.run("a", tokens(1, 9))
        request = world.add("b", tokens(1, last))
        assert world.manager.num_blocks_to_allocate(request, last) == (4 if fits else 5)
        if fits:
            assert world.prefill(request) == 8
        else:
            with pytest.raises(NoFreeBlocksError):
                world.admit(request)


def test_a_prompt_that_does_not_fit_publishes_nothing():
    world = World(4, 4)
    with pytest.raises(NoFreeBlocksError):
        world.admit(world.add("a", tokens(1, 20)))
    assert world.run("b", tokens(1, 16)) == 0


def test_a_copy_takes_its_block_before_it_gives_up_the_shared_one():
    """Else, when the pool is empty, two tables are left with one count, and the next append overwrites the sibling."""
    world = World(1, 4)
    a = world.add("a", [1, 2])
    world.prefill(a)
    b = world.fork(a, 1)
    for call in (world.manager.append, world.manager.cow_if_shared):
        for request in (a, b):
            with pytest.raises(NoFreeBlocksError), unchanged_on_failure(world.manager, world.requests):
                call(request)
    assert world.manager.pool.ref_count(1) == 2
    world.free(b)
    world.append(a)  # the last holder writes in place
    assert world.planned == []
    world.execute()
    world.check()


def test_copy_on_write_is_reached_through_fork_and_tells_the_backend():
    world = World(8, 4)
    a = world.add("a", tokens(1, 6))
    world.prefill(a, sample=7)
    b = world.fork(a, 1, [*tokens(1, 6), 70])
    old_tail = a.block_table[1]
    world.append(b)
    (op,) = [op for _, op in world.planned]
    assert op == ("copy", old_tail, b.block_table[1])
    assert (a.block_table[0], a.block_table[1]) == (b.block_table[0], old_tail)
    world.append(a)
    assert len(world.planned) == 1  # a is the last holder of the old tail: no second copy
    world.execute()
    world.check()


def test_n_branches_make_n_minus_one_copies():
    world = World(20, 4)
    a = world.add("a", tokens(1, 6))
    world.prefill(a)
    branches = [a] + [world.fork(a, i) for i in range(1, 5)]
    for branch in branches:
        world.append(branch)
    assert [op.kind for _, op in world.planned] == ["copy"] * 4
    world.execute()
    world.check()
    assert world.manager.pool.ref_count(a.block_table[0]) == 5


def test_a_chunk_that_needs_a_copy_and_a_new_block_gets_both_or_neither():
    world = World(3, 4)
    a = world.add("a", tokens(1, 9))
    world.admit(a, num_tokens=6)
    world.append(a, 6)
    world.execute()
    b = world.fork(a, 1)  # in the middle of its prompt, its last block half full
    assert world.manager.num_free_blocks == 1
    assert world.manager.num_blocks_to_append(b, 2) == 1
    assert world.manager.num_blocks_to_append(b, 3) == 2
    with pytest.raises(NoFreeBlocksError), unchanged_on_failure(world.manager, world.requests):
        world.append(b, 3)
    world.append(b, 2)
    world.execute()
    world.check()


def test_each_branch_publishes_the_blocks_it_fills():
    world = World(8, 4)
    a = world.add("a", tokens(1, 6))
    world.prefill(a, sample=7)
    b = world.fork(a, 1, [*tokens(1, 6), 70])
    for sample in (8, 9):
        for branch in (a, b):
            world.append(branch)
        world.execute(sample)
    assert world.manager.num_cached_blocks == 3  # the shared first block, and one second block each
    for branch, hits in (([*tokens(1, 8), 9], 2), ([*tokens(1, 6), 70, 8, 9], 2), (tokens(1, 6), 1)):
        assert len(world.manager.match(world.add(str(branch), branch))) == hits


def test_blocks_that_came_back_from_the_host_are_published_again():
    world = World(3, 4, num_swap_blocks=3)
    a = world.add("a", tokens(1, 10))
    world.prefill(a, sample=11)
    world.swap_out(a)
    world.execute()
    world.run("b", tokens(50, 61))  # evicts everything
    world.swap_in(a)
    for sample in (12, 13):
        world.append(a)
        world.execute(sample)
    assert a.num_computed_tokens == 12
    assert len(world.manager.match(world.add("c", [*tokens(1, 12), 99]))) == 3


def test_a_fork_at_a_block_boundary_copies_nothing():
    world = World(8, 4)
    a = world.add("a", tokens(1, 8))
    world.prefill(a)
    b = world.fork(a, 1)
    for branch in (a, b):
        world.append(branch)
    assert world.planned == []
    world.execute()
    world.check()


def test_rewriting_the_last_token_of_a_published_block_copies_it():
    """To compute only the last token of a full hit, its block, shared and published, must be copied first."""
    world = World(8, 4)
    a = world.add("a", tokens(1, 8))
    world.prefill(a)
    a.num_computed_tokens = 7
    published = a.block_table[1]
    world.append(a)
    assert [(op.kind, op.src) for _, op in world.planned] == [("copy", published)]
    world.execute()
    world.check()
    assert world.manager.num_cached_blocks == 3  # the original, still cached, and its twin


def test_the_head_of_a_prompt_outlives_its_tail():
    """Freeing head first makes the head the first to be evicted, and strands the tail."""
    world = World(4, 2)
    world.run("a", tokens(1, 8))
    world.run("b", [50, 51])
    assert len(world.manager.match(world.add("c", tokens(1, 9)))) == 3


def test_freeing_twice_steals_nobodys_block():
    """A is freed twice; its block belongs to B by then and must not be handed out again."""
    world = World(1, 4)
    a = world.add("a", [1, 2])
    world.prefill(a)
    world.manager.free(a)
    world.requests.remove(a)
    b = world.add("b", [5, 6])
    world.prefill(b)
    world.manager.free(a)
    world.check()
    with pytest.raises(NoFreeBlocksError):
        world.admit(world.add("c", [7]))


def test_a_table_kept_after_free_is_recognised():
    """Use after free: somebody put the old blocks back into a freed request's table."""
    world = World(2, 4)
    a = world.add("a", [1, 2])
    world.prefill(a)
    stale = list(a.block_table)
    world.manager.free(a)
    assert a.block_table == []
    a.block_table += stale
    for call in (world.manager.free, world.manager.append, world.manager.publish):
        with pytest.raises(ValueError, match="never gave it"):
            call(a)


def test_a_table_that_was_replaced_is_recognised():
    world = World(2, 4)
    a = world.add("a", [1, 2])
    world.prefill(a)
    a.block_table = list(a.block_table)
    with pytest.raises(ValueError, match="replaced"):
        world.manager.append(a)


def test_an_empty_sequence_is_no_crash():
    """The engine refuses empty prompts; the manager simply finds nothing for them."""
    world = World(2, 4)
    a = world.add("a", [])
    assert world.manager.match(a) == []
    assert world.admit(a) == 0
    assert a.block_table == []
    a.token_ids.append(1)
    world.append(a)
    world.execute()
    world.check()
    world.free(a)
    check_idle(world.manager)


@pytest.mark.parametrize("bad", [[1, 2, 3, 4, 5.5, 6, 7, 8, 9], [1, 2**63, 3, 4, 5]])
def test_a_token_that_is_no_integer_leaks_nothing(bad):
    world = World(4, 4)
    a = world.add("a", bad)
    fails = pytest.raises(ValueError, match="token ids must be integers")
    with fails, unchanged_on_failure(world.manager, world.requests):
        world.admit(a)


def test_a_request_never_overwrites_its_own_cached_tail_while_blank_blocks_are_left():
    """Three blocks of two; a prompt of six tokens, freed; one new block; the same prompt again finds what is left."""
    world = World(4, 2)
    world.run("a", tokens(1, 6))
    world.run("b", [50])
    assert world.run("c", tokens(1, 6)) == 4


def test_garbage_does_not_evict_content():
    world = World(3, 4)
    world.run("a", tokens(1, 4))
    b = world.add("b", [50, 51])
    world.prefill(b)
    world.free(b)
    world.admit(world.add("c", tokens(60, 67)))
    assert world.manager.num_cached_blocks == 1


def test_a_collision_in_a_first_block_is_not_a_hit_on_the_root():
    world = World(4, 2, hasher=WeakHasher())
    world.run("a", [0, 7, 1])  # its name is the byte 0, as a careless root might be
    assert world.run("b", [7, 0, 1]) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, a: m.append(a, 0), "n=0"),
        (lambda m, a: m.append(a, -1), "n=-1"),
        (lambda m, a: m.swap_in(a), "not swapped out"),
    ],
)
def test_calls_that_make_no_sense_are_refused(call, message):
    world = World(4, 4, num_swap_blocks=4)
    a = world.add("a", [1, 2])
    world.prefill(a)
    with pytest.raises(ValueError, match=message), unchanged_on_failure(world.manager, world.requests):
        call(world.manager, a)


def test_without_swap_space_nothing_goes_to_the_host():
    manager = KVCacheManager(4, 4)
    assert manager.num_free_swap_blocks == 0
    world = World(4, 4)
    a = world.add("a", [1, 2])
    world.prefill(a)
    with pytest.raises(NoFreeBlocksError, match="host"), unchanged_on_failure(world.manager, world.requests):
        world.manager.swap_out(a)


def test_a_swapped_request_can_do_nothing_but_come_back_or_end():
    world = World(4, 4, num_swap_blocks=4)
    a = world.add("a", [1, 2])
    world.prefill(a)
    world.swap_out(a)
    manager = world.manager
    branch = world.add("b", [1, 2])
    for call in (
        lambda: manager.allocate(a, 3),
        lambda: manager.append(a),
        lambda: manager.publish(a),
        lambda: manager.cow_if_shared(a),
        lambda: manager.fork(a, branch),
        lambda: manager.swap_out(a),
    ):
        with pytest.raises(ValueError, match="swapped out"), unchanged_on_failure(manager, world.requests):
            call()
    world.swap_in(a)
    world.execute()
    world.check()


def test_allocating_never_shrinks_and_a_hit_may_exceed_what_was_asked():
    world = World(8, 4)
    world.run("a", tokens(1, 13))
    b = world.add("b", tokens(1, 13))
    assert world.admit(b, num_tokens=5) == 12
    assert len(b.block_table) == 3
    world.admit(b, num_tokens=2)
    assert len(b.block_table) == 3
    world.check()
    assert world.admit(b, num_tokens=13) == 0
    assert len(b.block_table) == 4


def test_trimming_gives_back_what_a_failed_step_had_taken():
    world = World(8, 4)
    a = world.add("a", tokens(1, 9))
    world.prefill(a)
    kept = list(a.block_table)
    a.token_ids += tokens(20, 26)
    world.append(a, 7)
    assert len(a.block_table) == 4
    world.roll_back()
    assert a.block_table == kept
    world.check()
    world.append(a, 7)
    world.execute()
    world.check()


def test_claiming_computed_tokens_without_blocks_is_refused():
    """The mistake: preempting by free and forgetting to set num_computed_tokens back to 0."""
    world = World(8, 4)
    a = world.add("a", tokens(1, 9))
    world.prefill(a)
    world.manager.free(a)
    for call in (lambda: world.manager.allocate(a, 9), lambda: world.manager.append(a)):
        with pytest.raises(ValueError, match="9 computed tokens"):
            call()
