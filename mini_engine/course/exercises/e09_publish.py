"""Lesson 09, exercise 3: which blocks others may find."""

from __future__ import annotations

from mini_engine.cache import KVCacheManager
from mini_engine.course.cache_requests import CacheUser, compute, decode, prefill, start
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers09_cache as answers
from mini_engine.course.exercises.e09_match import Make, asks, found
from mini_engine.course.expect import expect, expect_equal


def _not_before(make: Make) -> None:
    cache = make(8, 4)
    a = CacheUser("a", [1, 2, 3, 4, 5, 6, 7, 8, 9])
    start(cache, a)
    before = "blocks of 4; a has 9 tokens and 3 blocks"
    cache.publish(a)
    for computed, most in ((0, 0), (2, 0), (3, 0), (4, 1), (6, 1), (7, 1), (8, 2)):
        a.num_computed_tokens = computed
        cache.publish(a)
        case = f"{before}, {computed} tokens computed; the prompt 1 to 8 and one more"
        got = found(cache, [1, 2, 3, 4, 5, 6, 7, 8, 0], case)
        expect(
            set(got) <= set(a.block_table[:most]),
            f"{case}: the blocks it finds",
            expected=f"none but {a.block_table[:most]}" if most else "none",
            got=got,
        )


def _as_soon(make: Make) -> None:
    cache = make(8, 4)
    a = CacheUser("a", [1, 2, 3, 4, 5, 6, 7, 8, 9])
    start(cache, a)
    for n, want in ((4, 1), (4, 2)):
        compute(cache, a, n)
        asks(
            cache,
            [1, 2, 3, 4, 5, 6, 7, 8, 0],
            a.block_table[:want],
            f"blocks of 4; a has 9 tokens, {a.num_computed_tokens} computed",
        )
    cache = make(8, 2)
    a = CacheUser("a", [1, 2, 3, 4, 5, 6, 7])
    start(cache, a)
    compute(cache, a)
    asks(cache, [1, 2, 3, 4, 5, 6, 0], a.block_table[:3], "blocks of 2; a has 7 tokens, all computed in one step")


def _sampled(make: Make) -> None:
    cache = make(8, 4)
    a = CacheUser("a", [1, 2, 3, 4, 5, 6, 7])
    prefill(cache, a)
    a.token_ids.append(8)
    cache.publish(a)
    case = "blocks of 4; a: prompt 1 to 7 computed, token 8 sampled"
    asks(cache, [1, 2, 3, 4, 5, 6, 7, 8, 0], a.block_table[:1], f"{case}, not computed")


def _decoded(make: Make) -> None:
    cache = make(8, 4)
    a = CacheUser("a", [1, 2, 3, 4, 5])
    prefill(cache, a)
    decode(cache, a, 6, 7, 8, 9)
    case = "blocks of 4; a: prompt 1 to 5, then decoding computed 6, 7, 8 and 9"
    asks(cache, [1, 2, 3, 4, 5, 6, 7, 8, 0], a.block_table[:2], case)


def _counts(make: Make) -> None:
    cache = make(8, 4)
    a = CacheUser("a", list(range(1, 14)))
    start(cache, a)
    a.num_computed_tokens = 9
    case = "blocks of 4; a has 13 tokens"
    expect_equal(cache.publish(a), 2, f"{case}, 9 computed: publish returns the blocks that are new")
    expect_equal(cache.publish(a), 0, f"{case}, 9 computed, publish once more: new blocks")
    a.num_computed_tokens = 12
    expect_equal(cache.publish(a), 1, f"{case}, then 12 computed: new blocks")


BEFORE, SOON, SAMPLED, DECODED, COUNTS = (
    "no block is found before it is computed",
    "a block is found as soon as it is computed",
    "a sampled token is not computed yet",
    "what decoding fills is found too",
    "returns how many blocks are new",
)

PUBLISH = Exercise(
    id="09.publish",
    title="Which blocks others may find",
    reference=answers.Publishes,
    methods=("publish",),
    properties=[
        Property(BEFORE, _not_before),
        Property(SOON, _as_soon),
        Property(SAMPLED, _sampled),
        Property(DECODED, _decoded),
        Property(COUNTS, _counts),
    ],
    mutants=[
        Mutant("every block with tokens", answers.AllBlocks, BEFORE, "The tokens are known. Their K and V are not there yet."),
        Mutant("rounds up", answers.RoundsUp, BEFORE, "The last slots of the block are still empty."),
        Mutant("one token late", answers.OneTooFew, SOON, "12 computed tokens are 3 full blocks of 4."),
        Mutant("one token early", answers.RoundsUpTheLast, BEFORE, "7 computed tokens are one full block of 4."),
        Mutant("from the last to the first", answers.FromTheLast, SOON, "A block is found through the one before it: go up."),
        Mutant("the last block only", answers.LastBlockOnly, SOON, "A step can fill many blocks."),
        Mutant("never", answers.Never, SOON, "Then nobody finds anything."),
        Mutant("once", answers.Once, SOON, "A long prompt is computed in several steps, and then comes decoding."),
        Mutant("the sampled token too", answers.OneTooMany, SAMPLED, "A sampled token has K and V one step later."),
        Mutant("the prompt only", answers.LengthAtFirst, DECODED, "A second turn sends the answer back. It should be found."),
        Mutant("counts them all", answers.CountsAll, COUNTS, "Only those that others could not find before."),
    ],
    alternatives=[answers.PublishesBlockByBlock, KVCacheManager],
)  # fmt: skip
