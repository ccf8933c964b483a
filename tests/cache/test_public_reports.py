"""Bugs that were reported against other engines, as small scenarios for the cache alone.

Unless a test says otherwise the block size is 4 and [1..9] means tokens 1 to 9. Reports whose symptom lies in the
scheduler, the engine or a kernel are tested there: vllm #7018, #13105, #42157, ferrox #37, vllm-mlx #385 and others. Long because it is a
list: each report is a story of its own.
"""

from __future__ import annotations

import pytest

from mini_engine.cache import BlockHasher, KVCacheManager, NoFreeBlocksError, ShortHasher, WeakHasher
from mini_engine.cache.invariants import check_idle, unchanged_on_failure
from tests.cache.world import FakeRequest, World

pytestmark = pytest.mark.parametrize("prefix_index", ["hash", "radix"])


def tokens(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


class ConstantHasher(BlockHasher):
    """The worst hash function there is."""

    def hash_block(self, parent, token_ids):
        return b"always the same"


# Hashing and identity


@pytest.mark.parametrize("hasher", [ConstantHasher(), WeakHasher(), ShortHasher()])
def test_colliding_names_never_lead_to_another_prompts_blocks_vllm_cve_2025_25183(prefix_index, hasher):
    """vllm CVE-2025-25183, PR #12621; openvino.genai #3722: predictable or weak hashes, no check of what was found."""
    world = World(8, 4, prefix_index=prefix_index, hasher=hasher)
    world.run("a", [1, 2, 3, 4, 9])
    assert world.run("b", [5, 6, 7, 8, 9]) == 0  # equal sums modulo 7 where the hasher is weak; run() checks content


def test_a_collision_is_a_miss_and_is_counted_vllm_54727(prefix_index):
    """vllm #54727: crafted collisions poison the cache."""
    world = World(8, 2, prefix_index=prefix_index, hasher=WeakHasher())
    world.run("a", [1, 2, 9])
    assert world.run("b", [3, 7, 9]) == 0
    assert world.manager.index.num_collisions == (1 if prefix_index == "hash" else 0)
    assert world.run("c", [1, 2, 9]) == 2  # the first owner of the name is still found


def test_a_collision_in_the_middle_stops_publication_there(prefix_index):
    """What follows a colliding block has a name that does not say what came before it."""
    world = World(12, 2, prefix_index=prefix_index, hasher=WeakHasher())
    world.run("a", [1, 0, 0, 2, 9])
    world.run("b", [5, 1, 4, 0, 3, 3, 2, 4, 9])  # sums modulo 7: 6, 4, 6: the third block collides with the first
    world.run("c", [5, 1, 4, 0, 3, 3, 2, 4, 9])
    assert world.run("d", [9, 4, 4, 0, 3, 3, 2, 4, 9]) == 0


def test_equal_names_and_tokens_after_another_history_are_no_hit(prefix_index):
    """The K/V of equal tokens differ when what came before differs, be it tokens, adapter or salt."""
    world = World(12, 2, prefix_index=prefix_index, hasher=WeakHasher())
    world.run("a", [1, 0, 5, 6, 9])
    world.run("b", [2, 0, 3, 3, 9])
    assert world.run("c", [2, 0, 5, 6, 9]) == 2
    assert world.run("d", [1, 0, 5, 6, 9], adapter="x@1") == 0  # this hasher ignores adapters and salts
    assert world.run("e", [1, 0, 5, 6, 9], cache_salt="s") == 0


def test_salts_keep_tenants_apart_vllm_cve_2025_46570(prefix_index):
    """vllm CVE-2025-46570, PR #17045: time to first token reveals other users' prompts."""
    world = World(12, 4, prefix_index=prefix_index)
    hits = [world.run(str(i), tokens(1, 9), cache_salt=salt) for i, salt in enumerate(["a", "b", "a", None, None])]
    assert hits == [0, 0, 8, 0, 8]


def test_adapters_never_share_vllm_3264(prefix_index):
    """vllm #3264, #30931, #42125: K/V shared between adapters, or after an adapter was reloaded under its name."""
    world = World(12, 4, prefix_index=prefix_index)
    hits = [world.run(str(i), tokens(1, 9), adapter=name) for i, name in enumerate(["x@1", None, "x@2", "x@1"])]
    assert hits == [0, 0, 0, 8]


# Publish, match, evict


def test_a_prefix_can_be_hit_right_after_its_prefill_vllm_7619(prefix_index):
    """vllm #7619/#7822: blocks were marked computed too late to be of use."""
    world = World(8, 4, prefix_index=prefix_index)
    world.prefill(world.add("a", tokens(1, 9)))
    assert world.prefill(world.add("b", tokens(1, 9))) == 8


def test_a_prefix_cannot_be_hit_before_it_is_computed(prefix_index):
    world = World(8, 4, prefix_index=prefix_index)
    a = world.add("a", tokens(1, 16))
    world.admit(a)
    assert world.manager.match(world.add("b", tokens(1, 16))) == []
    world.append(a, 4)
    assert world.manager.match(world.requests[1]) == []
    world.execute()
    assert len(world.manager.match(world.requests[1])) == 1


def test_evicted_blocks_are_no_longer_found_vllm_4761(prefix_index):
    """vllm #4761/#4764: a block taken by the evictor stayed in the map."""
    world = World(2, 4, prefix_index=prefix_index)
    world.run("a", tokens(1, 8))
    world.run("b", tokens(11, 18))
    assert world.manager.match(world.add("c", tokens(1, 5))) == []


def test_a_recycled_block_is_not_taken_for_computed_vllm_5364(prefix_index):
    """vllm #5364: a block that came out of the evictor was still marked computed."""
    world = World(2, 4, prefix_index=prefix_index)
    world.run("a", tokens(1, 8))
    b = world.add("b", tokens(11, 18))
    assert world.admit(b) == 0
    assert not any(world.manager.pool.is_published(block) for block in b.block_table)


def test_blank_blocks_are_used_before_cached_ones_vllm_42948(prefix_index):
    """vllm #42948/#43447: cached blocks were consumed while never-used ones existed."""
    world = World(4, 4, prefix_index=prefix_index)
    world.run("a", tokens(1, 8))
    b = world.add("b", tokens(11, 18))
    world.prefill(b)
    assert sorted(b.block_table) == [3, 4]
    world.free(b)
    assert world.run("c", tokens(1, 9)) == 8


def test_a_match_made_while_waiting_is_not_trusted_vllm_17305(prefix_index):
    """vllm #17305: the number of cached tokens noted while waiting was stale at admission."""
    world = World(4, 4, prefix_index=prefix_index)
    world.run("a", tokens(1, 8))
    waiting = world.add("w", tokens(1, 9))
    assert len(world.manager.match(waiting)) == 2
    world.run("b", tokens(11, 26))  # takes the whole pool
    assert world.admit(waiting) == 0
    world.append(waiting, 9)
    world.execute()
    world.check()


def test_tokens_to_run_are_counted_after_the_match_nano_vllm_211(prefix_index):
    """nano-vllm #211: after a preemption the chunk was sized before the hits were known."""
    world = World(8, 4, prefix_index=prefix_index)
    request = world.add("a", tokens(1, 9))
    world.prefill(request, sample=10)
    world.preempt(request)
    hit = world.admit(request)
    assert (hit, len(request.token_ids) - hit) == (8, 2)
    assert len(request.block_table) == 3


def test_nothing_counts_after_the_first_miss_inference_sim_705(prefix_index):
    """llm-d-inference-sim #705: hits were counted beyond a miss."""
    world = World(4, 4, prefix_index=prefix_index)
    a = world.add("a", tokens(1, 13))
    world.prefill(a)
    head = a.block_table[0]
    world.free(a)
    world.manager.pool.evict(head)
    assert world.manager.match(world.add("b", tokens(1, 13))) == []


@pytest.mark.parametrize("size", [1, 2, 4, 5])
def test_a_full_hit_leaves_a_token_to_compute_vllm_9972(prefix_index, size):
    """vllm #9972, #53706, nano-vllm #144: a fully cached prompt left no query token."""
    for length in range(1, 4 * size + 2):
        world = World(20, size, prefix_index=prefix_index)
        world.run("a", tokens(1, length))
        hit = world.run("b", tokens(1, length))
        assert hit == (length - 1) // size * size


def test_reset_waits_until_nothing_is_in_use_vllm_9744(prefix_index):
    """vllm #9744, PR #12284, lmdeploy #4917: K/V of old weights was reused."""
    world = World(8, 4, prefix_index=prefix_index, num_swap_blocks=8)
    a = world.add("a", tokens(1, 9))
    world.prefill(a)
    assert not world.manager.reset_prefix_cache()
    world.swap_out(a)
    world.execute()
    assert not world.manager.reset_prefix_cache()  # on the host it is old K/V all the same
    assert world.manager.num_cached_blocks == 2
    world.free(a)
    assert world.manager.reset_prefix_cache()
    assert world.manager.num_cached_blocks == 0
    assert world.run("b", tokens(1, 9)) == 0


def test_the_index_does_not_outgrow_the_pool_nanovllm_voxcpm_62(prefix_index):
    """nanovllm-voxcpm #62: the hash map grew without bound."""
    world = World(6, 2, prefix_index=prefix_index)
    manager = world.manager
    for i in range(10_000):
        request = FakeRequest(str(i), [i, i + 1, i + 2, i + 3, i + 4], cache_salt=str(i % 50))
        manager.allocate(request, 5)
        request.num_computed_tokens = 5
        manager.publish(request)
        manager.free(request)
    if prefix_index == "hash":
        num_entries = len(manager.index._entries)
    else:
        num_entries, stack = 0, list(manager.index._root.children.values())
        while stack:
            node = stack.pop()
            num_entries += len(node.tokens)
            stack += node.children.values()
    assert 0 < num_entries <= 6
    check_idle(manager)


# Ownership


def test_shared_blocks_are_dropped_once_by_each_holder_vllm_1556(prefix_index):
    """vllm #1556/#3347: double free when sequences share blocks."""
    world = World(6, 4, prefix_index=prefix_index)
    a = world.add("a", tokens(1, 9))
    world.prefill(a)
    b = world.fork(a, 1)
    world.free(a)
    world.check()
    world.free(b)
    check_idle(world.manager)


def test_a_fork_takes_only_what_is_in_the_table_vllm_20512(prefix_index):
    """vllm #20512: forking a truncated table referenced blocks that had been released."""
    world = World(8, 4, prefix_index=prefix_index)
    a = world.add("a", tokens(1, 9))
    world.admit(a, num_tokens=20)  # five blocks, two of them reserved for what is still to come
    world.append(a, 9)
    world.execute()
    reserved = a.block_table[3:]
    b = world.fork(a, 1)
    assert b.block_table == a.block_table[:3]
    assert [world.manager.pool.ref_count(block) for block in reserved] == [1, 1]
    world.preempt(a)
    with pytest.raises(ValueError, match="computed tokens"), unchanged_on_failure(world.manager, world.requests):
        world.manager.fork(a, FakeRequest("a", tokens(1, 9), index=2, num_computed_tokens=9))


def test_a_fork_needs_no_room_and_a_failed_copy_changes_nothing_hf_46117(prefix_index):
    """transformers #46117: a fork without room crashed halfway."""
    world = World(3, 4, prefix_index=prefix_index)
    a = world.add("a", tokens(1, 9))
    world.prefill(a)
    assert world.manager.num_free_blocks == 0
    b = world.fork(a, 1)
    with pytest.raises(NoFreeBlocksError), unchanged_on_failure(world.manager, world.requests):
        world.append(b)
    assert world.manager.pool.ref_count(a.block_table[2]) == 2


@pytest.mark.parametrize("state", ["waiting", "matched", "admitted", "mid-prefill", "decoding", "preempted", "swapped"])
def test_an_abort_in_any_state_frees_everything_vllm_46283(prefix_index, state):
    """vllm #46283, vllm-ascend #16662, sglang #38981: blocks leaked when a request was aborted at the wrong moment."""
    world = World(8, 4, prefix_index=prefix_index, num_swap_blocks=8)
    a = world.add("a", tokens(1, 12))
    if state == "matched":
        world.manager.match(a)
    elif state != "waiting":
        world.admit(a)
        if state != "admitted":
            world.append(a, 6 if state == "mid-prefill" else 12)
            world.execute()
        if state == "preempted":
            world.preempt(a)
        elif state == "swapped":
            world.swap_out(a)
    world.free(a)
    check_idle(world.manager)
    world.free(world.add("a", tokens(1, 12)))  # once more, having nothing: no harm
    check_idle(world.manager)


def test_unaligned_chunks_leave_no_page_behind_sglang_jax_1000(prefix_index):
    """sglang-jax #1000, sglang #6888, #11970: a partly filled page leaked with the next chunk."""
    world = World(8, 4, prefix_index=prefix_index)
    a = world.add("a", tokens(1, 16))
    world.admit(a, num_tokens=6)
    while a.num_computed_tokens < 16:
        world.append(a, min(6, 16 - a.num_computed_tokens))
        world.execute()
        world.check()
        assert world.manager.pool.num_blocks - world.manager.num_free_blocks == -(-a.num_computed_tokens // 4)


def test_twins_are_kept_while_tables_name_them_mini_sglang_142(prefix_index):
    """mini-sglang #142: the second copy of a prefix was freed while its page table still pointed at it."""
    world = World(12, 4, prefix_index=prefix_index)
    a, b = world.add("a", tokens(1, 9)), world.add("b", tokens(1, 9))
    for request in (a, b):  # both are admitted before either is computed
        world.admit(request)
        world.append(request, 9)
    world.execute()
    assert not set(a.block_table) & set(b.block_table)
    assert world.manager.num_cached_blocks == 4
    world.prefill(world.add("c", tokens(20, 31)))
    world.check()
    world.free(a)
    world.check()
    assert len(world.manager.match(world.add("d", tokens(1, 9)))) == 2


def test_a_second_request_under_a_live_id_is_refused_vllm_10583(prefix_index):
    """vllm #10583/#15041: a duplicate request id broke the first request's state."""
    world = World(8, 4, prefix_index=prefix_index)
    a = world.add("a", tokens(1, 5))
    world.prefill(a)
    impostor = FakeRequest("a", tokens(1, 9))
    with pytest.raises(ValueError, match="alive"), unchanged_on_failure(world.manager, world.requests):
        world.manager.allocate(impostor, 9)
    world.free(a)
    assert world.manager.allocate(impostor, 9) == 4


def test_a_resumed_table_holds_only_blocks_it_owns_vllm_rbln_676(prefix_index):
    """vllm-rbln #676, vllm #46595: freed block ids came back after a request resumed."""
    world = World(6, 4, prefix_index=prefix_index)
    a = world.add("a", tokens(1, 9))
    world.prefill(a)
    old = list(a.block_table)
    world.preempt(a)
    assert a.block_table == []
    b = world.add("b", tokens(11, 26))
    world.prefill(b)
    world.free(b)
    world.prefill(world.add("c", tokens(31, 38)))
    world.prefill(a)
    assert old != a.block_table
    world.check()


# Swapping


def test_a_full_host_pool_refuses_and_leaves_recompute_vllm_5578(prefix_index):
    """vllm #5578, #546: the engine stalled when swap space ran out."""
    world = World(8, 4, prefix_index=prefix_index, num_swap_blocks=3)
    a, b = world.add("a", tokens(1, 9)), world.add("b", tokens(11, 19))
    for request in (a, b):
        world.prefill(request)
    world.swap_out(a)
    with pytest.raises(NoFreeBlocksError, match="host"), unchanged_on_failure(world.manager, world.requests):
        world.swap_out(b)
    world.preempt(b)
    world.execute()
    world.check()


def test_swapped_content_survives_the_reuse_of_its_blocks_vllm_45704(prefix_index):
    """vllm #45704, #31210, #29781: blocks were overwritten before the copy to the host had read them."""
    world = World(3, 4, prefix_index=prefix_index, num_swap_blocks=3)
    a = world.add("a", tokens(1, 9))
    world.prefill(a)
    world.swap_out(a)
    b = world.add("b", tokens(11, 22))  # in the same step, in the same blocks
    world.admit(b)
    world.append(b, 12)
    world.execute()
    world.check()
    world.free(b)
    world.swap_in(a)
    world.append(a)
    world.execute()
    world.check()
    assert a.num_computed_tokens == 10


def test_a_chain_of_operations_in_one_step_keeps_every_content(prefix_index):
    """Copy on write, then the copied-from block is swapped out, then reused by a request that comes back."""
    world = World(4, 4, prefix_index=prefix_index, num_swap_blocks=4)
    c = world.add("c", tokens(31, 35))
    world.prefill(c)
    world.swap_out(c)
    world.execute()
    a = world.add("a", tokens(1, 6))
    world.prefill(a)
    b = world.fork(a, 1)
    world.append(b)
    world.swap_out(a)
    world.swap_in(c)
    world.append(c)
    ops = [op for _, op in world.planned]
    assert [op.kind for op in ops] == ["copy", "swap_out", "swap_out", "swap_in", "swap_in"]
    assert ops[0].src in {op.dst for op in ops[3:]}  # so the order matters
    world.execute()
    world.check()
    assert [request.num_computed_tokens for request in (a, b, c)] == [6, 7, 6]


def test_a_manager_without_prefix_caching_publishes_and_finds_nothing(prefix_index):
    world = World(8, 4, prefix_index=prefix_index, enable_prefix_caching=False)
    assert [world.run(name, tokens(1, 9)) for name in "ab"] == [0, 0]
    assert world.manager.num_cached_blocks == 0


def test_bad_sizes_are_refused(prefix_index):
    for wrong, message in [
        ({"num_blocks": 0, "block_size": 4}, "num_blocks=0"),
        ({"num_blocks": 4, "block_size": 0}, "block_size=0"),
        ({"num_blocks": 4, "block_size": 4, "num_swap_blocks": -1}, "num_swap_blocks=-1"),
    ]:
        with pytest.raises(ValueError, match=message):
            KVCacheManager(prefix_index=prefix_index, **wrong)
    with pytest.raises(ValueError, match="'tree'"):
        KVCacheManager(4, 4, prefix_index="tree")
