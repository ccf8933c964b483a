"""Lesson 09, the test-writing exercise: tests of a prefix cache, tried on right and on wrong ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from mini_engine.cache import KVCacheManager, NoFreeBlocksError, WeakHasher
from mini_engine.course.bug_bank import BugHunt
from mini_engine.course.cache_requests import CacheUser, compute, decode, look_up, prefill, start
from mini_engine.course.exercise import Mutant
from mini_engine.course.exercises.bugs09_prefix import PREFIX_BUGS

MakeCache = Callable[..., KVCacheManager]


def run(cache: KVCacheManager, name: str, token_ids: Sequence[int], cache_salt: str | None = None) -> int:
    """Compute a prompt and free it; returns the tokens that the cache had."""
    user = CacheUser(name, list(token_ids), cache_salt=cache_salt)
    found = prefill(cache, user)
    cache.free(user)
    return found


def when_blocks_become_findable(make: MakeCache) -> None:
    cache = make(8, 4)
    a = CacheUser("a", [1, 2, 3, 4, 5, 6])
    start(cache, a)
    cache.append(a, 6)
    assert look_up(cache, [1, 2, 3, 4, 9]) == 0, "nothing is computed yet"
    a.num_computed_tokens = 6
    cache.publish(a)
    assert look_up(cache, [1, 2, 3, 4, 9]) == 4
    decode(cache, a, 7)
    a.token_ids.append(8)  # sampled, not computed
    cache.publish(a)
    assert look_up(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == 4
    compute(cache, a)
    cache.free(a)
    assert look_up(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == 8, "blocks filled by decoding are found"
    assert look_up(cache, [1, 2, 3, 4, 5, 6, 7, 8]) == 4, "one token is left to compute"


def what_is_the_same_content(make: MakeCache) -> None:
    cache = make(8, 2)
    run(cache, "a", [1, 2, 3, 4, 5], cache_salt="ann")
    assert look_up(cache, [1, 2, 3, 4, 5], cache_salt="ann") == 4
    assert look_up(cache, [1, 2, 3, 4, 5], cache_salt="bob") == look_up(cache, [1, 2, 3, 4, 5]) == 0
    assert (
        look_up(cache, [3, 4, 1, 2, 5], cache_salt="ann")
        == look_up(cache, [1, 2, 5, 6, 3, 4, 0], cache_salt="ann") - 2
        == 0
    )
    cache = make(8, 2, hasher=WeakHasher())
    run(cache, "b", [1, 2, 9])
    assert look_up(cache, [3, 7, 9]) == 0, "1 + 2 and 3 + 7 are the same modulo 7"


def what_goes_first(make: MakeCache) -> None:
    cache = make(4, 2)
    run(cache, "a", range(8))
    run(cache, "b", [50, 51])
    assert look_up(cache, range(9)) == 6, "the tail goes first"
    cache = make(3, 2)
    run(cache, "a", [1, 2])
    run(cache, "b", [3, 4])
    run(cache, "c", [5])
    prefill(cache, CacheUser("d", [6]))
    assert look_up(cache, [1, 2, 0]) == look_up(cache, [3, 4, 0]) == 2, "a blank block was left"
    prefill(cache, CacheUser("e", [6, 7, 8]))
    assert (look_up(cache, [1, 2, 0]), look_up(cache, [3, 4, 0])) == (0, 0)
    cache = make(2, 2)
    run(cache, "a", [1, 2])
    run(cache, "b", [3, 4])
    prefill(cache, CacheUser("c", [5]))
    assert (look_up(cache, [1, 2, 0]), look_up(cache, [3, 4, 0])) == (0, 2), "the one unused for longest goes first"


def who_holds_what(make: MakeCache) -> None:
    cache = make(4, 2)
    run(cache, "a", [1, 2, 3, 4, 5])
    b = CacheUser("b", [1, 2, 3, 4, 6])
    assert prefill(cache, b) == 4
    assert cache.pool.num_free == 1
    cache.free(b)
    try:
        start(cache, CacheUser("too long", [1, 2, 3, 4, *range(5, 12)]))
    except NoFreeBlocksError:
        assert cache.pool.num_free == 4
    else:
        raise AssertionError("6 blocks came out of 4")
    cache = make(4, 2)
    run(cache, "a", range(8))
    prefill(cache, CacheUser("b", list(range(20, 28))))
    assert look_up(cache, range(9)) == 0, "these blocks hold other content by now"
    cache = make(4, 2)
    twins = [CacheUser("a", [1, 2, 3]), CacheUser("b", [1, 2, 3])]
    for twin in twins:
        start(cache, twin)
    for twin in twins:
        compute(cache, twin)
    cache.free(twins[0])
    if cache.pool.is_published(twins[1].block_table[0]):
        (free,) = set(cache.pool.published_blocks()) - set(twins[1].block_table)
        cache.pool.evict(free)
        assert look_up(cache, [1, 2, 3]) == 2, "its twin is still there"


def check_prefix_cache(make: MakeCache) -> None:
    """Raise AssertionError unless make(num_blocks, block_size, **options) finds what is computed, and only that."""
    for test in (when_blocks_become_findable, what_is_the_same_content, what_goes_first, who_holds_what):
        test(make)


def _step_by_step_with_another(make: MakeCache) -> None:
    """Another right test: random requests to this cache and to one that is trusted; hits and free blocks agree."""
    draw = random.Random(1)
    for num_blocks in (5, 8):
        caches = make(num_blocks, 2), KVCacheManager(num_blocks, 2)
        alive: list[tuple[CacheUser, CacheUser]] = []

        def agree(call: Callable[..., object], *pairs: object, caches: tuple = caches) -> None:
            """Both caches answer alike: the same value, or a refusal."""
            got: list[object] = []
            for i, cache in enumerate(caches):
                try:
                    got.append(call(cache, *(pair[i] if isinstance(pair, tuple) else pair for pair in pairs)))
                except NoFreeBlocksError:
                    got.append("no room")
                got.append(cache.pool.num_free)
            assert got[:2] == got[2:], f"{got[2:]} expected, {got[:2]} found"

        for step in range(100):
            prompt = [draw.choice([1, 8]) for _ in range(draw.randrange(1, 12))]
            salt = draw.choice([None, None, "s"])
            agree(look_up, prompt, salt)
            kind = draw.choice("nncdf")
            if kind == "n":
                pair = (
                    CacheUser(str(step), prompt, cache_salt=salt),
                    CacheUser(str(step), list(prompt), cache_salt=salt),
                )
                agree(start, pair)
                if pair[1].block_table:
                    alive.append(pair)
            elif alive and kind == "f":
                agree(lambda cache, user: cache.free(user), alive.pop(draw.randrange(len(alive))))
            elif alive:
                pair = draw.choice(alive)
                if kind == "d" and pair[1].num_computed_tokens == len(prompt):
                    for user in pair:
                        user.token_ids.append(step)
                    agree(lambda cache, user: cache.publish(user), pair)
                n = len(pair[1].token_ids) - pair[1].num_computed_tokens
                if n:
                    agree(lambda cache, user, n=n: len(cache.append(user, n)), pair)
                    agree(look_up, [*pair[1].token_ids, 1], pair[1].cache_salt)
                    covered = len(pair[1].block_table) * 2 >= len(pair[1].token_ids)
                    for cache, user in zip(caches, pair):
                        user.num_computed_tokens += n * covered
                        cache.publish(user)
                tables = [table.block_table for table, _ in alive]
                written = [table[user.num_computed_tokens // 2 :] for table, (user, _) in zip(tables, alive)]
                assert len({block for table in written for block in table}) == sum(map(len, written))
    what_is_the_same_content(make)
    who_holds_what(make)


def _second_request_is_fast(make: MakeCache) -> None:
    cache = make(8, 4)
    assert run(cache, "a", range(9)) == 0
    assert run(cache, "b", range(9)) == 8
    assert run(cache, "c", range(20, 29)) == 0


def _ample(make: MakeCache) -> None:
    """All about content, nothing about room."""
    when_blocks_become_findable(make)
    what_is_the_same_content(make)


def _wants_all_of_it(make: MakeCache) -> None:
    cache = make(8, 4)
    run(cache, "a", range(8))
    assert run(cache, "b", range(8)) == 8


ACCEPTS, REST = "right prefix caches pass", "it catches every bug in the bank"

PREFIX_TESTS = BugHunt(
    id="09.bugs",
    title="Tests that a broken prefix cache cannot pass",
    reference=check_prefix_cache,
    budget=2_000_000,
    seconds=5.0,
    bank=PREFIX_BUGS,
    properties=PREFIX_BUGS.properties(ACCEPTS, REST),
    mutants=[
        Mutant("wants all of it", _wants_all_of_it, ACCEPTS, "Somebody has to compute the last token's logits."),
        Mutant("the second is fast", _second_request_is_fast, REST, "Every one of these bugs makes a repeat fast."),
        Mutant("ample room", _ample, REST, "What goes first shows only when something has to go."),
    ],
    alternatives=[_step_by_step_with_another],
)  # fmt: skip
