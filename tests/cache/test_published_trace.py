"""vLLM's published prefix-caching example, step by step: block size 4, ten blocks.

Source: vLLM's design document on automatic prefix caching. It numbers the ten blocks 0 to 9; here they are 1 to 10,
because number 0 is the null block. One difference is wanted and asserted below: blocks that were never published are
reused before cached ones, as vLLM itself does by now, so two blocks stand further forward in the free queue than in
the document, and the third request spares a cached block that it loses there.
"""

from __future__ import annotations

import pytest

from tests.cache.world import World


@pytest.mark.parametrize("prefix_index", ["hash", "radix"])
def test_published_example(prefix_index):
    world = World(10, 4, prefix_index=prefix_index)
    pool, manager = world.manager.pool, world.manager
    tokens = list(range(100, 115))

    # 1. Request 0 arrives with 15 tokens and takes four blocks; the last holds 3 of 4.
    zero = world.add("0", tokens)
    assert world.prefill(zero, sample=115) == 0
    assert zero.block_table == [1, 2, 3, 4]
    assert pool.published_blocks() == [1, 2, 3]

    # 2. It fills its fourth block while decoding, and takes a fifth.
    world.append(zero)
    world.execute(sample=116)
    assert pool.published_blocks() == [1, 2, 3, 4]
    world.append(zero)
    world.execute(sample=117)
    assert zero.block_table == [1, 2, 3, 4, 5]

    # 3. Request 1 arrives with 14 tokens, the first 10 equal: it hits the first two blocks and takes two more.
    one = world.add("1", [*tokens[:10], 200, 201, 202, 203])
    assert world.prefill(one, sample=204) == 8
    assert one.block_table == [1, 2, 6, 7]
    assert [pool.ref_count(block) for block in (1, 2, 3)] == [2, 2, 1]

    # 4. Request 0 ends. Its last three blocks are free, from the tail: in the document 4, 3, 2, here 5, 4, 3.
    #    The tail block was never full, so here it joins the blank ones.
    world.free(zero)
    assert pool.free_blocks() == [8, 9, 10, 5, 4, 3]
    assert [pool.is_published(block) for block in (5, 4, 3)] == [False, True, True]

    # 5. Request 1 ends. In the document the queue is 7-8-9-4-3-2-6-5-1-0. One higher: 8-9-10-5-4-3-7-6-2-1.
    #    Its partial block, 7 here, comes before the cached 4 and 3: that is the one difference.
    world.free(one)
    assert pool.free_blocks() == [8, 9, 10, 5, 7, 4, 3, 6, 2, 1]
    document = [block + 1 for block in (7, 8, 9, 4, 3, 2, 6, 5, 1, 0)]
    blank = [block for block in document if not pool.is_published(block)]
    cached = [block for block in document if pool.is_published(block)]
    assert pool.free_blocks() == blank + cached

    # 6. Request 2 arrives with 29 tokens, the first 12 equal to request 0's: three blocks hit, five new ones from the
    #    head of the queue. In the document 7, 8, 9, 4, 3, so block 3 loses its content; here the blank 7 spares it.
    two = world.add("2", tokens[:12] + list(range(300, 317)))
    assert world.prefill(two) == 12
    assert two.block_table == [1, 2, 3, 8, 9, 10, 5, 7]
    assert pool.is_published(4)
    assert manager.num_free_blocks == 2
