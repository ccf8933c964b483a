"""Hash chain and radix tree: the same answers, always; and what each does on its own."""

from __future__ import annotations

import random

import pytest

from mini_engine.cache import BlockHasher, NoFreeBlocksError, PrefixIndex, RadixPrefixIndex, TokenChain
from tests.cache.world import World

INDEXES = [PrefixIndex, RadixPrefixIndex]


def random_prompt(rng: random.Random, size: int) -> list[int]:
    """Prompts that share prefixes of all lengths, and part inside blocks as well as between them."""
    common = [7 * rng.randrange(2)] * size + list(range(4 * size))
    cut = rng.randrange(len(common))
    return common[:cut] + [rng.randrange(3) for _ in range(rng.randrange(1, 3 * size + 2))]


@pytest.mark.parametrize("size", [1, 2, 5, 16])
@pytest.mark.parametrize("seed", range(8))
def test_same_hits_same_blocks_same_evictions(size, seed):
    """One random workload on two managers. Every table and the whole eviction order must stay equal."""
    rng = random.Random(f"{seed} {size}")
    num_blocks = rng.choice([3, 8, 20, 40])
    worlds = [World(num_blocks, size, prefix_index=name, num_swap_blocks=8) for name in ("hash", "radix")]
    num_hit_tokens = num_added = 0

    def both(operation) -> bool:
        """Do the same in both worlds: both succeed with one result, or both find the pool too small."""
        results = []
        for world in worlds:
            try:
                results.append(operation(world))
            except NoFreeBlocksError:
                results.append("no room")
        assert results[0] == results[1]
        return results[0] != "no room"

    for _ in range(250):
        action = rng.random()
        running = [i for i, request in enumerate(worlds[0].requests) if request.block_table]
        if action < 0.35 or not running:
            prompt, salt = random_prompt(rng, size), rng.choice([None, None, "a"])
            for world in worlds:
                world.add(str(num_added), prompt, cache_salt=salt)
            num_added += 1
            assert worlds[0].manager.match(worlds[0].requests[-1]) == worlds[1].manager.match(worlds[1].requests[-1])
            if both(lambda world: world.admit(world.requests[-1])):
                num_hit_tokens += worlds[0].requests[-1].num_computed_tokens
            else:
                both(lambda world: world.free(world.requests[-1]))
        elif action < 0.7:
            which, chunk, sample = rng.choice(running), rng.choice([1, size, 100]), rng.randrange(3)

            def step(world, which=which, chunk=chunk, sample=sample):
                request = world.requests[which]
                world.append(request, min(chunk, len(request.token_ids) - request.num_computed_tokens))
                world.execute(sample)

            both(step)
        elif action < 0.9:
            which = rng.choice(running)
            both(lambda world, which=which: world.free(world.requests[which]))
        elif action < 0.95:
            which = rng.choice(running)
            both(lambda world, which=which: world.preempt(world.requests[which]))
        else:
            pool = worlds[0].manager.pool
            cached = [block for block in pool.free_blocks() if pool.is_published(block)]
            if cached:
                block = rng.choice(cached)
                both(lambda world, block=block: world.manager.pool.evict(block))
        for world in worlds:
            world.check()
        assert worlds[0].manager.pool.free_blocks() == worlds[1].manager.pool.free_blocks()
        assert [r.block_table for r in worlds[0].requests] == [r.block_table for r in worlds[1].requests]
    assert num_hit_tokens or num_blocks < 8, "a workload without a hit tests nothing"


def chain_of(tokens: list[int], size: int = 2, **keys) -> TokenChain:
    chain = TokenChain(BlockHasher(**keys), size)
    chain.extend(tokens)
    return chain


@pytest.mark.parametrize("make_index", INDEXES)
def test_match_stops_at_the_first_miss_and_at_the_limit(make_index):
    index = make_index()
    chain = chain_of([1, 2, 3, 4, 5, 6])
    assert index.publish(chain, 0, [11, 12, 13], None) == 3
    assert index.match(chain, 3) == [11, 12, 13]
    assert index.match(chain, 2) == [11, 12]
    assert index.match(chain, 0) == []
    assert index.match(chain_of([1, 2, 9, 9, 5, 6]), 3) == [11]
    assert index.match(chain_of([3, 4]), 1) == []  # equal tokens, another history


@pytest.mark.parametrize("make_index", INDEXES)
def test_twins_are_kept_and_each_can_go_alone(make_index):
    index = make_index()
    chain = chain_of([1, 2, 3, 4])
    index.publish(chain, 0, [11, 12], None)
    index.publish(chain_of([1, 2, 3, 4]), 0, [21, 22], None)
    assert index.blocks() == {11, 12, 21, 22}
    assert index.match(chain, 2) == [11, 12]
    index.evict(11)
    assert index.match(chain, 2) == [21, 12]
    index.evict(21)
    assert index.match(chain, 2) == []  # 12 and 22 are out of reach
    index.check()
    assert index.publish(chain, 0, [31], None) == 1
    assert index.match(chain, 2) == [31, 12]  # and back in reach


@pytest.mark.parametrize("make_index", INDEXES)
def test_an_index_of_evicted_blocks_is_empty(make_index):
    """Whatever the order of eviction, nothing remains of what nobody holds."""
    chains = [
        chain_of([1, 2, 3, 4, 5, 6]),
        chain_of([1, 2, 3, 4, 7, 8]),
        chain_of([1, 2, 9, 9]),
        chain_of([1, 2], salt="s"),
    ]
    for seed in range(40):
        index = make_index()
        index.publish(chains[0], 0, [1, 2, 3], None)
        index.publish(chains[1], 2, [4], parent=2)
        index.publish(chains[2], 1, [5], parent=1)
        index.publish(chains[3], 0, [6], None)
        assert [index.match(chain, len(chain.tokens)) for chain in chains] == [[1, 2, 3], [1, 2, 4], [1, 5], [6]]
        assert index.history(4) == [1, 2, 3, 4, 7, 8]
        for block in random.Random(seed).sample(range(1, 7), 6):
            index.evict(block)
            index.check()
        if make_index is PrefixIndex:
            assert not index._entries
        else:
            assert not index._root.children


@pytest.mark.parametrize("make_index", INDEXES)
def test_publication_can_go_on_where_it_stopped(make_index):
    index = make_index()
    chain = chain_of(list(range(12)))
    index.publish(chain, 0, [1, 2], None)
    index.publish(chain, 2, [3], parent=2)
    index.publish(chain, 3, [4, 5, 6], parent=3)
    assert index.match(chain, 6) == [1, 2, 3, 4, 5, 6]
    index.check()


def test_the_tree_compresses_runs_and_splits_them_where_sequences_part():
    index = RadixPrefixIndex()
    index.publish(chain_of(list(range(100))), 0, list(range(1, 51)), None)
    (edge,) = index._root.children.values()
    assert (len(edge.tokens), edge.children) == (50, {})
    other = chain_of([*range(20), 7, 7, 8, 8])
    index.publish(other, 10, [60, 61], parent=10)
    (upper,) = index._root.children.values()
    assert len(upper.tokens) == 10
    assert sorted(len(child.tokens) for child in upper.children.values()) == [2, 40]
    assert index.match(other, 12) == [*range(1, 11), 60, 61]
    index.check()
