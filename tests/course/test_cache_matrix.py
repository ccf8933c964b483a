"""The matrix of caches: small cases counted by hand, sums that must agree, and the order that the lesson tells of."""

from __future__ import annotations

import pytest

from mini_engine.cache.contiguous import FirstFitAllocator
from mini_engine.course.cache_matrix import (
    BLOCK,
    Ask,
    chats,
    compare,
    distinct_tokens,
    serve_concatenated,
    serve_paged,
    serve_runs,
    static,
    table,
)

ROWS = compare(chats())
STATIC, DYNAMIC, BUDDY, PAGED, PREFIX = ROWS


def test_one_request_by_hand():
    """Prompt of 3, answer of 3: 3, 4 and 5 tokens are held in its three steps."""
    ask = [Ask("a", 0, (1, 2, 3), 3)]
    run = serve_runs("static", ask, FirstFitAllocator(64), "oracle")
    assert (run.used, run.reserved, run.internal, run.num_steps, run.computed) == (12, 2 + 1, 0, 3, 3)
    dynamic = serve_concatenated("dynamic", ask)
    assert (dynamic.used, dynamic.copied, dynamic.taken) == (12, 3 + 4, 15)
    paged = serve_paged("paged", ask, prefix_caching=False)
    assert (paged.used, paged.internal, paged.copied, paged.shared, paged.computed) == (12, 3 * BLOCK - 12, 0, 0, 3)


def test_two_equal_prompts_by_hand():
    """Blocks of 16: the second of two prompts of 40 tokens finds 32 of them; side by side they save 32 slots."""
    prompt = tuple(range(40))
    asks = [Ask("a", 0, prompt, 6), Ask("b", 2, prompt, 6)]
    without, cached = (serve_paged("", asks, prefix_caching=on) for on in (False, True))
    assert (without.computed, without.needless, without.shared) == (80, 40, 0)
    assert (cached.computed, cached.needless, cached.shared) == (48, 8, 32)


def test_branches_are_shared_by_paging_and_copied_by_runs():
    asks = [Ask("a", 0, tuple(range(20)), 8, branches=3)]
    paged = serve_paged("", asks, prefix_caching=False)
    assert (paged.computed, paged.copied) == (20, 2 * BLOCK)  # the last to write keeps the block
    assert paged.shared == 2 * BLOCK  # the full block, held by three; of the other each has its own by now
    run = serve_runs("", asks, FirstFitAllocator(256), "oracle")
    assert (run.computed, run.copied, run.needless) == (20, 40, 0)
    grown = 3 * sum(range(20, 27))  # seven tokens more are stored in each of three arrays
    assert (serve_concatenated("", asks).computed, serve_concatenated("", asks).copied) == (20, 40 + grown)


def test_a_branch_that_comes_when_the_others_are_gone_computes_the_prompt_again():
    asks = [Ask("a", 0, tuple(range(20)), 8, branches=2)]
    run = serve_runs("", asks, FirstFitAllocator(27), "oracle")
    assert (run.computed, run.copied, run.needless) == (40, 0, 20)


def test_who_waits_makes_the_free_slots_external():
    asks = [Ask("a", 0, (1,) * 3000, 4), Ask("b", 1, (2,) * 2000, 2)]
    assert serve_paged("", asks[:1], prefix_caching=False).external == 0
    paged, grown = serve_paged("", asks, prefix_caching=False), serve_concatenated("", asks)
    assert 0 < paged.external < 4096 * paged.num_steps
    assert 0 < grown.external <= 1096 * 4


def test_distinct_tokens_depend_on_what_comes_before():
    assert distinct_tokens([(1, 2, 3), (1, 2, 4), (9, 2)]) == 3 + 1 + 2


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_sums(row):
    assert row.taken <= row.capacity * row.num_steps
    assert row.taken + row.external <= row.capacity * row.num_steps
    assert row.needless == row.computed - distinct_tokens(ask.prompt for ask in chats()) >= 0
    assert row.name in table(ROWS)


def test_contiguous_memories_hold_the_same_tokens():
    assert STATIC.used == DYNAMIC.used == BUDDY.used
    assert STATIC.reserved == BUDDY.reserved
    assert DYNAMIC.reserved == STATIC.reserved
    for row in (STATIC, BUDDY):  # a prompt for each branch: computed or copied
        assert row.computed + row.copied == sum(len(ask.prompt) * ask.branches for ask in chats())
    assert PAGED.computed == DYNAMIC.computed == BUDDY.computed == sum(len(ask.prompt) for ask in chats())


def test_the_order_that_the_lesson_tells_of():
    assert [row.taken for row in ROWS] != sorted(row.taken for row in ROWS)  # dynamic holds less than buddies
    assert [row.num_steps for row in ROWS] == [311, 148, 205, 109, 109]
    assert STATIC.taken > BUDDY.taken > DYNAMIC.taken > PAGED.taken > PREFIX.taken
    assert STATIC.used_share < BUDDY.used_share < DYNAMIC.used_share < PREFIX.used_share < PAGED.used_share
    assert DYNAMIC.copied > 100 * PAGED.copied > 0
    assert STATIC.shared == BUDDY.shared == DYNAMIC.shared == 0 < PAGED.shared < PREFIX.shared
    assert PREFIX.needless < PAGED.needless == BUDDY.needless < STATIC.needless
    assert BUDDY.external > DYNAMIC.external > STATIC.external == PAGED.external == 0


def test_static_is_as_good_as_the_limit_is_tight():
    shares = [static(chats(), limit).used_share for limit in (227, 256, 512, 1024)]
    assert shares == sorted(shares, reverse=True)
    assert shares[2] == STATIC.used_share
    assert max(len(ask.prompt) + ask.output for ask in chats()) == 227


def test_the_table_is_narrow():
    assert max(map(len, table(ROWS).splitlines())) <= 79


def test_a_request_that_never_fits_is_refused():
    with pytest.raises(ValueError, match="can never run"):
        serve_runs("static", [Ask("a", 0, (1,) * 20, 2)], FirstFitAllocator(8), "max")
