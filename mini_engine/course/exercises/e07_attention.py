"""Lesson 07, attention over blocks that do not touch: one block at a time, and not a slot too many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mini_engine.attention import paged_attention
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers07_attention as answers
from mini_engine.course.exercises.e01_attention import slow_attention
from mini_engine.course.expect import expect, expect_close

Array = np.ndarray
N, P = 9, 4
TABLE = [6, 2, 7, 1]


class Counted(np.ndarray):
    """A pool that remembers the most numbers that were taken out of it at once."""

    largest = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        Counted.largest = max(Counted.largest, np.size(found))
        return found


def case_of(length: int, heads: tuple[int, int] = (2, 2), loud: float = 1.0, below: bool = False) -> Any:
    """q, k, v of `length` tokens, and pools with NaN in all other slots. below: every score is below 0."""
    H, K = heads
    rng = np.random.default_rng(length)
    q, (k, v) = rng.normal(size=(H, 3)), rng.normal(size=(2, length, K, 3))
    k[: length // 2] *= loud  # the largest score is among the first tokens, or among the last
    if below:
        k = -np.abs(k) * np.sign(q[:: H // K])
    k_pool, v_pool = np.full((2, N, P, K, 3), np.nan)
    for at in range(length):
        k_pool[TABLE[at // P], at % P], v_pool[TABLE[at // P], at % P] = k[at], v[at]
    return q, k, v, k_pool, v_pool


def _equals_dense(
    lengths: Sequence[int],
    *,
    heads: tuple[int, int] = (2, 2),
    scales: Sequence[float] = (0.5,),
    tail: Sequence[int] = (),
    loud: float = 1.0,
    below: bool = False,
    rtol: float = 1e-12,
) -> Callable[[Any], None]:
    def run(candidate: Any) -> None:
        for length in lengths:
            table = TABLE[: -(-length // P)] + list(tail)
            q, k, v, k_pool, v_pool = case_of(length, heads, loud, below)
            for scale in scales:
                case = f"{length} tokens in blocks of {P}, block table {table}, {heads[0]} query heads, {heads[1]} K/V heads"
                case += f", scale {scale}" * (len(scales) > 1)
                want = slow_attention(q[None], k, v, scale, length - 1)[0] if length else np.zeros(q.shape)
                with np.errstate(all="ignore"):
                    got = candidate(q, k_pool, v_pool, np.array(table, np.int32), length, scale)
                expect_close(got, want, case + ", scores below 0" * below, rtol=rtol)

    return run


def _with_large_scores(candidate: Any) -> None:
    for loud, below in ((9.0, False), (0.1, False), (1.0, True)):  # 1e-9: a rounded score of thousands moves its weight
        _equals_dense([4, 12], scales=[900.0], loud=loud, below=below, rtol=1e-9)(candidate)


def _one_block_at_a_time(candidate: Any) -> None:
    q, _, _, k_pool, v_pool = case_of(15)
    Counted.largest = 0
    candidate(q, k_pool.view(Counted), v_pool.view(Counted), np.array(TABLE, np.int32), 15, 0.5)
    case = f"15 tokens in blocks of {P}, {P * 2 * 3} numbers a block: the most that were taken out of a pool at once"
    expect(0 < Counted.largest <= P * 2 * 3, case, expected=f"{P * 2 * 3} or fewer", got=f"{Counted.largest}")


INSIDE, BLOCKS, UNUSED, BEHIND, GROUPS, LARGE, EMPTY, ONE_BLOCK = (
    "a context within one block",
    "a context of several blocks: the softmax is over all of them",
    "unused slots of the last block are never read",
    "table entries behind the context are never read",
    "several query heads share a K/V head",
    "large scores, rising and falling from block to block",
    "a context of 0 tokens gives zeros",
    "takes no more than a block out of a pool at once",
)

PAGED_ATTENTION = Exercise(
    id="07.paged_attention",
    title="Attention, one block at a time",
    reference=paged_attention,
    properties=[
        Property(INSIDE, _equals_dense([4], scales=[0.5, 2.0])),
        Property(BLOCKS, _equals_dense([8, 12, 16], scales=[0.5, 2.0])),
        Property(UNUSED, _equals_dense([1, 3, 5, 9, 15])),
        Property(BEHIND, _equals_dense([4, 7], tail=[0, 10**6])),
        Property(GROUPS, _equals_dense([3, 9], heads=(6, 2))),
        Property(LARGE, _with_large_scores),
        Property(EMPTY, _equals_dense([0], tail=[0])),
        Property(ONE_BLOCK, _one_block_at_a_time),
    ],
    mutants=[
        Mutant("no scale", answers.no_scale, INSIDE, "The scores are multiplied by the scale."),
        Mutant("as if in one run", answers.one_run, BLOCKS, "The next block is where the table says."),
        Mutant("first block only", answers.first_block_only, BLOCKS, "The context goes on in the next block."),
        Mutant("averages the blocks", answers.averages_blocks, BLOCKS, "A block with large scores weighs more."),
        Mutant("nothing shrinks", answers.no_shrink, BLOCKS, "With a new maximum, the old weights are too large."),
        Mutant("the sum does not shrink", answers.sum_not_shrunk, BLOCKS, "Sum and values must shrink together."),
        Mutant("whole blocks", answers.whole_blocks, UNUSED, "The end of the last block holds no token."),
        Mutant("hides the scores only", answers.hides_scores_only, UNUSED, "0 times NaN is NaN."),
        Mutant("full blocks only", answers.full_blocks_only, UNUSED, "Tokens in the last block count as well."),
        Mutant("the whole table", answers.whole_table, BEHIND, "The tail of a table is padding."),
        Mutant("heads in turn", answers.heads_in_turn, GROUPS, "Head h reads K/V head h // (H // K)."),
        Mutant("no maximum", answers.no_top, LARGE, "exp of a large number is infinite."),
        Mutant("the maximum starts at 0", answers.top_starts_at_zero, LARGE, "If all scores are far below 0, all weights vanish."),
        Mutant("the maximum of the block", answers.top_of_block, LARGE, "A maximum that falls makes the old weights grow without bound."),
        Mutant("divides by nothing", answers.no_empty, EMPTY, "0 / 0 is NaN."),
        Mutant("gathers all first", answers.gathers_all, ONE_BLOCK, "That copies the whole context for each token."),
    ],
    alternatives=[answers.by_loops, answers.in_two_passes, answers.by_parts],
)  # fmt: skip
