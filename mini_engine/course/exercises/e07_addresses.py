"""Lesson 07, where a token lies: its slot by way of the block table, and K and V into those slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mini_engine.attention import slot_mapping, write_kv
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers07_addresses as answers
from mini_engine.course.expect import expect_close, expect_equal, expect_raises, fail

Mapping = tuple[Sequence[int], Sequence[int], int]  # block table, positions, block size


def slot_by_slot(block_table: Sequence[int], positions: Sequence[int], block_size: int) -> list[int]:
    """An independent oracle: walk through the blocks and count."""
    slots = [block * block_size + offset for block in block_table for offset in range(block_size)]
    return [slots[at] if at >= 0 else -1 for at in positions]


def _maps(cases: list[Mapping]) -> Callable[[Any], None]:
    def run(candidate: Any) -> None:
        for table, positions, block_size in cases:
            case = f"block table {list(table)}, blocks of {block_size}, positions {list(positions)}"
            got = candidate(np.array(table, np.int32), np.array(positions, np.int64), block_size)
            if type(got) is not np.ndarray or got.dtype.kind not in "iu":
                fail(case, expected="a NumPy array of int64", got=got)
            expect_equal(got.tolist(), slot_by_slot(table, positions, block_size), case)

    return run


def _is_int64(candidate: Any) -> None:
    got = candidate(np.array([3], np.int32), np.array([1], np.int64), 4)
    expect_equal(str(got.dtype), "int64", "block table [3], blocks of 4, positions [1]: the type of the slots")
    _maps([([2**27 + 3], [0, 15], 16)])(candidate)


def _none(candidate: Any) -> None:
    case = "block table [3, 1], blocks of 4, no positions: a NumPy array without content"
    got = candidate(np.array([3, 1], np.int32), np.array([], np.int64), 4)
    expect_equal((type(got).__name__, got.shape, str(got.dtype)), ("ndarray", (0,), "int64"), f"{case}, its type")


ONE, SEVERAL, ZERO, PAD, INT64, NONE = (
    "one token: block times size, plus offset",
    "tokens in several blocks, in any order",
    "block 0 has slots like any other block",
    "position -1 is padding, and stays -1",
    "int64, also where the table is int32",
    "no positions give no slots, in an array of int64",
)

SLOT_MAPPING = Exercise(
    id="07.slot_mapping",
    title="From position to slot",
    reference=slot_mapping,
    properties=[
        Property(ONE, _maps([([3], [0], 4), ([3], [2], 4), ([7, 3, 9], [37], 16), ([5, 1], [4], 4), ([2, 6], [1], 1)])),
        Property(SEVERAL, _maps([([2, 5], [3, 4], 4), ([9, 1, 4], list(range(9)), 3), ([9, 1, 4], [8, 0, 4, 5], 3)])),
        Property(ZERO, _maps([([0], [0, 3], 4), ([6, 0, 2], [5, 4, 9], 4)])),
        Property(PAD, _maps([([3], [-1], 4), ([3, 5], [6, -1, 0], 4), ([3], [-1, -1, 2], 4)])),
        Property(INT64, _is_int64),
        Property(NONE, _none),
    ],
    mutants=[
        Mutant("the position itself", answers.position_is_slot, ONE, "That is where it would lie in one run."),
        Mutant("the index for the block", answers.index_for_block, ONE, "The table says which block comes at that index."),
        Mutant("no offset", answers.no_offset, ONE, "That is the first slot of the block."),
        Mutant("division and rest swapped", answers.swapped_division, ONE, "The quotient is the index, the rest the offset."),
        Mutant("blocks count from one", answers.counts_from_one, ONE, "Block 0 exists, with slots from 0 on."),
        Mutant("first block only", answers.first_block_only, ONE, "The next block lies somewhere else."),
        Mutant("sorted", answers.sorted_positions, SEVERAL, "Slot i belongs to position i, in the order given."),
        Mutant("block 0 is padding", answers.block_0_is_padding, ZERO, "A position of -1 is padding. A block of 0 is not."),
        Mutant("padding in the last block", answers.last_block_for_padding, PAD, "In Python -1 // 4 is -1: the last entry."),
        Mutant("padding in slot 0", answers.zero_for_padding, PAD, "Slot 0 is a slot. It would be written."),
        Mutant("padding left out", answers.padding_left_out, PAD, "There must be one slot for each position."),
        Mutant("int32", answers.int32_slots, INT64, "Slots and the offsets made of them outgrow 32 bits."),
        Mutant("products in int32", answers.int32_products, INT64, "The product has overflowed before it is widened."),
        Mutant("an empty list for an array", answers.no_slots_are_floats, NONE, "NumPy makes float64 of an empty list."),
    ],
    alternatives=[answers.slots_by_a_loop, answers.slots_of_all_first],
)  # fmt: skip


def _tokens(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Numbers that need all digits of float64."""
    k, v = np.random.default_rng(seed).normal(size=(2, count, 2, 3))
    return k, v


def _pools(fill: float = np.nan) -> tuple[np.ndarray, np.ndarray]:
    return np.full((5, 4, 2, 3), fill), np.full((5, 4, 2, 3), fill)


def _writes(mappings: list[list[int]], others: bool = False, rtol: float = 1e-6) -> Callable[[Any], None]:
    """Write by each mapping, then look at its slots, or at all others."""

    def run(candidate: Any) -> None:
        for slots in mappings:
            pools, both = _pools(), _tokens(len(slots))
            if others:  # no slot is empty, so that a change shows
                numbers = np.arange(5 * 4 * 2 * 3).reshape(5, 4, 2, 3)
                pools = numbers + 1000.0, numbers + 2000.0
            before = [pool.copy() for pool in pools]
            case = f"pools of 5 blocks of 4, slots {slots}"
            candidate(*both, *pools, np.array(slots, dtype=np.int64))
            for name, new, pool, old in zip(("K", "V"), both, pools, before):
                for slot in range(20):
                    written = slot in slots
                    if written == others:
                        continue
                    want = new[slots.index(slot)] if written else old[slot // 4, slot % 4]
                    kind = "written to" if written else "not written to"
                    case_of_slot = f"{case}\n{name} in slot {slot}, which is {kind}"
                    expect_close(pool[slot // 4, slot % 4], want, case_of_slot, rtol=rtol)

    return run


def _skips(candidate: Any) -> None:
    for others in (True, False):
        _writes([[6, -1], [-1, 9, -1, 4], [-1]], others)(candidate)


def _refuses(candidate: Any) -> None:
    k, v = _tokens(2)
    slots = np.array([5, 9])
    for name, wrong in (
        ("numbers without heads", np.ones(3)), ("one token for two slots", k[:1]), ("one head for two", k[:, :1]),
        ("heads of size 1", k[..., :1]), ("three tokens for two slots", np.ones((3, 2, 3))),
        ("heads and head size swapped", np.ones((2, 3, 2))), ("one row of numbers a token", np.ones((2, 6))),
    ):  # fmt: skip
        for which, pair in (("k", (wrong, v)), ("v", (k, wrong)), ("each of k and v", (wrong, wrong))):
            k_pool, v_pool = _pools()
            case = f"{which} is {name}, shape {wrong.shape}, where (2, 2, 3) is right"
            expect_raises(ValueError, partial(candidate, *pair, k_pool, v_pool, slots), case)
            for pool in (k_pool, v_pool):
                expect_equal(int((~np.isnan(pool)).sum()), 0, f"{case}: numbers stored in spite of the error")


LANDS, DIGITS, OTHERS, SKIPPED, SHAPES = (
    "K and V of each token land in its slot",
    "every digit arrives",
    "all other slots keep what they held",
    "a slot of -1 is skipped",
    "a wrong shape is a ValueError, and nothing is stored",
)

WRITE_KV = Exercise(
    id="07.write_kv",
    title="Write K and V into their slots",
    reference=write_kv,
    may_change=("k_pool", "v_pool"),
    properties=[
        Property(LANDS, _writes([[6], [4, 5, 6, 7], [7, 8], [13, 2, 18], [0], [0, 3]])),
        Property(DIGITS, _writes([[6], [13, 2, 18]], rtol=0)),
        Property(OTHERS, _writes([[6], [13, 2, 17], []], others=True)),
        Property(SKIPPED, _skips),
        Property(SHAPES, _refuses),
    ],
    mutants=[
        Mutant("keys twice", answers.keys_twice, LANDS, "The values are lost, and nothing looks wrong."),
        Mutant("slots in order", answers.in_order, LANDS, "The mapping says where, not the order of the tokens."),
        Mutant("into a copy", answers.into_a_copy, LANDS, "The caller's pools must change."),
        Mutant("the first slot of the block", answers.first_offset_only, LANDS, "A block has one slot for each token."),
        Mutant("slot 0 is padding", answers.slot_0_is_padding, LANDS, "Only slots below 0 are padding."),
        Mutant("through float32", answers.through_float32, DIGITS, "The pool has a type of its own. Do not round before."),
        Mutant("clears the pool", answers.clears_first, OTHERS, "Other requests have their tokens there."),
        Mutant("clears the rest of the block", answers.whole_block, OTHERS, "What lies there is not yours to clear."),
        Mutant("padding into the last slot", answers.padding_into_the_last, SKIPPED, "NumPy counts -1 from the end."),
        Mutant("padding into slot 0", answers.padding_into_the_null_block, SKIPPED, "Padding must not be stored at all."),
        Mutant("stops at padding", answers.stops_at_padding, SKIPPED, "Tokens may come after padding."),
        Mutant("drops slots, not tokens", answers.slots_without_rows, SKIPPED, "Token i belongs to slot i."),
        Mutant("no check", answers.no_check, SHAPES, "NumPy spreads one number over all heads."),
        Mutant("checks k only", answers.checks_k_only, SHAPES, "The values can have a wrong shape as well."),
        Mutant("compares k with v", answers.compares_k_with_v, SHAPES, "Both can have the same wrong shape."),
        Mutant("counts the numbers", answers.counts_numbers, SHAPES, "The right number of numbers, in the wrong order."),
        Mutant("checks too late", answers.too_late, SHAPES, "The keys are stored by then."),
    ],
    alternatives=[answers.write_by_a_loop, answers.write_flat],
)  # fmt: skip
