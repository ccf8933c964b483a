"""Lesson 09, exercise 2: what a prompt finds in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mini_engine import EngineConfig, LLMEngine, SamplingParams
from mini_engine.backends import AuditBackend
from mini_engine.backends.audit import KVCorruption
from mini_engine.cache import CacheRequest, KVCacheManager, WeakHasher
from mini_engine.course.cache_requests import CacheUser, prefill
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers09_cache as answers
from mini_engine.course.expect import expect_equal, fail

Make = Callable[..., KVCacheManager]


def found(cache: KVCacheManager, tokens: Sequence[int], case: str) -> list[int]:
    """What match says of a prompt: plain block numbers."""
    user = CacheUser("question", list(tokens))
    got = cache.match(user)
    cache.free(user)
    if type(got) is not list or any(type(block) is not int for block in got):
        fail(f"{case}: match", expected="a list of block numbers", got=got)
    return got


def asks(cache: KVCacheManager, tokens: Sequence[int], want: list[int], before: str) -> None:
    """The prompt must find exactly these blocks."""
    case = f"{before}; the prompt {list(tokens)}"
    expect_equal(found(cache, tokens, case), want, f"{case}: the blocks it finds")


def _kept(make: Make, prompt: list[int], *, size: int = 4, **options: Any) -> tuple[KVCacheManager, list[int]]:
    """A cache in which one prompt was computed and freed, and the blocks it had."""
    cache = make(16, size, **options)
    user = CacheUser("a", prompt)
    prefill(cache, user)
    table = list(user.block_table)
    cache.free(user)
    return cache, table


def _leading(make: Make) -> None:
    asks(make(16, 4), [1, 2, 3, 4, 5], [], "an empty cache")
    cache, table = _kept(make, list(range(1, 10)))
    before = f"blocks of 4; 1 to 9 was computed in blocks {table}, and freed"
    asks(cache, [1, 2, 3, 4, 7], table[:1], before)
    asks(cache, [*range(1, 9), 0, 0], table[:2], before)
    asks(cache, [9, 8, 7, 6, 5], [], before)
    asks(cache, [1, 2, 3], [], before)


def _first_miss(make: Make) -> None:
    cache, table = _kept(make, list(range(1, 14)))
    before = f"blocks of 4; 1 to 13 was computed in blocks {table} and freed"
    asks(cache, [1, 2, 3, 4, 0, 6, 7, 8, 9, 10, 11, 12, 13], table[:1], before)
    cache.pool.evict(table[1])
    asks(cache, range(1, 14), table[:1], f"{before}; then block {table[1]} was reused for something else")
    cache.pool.evict(table[0])
    asks(cache, range(1, 14), [], f"{before}; then blocks {table[1]} and {table[0]} were reused")


def _one_left(make: Make) -> None:
    cache, table = _kept(make, list(range(1, 9)))
    before = f"blocks of 4; 1 to 8 was computed in blocks {table} and freed"
    asks(cache, range(1, 9), table[:1], before)
    asks(cache, range(1, 10), table[:2], before)
    asks(cache, range(1, 5), [], before)
    cache, table = _kept(make, [1, 2, 3], size=1)
    asks(cache, [1, 2, 3], table[:2], f"blocks of 1; 1, 2, 3 was computed in blocks {table} and freed")
    asks(cache, [1], [], f"blocks of 1; 1, 2, 3 was computed in blocks {table} and freed")


def _believes_tokens(make: Make) -> None:
    cache, table = _kept(make, [1, 2, 9], size=2, hasher=WeakHasher())
    before = f"names are the sum of a block's tokens modulo 7; blocks of 2; 1, 2, 9 was computed in blocks {table}"
    asks(cache, [3, 7, 9], [], before)
    asks(cache, [2, 1, 9], [], before)
    cache, table = _kept(make, [1, 2, 5, 6, 9], size=2, hasher=WeakHasher())
    other = CacheUser("b", [3, 4, 5, 5, 9])
    prefill(cache, other)
    before = (
        "names are the sum of a block's tokens modulo 7; blocks of 2; 1, 2, 5, 6, 9 and 3, 4, 5, 5, 9 were computed in "
        f"blocks {table} and {other.block_table}"
    )
    asks(cache, [3, 4, 5, 6, 9], other.block_table[:1] if cache.pool.is_published(other.block_table[0]) else [], before)


def _takes_nothing(make: Make) -> None:
    cache, _ = _kept(make, list(range(1, 10)))
    user = CacheUser("b", list(range(1, 10)))
    for n in (1, 2):
        cache.match(user)
        expect_equal(cache.pool.num_free, 16, f"16 blocks, all of them free; match was called {n} times: free blocks")
    before = CacheUser("b", list(range(1, 10)))
    for name in ("block_table", "num_computed_tokens", "token_ids"):
        expect_equal(getattr(user, name), getattr(before, name), f"after match: {name} of the request")


def _serve(make: Any, prompts: list[list[int]], **options: Any) -> tuple[list[list[int]], LLMEngine]:
    config = EngineConfig(num_blocks=16, block_size=4, **options)
    engine = LLMEngine(config, AuditBackend(), kv_manager=make)
    for number, prompt in enumerate(prompts):
        engine.add_request(str(number), prompt, SamplingParams(temperature=0, max_tokens=6))
    tokens: dict[str, list[int]] = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            tokens[output.request_id] = list(output.outputs[0].token_ids)
    return [tokens[str(number)] for number in range(len(prompts))], engine


class _NoCache(KVCacheManager):
    def match(self, request: CacheRequest) -> list[int]:
        return []


def _in_the_engine(make: Make) -> None:
    prompts = [[*range(1, 30), n % 3] for n in range(4)]
    options = {"max_num_seqs": 1}
    want, _ = _serve(_NoCache, prompts, **options)
    case = "LLMEngine, blocks of 4, four prompts 1 to 29 and one token more, one after the other"
    try:
        got, engine = _serve(make, prompts, **options)
    except KVCorruption as error:
        fail(case, expected="the same text as without a cache", got=f"K/V of another history: {error}")
    expect_equal(got, want, f"{case}: their tokens")
    expect_equal(engine.stats().num_prefix_hit_tokens, 3 * 28, f"{case}: prompt tokens hit")


LEADING, MISS, LEFT, TOKENS, NOTHING, ENGINE = (
    "finds the leading blocks that are there",
    "stops at the first miss",
    "leaves at least one token to compute",
    "believes tokens, not names",
    "looks, and takes nothing",
    "in the engine: the same text, with fewer tokens computed",
)

MATCH = Exercise(
    id="09.match",
    title="What a prompt finds",
    reference=answers.Matches,
    methods=("match",),
    budget=3_000_000,
    properties=[
        Property(LEADING, _leading),
        Property(NOTHING, _takes_nothing),
        Property(MISS, _first_miss),
        Property(LEFT, _one_left),
        Property(TOKENS, _believes_tokens),
        Property(ENGINE, _in_the_engine),
    ],
    mutants=[
        Mutant("None on a miss", answers.NothingOnAMiss, LEADING, "An empty list says that nothing was found."),
        Mutant("a count", answers.CountsThem, LEADING, "The engine needs to know which blocks."),
        Mutant("a generator", answers.OneByOne, LEADING, "The engine asks for the length of the list."),
        Mutant("from the end", answers.FromTheEnd, LEADING, "Block i of the list holds block i of the prompt."),
        Mutant("gives up the last one always", answers.LeavesOutTheLast, LEADING, "Where a token is left over, all blocks may be used."),
        Mutant("over the gap", answers.OverTheGap, MISS, "A table cannot have a hole: what follows the miss has to be computed."),
        Mutant("the whole prompt", answers.WholePrompt, LEFT, "Then no token is left to compute, and nobody has the logits."),
        Mutant("one block less", answers.OneBlockLess, LEADING, "The bound is (length - 1) // block_size."),
        Mutant("believes the name", answers.BelievesTheName, TOKENS, "Two contents can have one name."),
        Mutant("compares this block only", answers.ComparesTheBlockOnly, TOKENS, "The tokens before it count as well: K and V depend on them."),
        Mutant("compares sorted tokens", answers.ComparesSorted, TOKENS, "Attention knows the order."),
        Mutant("moves the request on", answers.MovesTheRequestOn, NOTHING, "The scheduler counts what is computed when it admits."),
        Mutant("takes what it finds", answers.TakesThem, NOTHING, "A scheduler asks often, and admits later or never."),
        Mutant("three at most", answers.ThreeAtMost, ENGINE, "Short tests do not see long prompts."),
        Mutant("finds nothing", _NoCache, LEADING, "It is right, and saves nothing."),
    ],
    alternatives=[answers.MatchesByLength, KVCacheManager],
)  # fmt: skip
