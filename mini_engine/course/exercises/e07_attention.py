"""Lesson 07, attention over blocks that do not touch: one block at a time, and not a slot too many."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mini_engine.attention import paged_attention
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers07_attention as answers
from mini_engine.course.exercises.attention_cases import slow_attention
from mini_engine.course.expect import expect, expect_close, show

Array = np.ndarray
N, P = 40, 4
TABLE = [6, 2, 7, 1]
LONG = [11, 3, 25, 8, 30, 1, 17, 22, 5, 39, 14, 2, 33, 9, 28, 4, 19, 36, 7, 12, 31]


def case_of(
    length: int, heads: tuple[int, int] = (2, 2), loud: float = 1.0, below: bool = False, table: Sequence[int] = LONG
) -> Any:
    """q, k, v of `length` tokens, and pools with NaN in all other slots. below: every score is below 0."""
    H, K = heads
    rng = np.random.default_rng(length)
    q, (k, v) = rng.normal(size=(H, 3)), rng.normal(size=(2, length, K, 3))
    k[: length // 2] *= loud  # the largest score is among the first tokens, or among the last
    if below:
        k = -np.abs(k) * np.sign(q[:: H // K])
    k_pool, v_pool = np.full((2, N, P, K, 3), np.nan)
    for at in range(length):
        k_pool[table[at // P], at % P], v_pool[table[at // P], at % P] = k[at], v[at]
    return q, k, v, k_pool, v_pool


def _equals_dense(
    lengths: Sequence[int],
    *,
    heads: tuple[int, int] = (2, 2),
    scales: Sequence[float] = (0.5,),
    blocks: Sequence[int] = TABLE,
    tail: Sequence[int] = (),
    loud: float = 1.0,
    below: bool = False,
    rtol: float = 1e-6,
) -> Callable[[Any], None]:
    def run(candidate: Any) -> None:
        for length in lengths:
            table = [*blocks[: -(-length // P)], *tail]
            q, k, v, k_pool, v_pool = case_of(length, heads, loud, below, blocks)
            for scale in scales:
                case = f"{length} tokens in blocks of {P}, block table {table}, {heads[0]} query heads, {heads[1]} K/V heads"
                case += f", scale {scale}" * (len(scales) > 1)
                want = slow_attention(q[None], k, v, scale, length - 1)[0] if length else np.zeros(q.shape)
                with np.errstate(all="ignore"):
                    got = candidate(q, k_pool, v_pool, np.array(table, np.int32), length, scale)
                expect_close(got, want, case + ", scores below 0" * below, rtol=rtol)

    return run


def _all_digits(candidate: Any) -> None:
    _equals_dense([8, 12], scales=[0.5], rtol=1e-12)(candidate)


def _head_groups(candidate: Any) -> None:
    for heads in ((6, 2), (1, 1), (4, 1), (6, 3)):
        _equals_dense([3, 9], heads=heads)(candidate)


def _with_large_scores(candidate: Any) -> None:
    # A rounded score of thousands moves its weight: 1e-9. At 1e10 only the largest one is left.
    for scale, rtol in ((900.0, 1e-9), (1e10, 1e-6)):
        for loud, below in ((9.0, False), (0.1, False), (1.0, True)):
            _equals_dense([4, 12], scales=[scale], loud=loud, below=below, rtol=rtol)(candidate)


def _shows_a_broken_token(candidate: Any) -> None:
    for which in (0, 1):
        q, _, _, *pools = case_of(6, table=TABLE)
        pools[which][TABLE[0], 1] = np.nan
        with np.errstate(all="ignore"):
            got = candidate(q, *pools, np.array(TABLE[:2], np.int32), 6, 0.5)
        case = (
            f"6 tokens in blocks of {P}, block table {TABLE[:2]}, and the {('key', 'value')[which]} of token 1 is NaN"
        )
        expect(bool(np.isnan(got).all()), case, expected="NaN everywhere: the context itself is broken", got=show(got))


class Pool(np.ndarray):
    """An array of which the check keeps no copy to compare with, so that only the candidate's memory is counted."""


def _one_block_at_a_time(candidate: Any) -> None:
    """Looks at the memory that is taken, so it does not matter how the blocks are copied."""
    num_blocks, size = 64, 512
    pool = np.ones((num_blocks + 1, P, 1, size))
    table, limit = np.arange(num_blocks, 0, -1, dtype=np.int32), num_blocks * P * size * 8 // 4
    arguments = np.ones((2, size)), pool.view(Pool), pool.copy().view(Pool), table, num_blocks * P, 0.001
    candidate(*arguments)  # what is made once, on the first call, does not count
    with _peak() as peak:
        candidate(*arguments)
    case = f"{num_blocks * P} tokens in {num_blocks} blocks; their K takes {4 * limit:,} B: the most that your function held at once"
    expect(peak[0] < limit, case, expected=f"less than {limit:,} B", got=f"{peak[0]:,} B")


@contextmanager
def _peak() -> Iterator[list[int]]:
    """[bytes], the most memory taken inside the block beyond what there was at its beginning."""
    found, ours = [0], not tracemalloc.is_tracing()
    if ours:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        yield found
        found[0] = tracemalloc.get_traced_memory()[1] - before
    finally:
        if ours:
            tracemalloc.stop()


INSIDE, BLOCKS, MANY, UNUSED, BEHIND, ZERO, GROUPS, LARGE, EMPTY, DIGITS, BROKEN, ONE_BLOCK = (
    "a context within one block",
    "a context of several blocks: the softmax is over all of them",
    "a context of many blocks",
    "unused slots of the last block do not count, whatever they hold",
    "table entries behind the context are never read",
    "the context's length says where to stop, not a 0 in the table",
    "several query heads share a K/V head",
    "large scores, rising and falling from block to block",
    "a context of 0 tokens gives zeros",
    "every digit: float64 on the whole way",
    "a NaN inside the context is not hidden",
    "never holds the whole context",
)

PAGED_ATTENTION = Exercise(
    id="07.paged_attention",
    title="Attention, one block at a time",
    reference=paged_attention,
    properties=[
        Property(INSIDE, _equals_dense([4], scales=[0.5, 2.0])),
        Property(BLOCKS, _equals_dense([8, 12, 16], scales=[0.5, 2.0])),
        Property(DIGITS, _all_digits),
        Property(MANY, _equals_dense([20, 68, 84], blocks=LONG)),
        Property(UNUSED, _equals_dense([1, 3, 5, 9, 15])),
        Property(BEHIND, _equals_dense([4, 7], tail=[0, 10**6])),
        Property(ZERO, _equals_dense([10, 12], blocks=[6, 0, 7])),
        Property(GROUPS, _head_groups),
        Property(LARGE, _with_large_scores),
        Property(EMPTY, _equals_dense([0], tail=[0])),
        Property(BROKEN, _shows_a_broken_token),
        Property(ONE_BLOCK, _one_block_at_a_time),
    ],
    mutants=[
        Mutant("no scale", answers.no_scale, INSIDE, "The scores are multiplied by the scale."),
        Mutant("as if in one run", answers.one_run, BLOCKS, "The next block is where the table says."),
        Mutant("first block only", answers.first_block_only, BLOCKS, "The context goes on in the next block."),
        Mutant("averages the blocks", answers.averages_blocks, BLOCKS, "A block with large scores weighs more."),
        Mutant("nothing shrinks", answers.no_shrink, BLOCKS, "With a new maximum, the old weights are too large."),
        Mutant("the sum does not shrink", answers.sum_not_shrunk, BLOCKS, "Sum and values must shrink together."),
        Mutant("in float32", answers.in_float32, DIGITS, "Half of the digits are lost on the way."),
        Mutant("four blocks at most", answers.four_blocks_at_most, MANY, "A context has as many blocks as it needs."),
        Mutant("sixteen blocks at most", answers.sixteen_blocks_at_most, MANY, "A context has as many blocks as it needs."),
        Mutant("whole blocks", answers.whole_blocks, UNUSED, "The end of the last block holds no token."),
        Mutant("hides the scores only", answers.hides_scores_only, UNUSED, "0 times NaN is NaN."),
        Mutant("full blocks only", answers.full_blocks_only, UNUSED, "Tokens in the last block count as well."),
        Mutant("the whole table", answers.whole_table, BEHIND, "The tail of a table is padding."),
        Mutant("stops at a 0", answers.stops_at_zero, ZERO, "The length is given. What lies in block 0 is the caller's business."),
        Mutant("two K/V heads always", answers.two_heads_always, GROUPS, "K is in the pool's shape."),
        Mutant("heads in turn", answers.heads_in_turn, GROUPS, "Head h reads K/V head h // (H // K)."),
        Mutant("no maximum", answers.no_top, LARGE, "exp of a large number is infinite."),
        Mutant("the maximum starts at 0", answers.top_starts_at_zero, LARGE, "If all scores are far below 0, all weights vanish."),
        Mutant("the maximum starts at -1000", answers.top_starts_at_minus_1000, LARGE, "Scores may be lower than any number you think of."),
        Mutant("the maximum of the block", answers.top_of_block, LARGE, "A maximum that falls makes the old weights grow without bound."),
        Mutant("divides by nothing", answers.no_empty, EMPTY, "0 / 0 is NaN."),
        Mutant("NaN to zero in each block", answers.nan_to_zero_in_a_block, BROKEN, "A broken token must not look like a right one."),
        Mutant("NaN to zero in the pool", answers.nan_to_zero, BROKEN, "A broken token must not look like a right one."),
        Mutant("gathers all first", answers.gathers_all, ONE_BLOCK, "That copies the whole context for each token."),
        Mutant("slices, then all at once", answers.slices_then_all, ONE_BLOCK, "The slices are put together to one array after all."),
    ],
    alternatives=[answers.by_loops, answers.in_two_passes, answers.by_parts],
)  # fmt: skip
