"""Lesson 07, find the bug: `write` of the broken NumPy pool. Growth is an exercise of its own, see `e07_grow`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from mini_engine.course.broken_pool import PagedKVPool
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers07_pool as answers
from mini_engine.course.expect import expect_close, expect_equal, expect_raises, fail

Array = np.ndarray


def _two_sequences(kind: Any) -> tuple[Any, dict[str, int], str]:
    """A pool whose sequences lie in scattered blocks, how many tokens each has room for, and words."""
    pool = kind(8, 4, 2, 4)
    pool.free_blocks[:] = [5, 2, 7, 1, 0, 3, 4, 6]
    for name, room in (("a", 4), ("b", 7), ("a2", 5)):
        pool.add(name, room)
    return pool, {"a": 4, "b": 7}, f"blocks of 4, tables {pool.tables}"


def _numbers(n: int, seed: int = 0) -> Array:
    """K and V of n tokens, [2, n, 2, 4]; exact in float32."""
    return np.random.default_rng(seed).integers(-64, 64, size=(2, n, 2, 4)) / 8


def _unchanged(pool: Any, before: tuple[Array, Array, str], case: str) -> None:
    """No slot and no table differs; the first one that does is named."""
    for name, array, old in (("keys", pool.keys, before[0]), ("values", pool.values, before[1])):
        for block, offset in np.argwhere((array != old).any(axis=(2, 3))).tolist():
            fail(
                f"{case}: {name} in block {block}, offset {offset}",
                expected=old[block, offset],
                got=array[block, offset],
            )
    expect_equal(f"{pool.tables}, free {list(pool.free_blocks)}", before[2], f"{case}: tables and free blocks")


def _state(pool: Any) -> tuple[Array, Array, str]:
    return pool.keys.copy(), pool.values.copy(), f"{pool.tables}, free {list(pool.free_blocks)}"


def _writes(part: int) -> Any:
    """Two sequences in turn, each token looked at: part 0 are the keys, 1 the values."""

    def run(kind: Any) -> None:
        pool, rooms, case = _two_sequences(kind)
        new = {name: _numbers(room, seed) for seed, (name, room) in enumerate(rooms.items())}
        tables, written = dict(pool.tables), []
        for position in (0, 2, 3, 1, 4, 6, 5):
            for name, room in rooms.items():
                if position < room:
                    pool.write(name, position, *new[name][:, position])
                    written.append((name, position))
        pools = pool.keys, pool.values
        for name, position in written:
            block = tables[name][position // 4]
            what = f"{case}; a and b write in turn: {('key', 'value')[part]} of {name} at position {position}"
            expect_close(
                pools[part][block, position % 4], new[name][part, position], what, rtol=0, same_dtype=False
            )  # fmt: skip

    return run


def _others(kind: Any) -> None:
    pool, _, case = _two_sequences(kind)
    for array, numbers in zip((pool.keys, pool.values), (100.0, 500.0)):
        array[:] = np.arange(array.size).reshape(array.shape) + numbers
    for name, position in (("b", 5), ("a", 0)):
        before = _state(pool)
        pool.write(name, position, *_numbers(1)[:, 0])
        block, offset = pool.tables[name][position // 4], position % 4
        for array, old in zip((pool.keys, pool.values), before[:2]):
            old[block, offset] = array[block, offset]
        _unchanged(pool, before, f"{case}; {name} writes at position {position}, block {block}, offset {offset}")


def _refused(kind: Any, call: Any, pool: Any, case: str) -> None:
    before = _state(pool)
    expect_raises(ValueError, call, case)
    _unchanged(pool, before, f"{case}: ValueError, and then")


def _shapes(kind: Any) -> None:
    right = np.ones((2, 4))
    for wrong in (np.array(3.0), np.ones(4), np.ones((1, 4)), np.ones((2, 1)), np.ones((4, 2)), np.ones(8)):
        for words, key, value in (("a key", wrong, right), ("a value", right, wrong), ("key and value", wrong, wrong)):
            pool, _, _ = _two_sequences(kind)
            case = f"write {words} of shape {wrong.shape} for 2 heads of size 4"
            _refused(kind, partial(pool.write, "b", 1, key, value), pool, case)


def _below_0(kind: Any) -> None:
    for position in (-1, -4, -9):
        pool, rooms, case = _two_sequences(kind)
        for name, room in rooms.items():
            for at, (k, v) in enumerate(_numbers(room).swapaxes(0, 1)):
                pool.write(name, at, k, v)
        case = f"{case}, a and b full; b writes at position {position}"
        _refused(kind, partial(pool.write, "b", position, *_numbers(1, 3)[:, 0]), pool, case)


KEYS, VALUES, OTHERS = (
    "each key is where it should be",
    "each value is where it should be",
    "all other slots stay as they are",
)
SHAPES, BOUNDS = "a wrong shape is a ValueError, and nothing changes", "a position below 0 is a ValueError, and nothing changes"  # fmt: skip

MEND_POOL = Exercise(
    id="07.mend_pool",
    title="A pool that reads back what was written",
    reference=answers.MendedPool,
    methods=("write",),
    properties=[
        Property(KEYS, _writes(0)),
        Property(VALUES, _writes(1)),
        Property(OTHERS, _others),
        Property(SHAPES, _shapes),
        Property(BOUNDS, _below_0),
    ],
    mutants=[
        Mutant("as it was", PagedKVPool, VALUES, "Both lines of `write` store the key."),
        Mutant("the values twice", answers.ValuesOnly, KEYS, "Now the keys are values."),
        Mutant("the position for the slot", answers.ForgetsTheTable, KEYS, "Two sequences would write into the same slots."),
        Mutant("fills the rest of the block", answers.FillsTheRest, KEYS, "A token has one slot. The next may be taken."),
        Mutant("clears a block at its first slot", answers.ClearsNewBlocks, OTHERS, "The block may hold tokens: the same position may be written again."),
        Mutant("checks the key only", answers.ChecksTheKeyOnly, SHAPES, "The value can have a wrong shape as well."),
        Mutant("checks the value only", answers.ChecksTheValueOnly, SHAPES, "A wrong shape is a bug of the caller."),
        Mutant("compares the two", answers.ComparesBoth, SHAPES, "Both can have the same wrong shape."),
        Mutant("counts the numbers", answers.CountsNumbers, SHAPES, "The right number of numbers, in the wrong order."),
        Mutant("checks too late", answers.TooLate, SHAPES, "The key is stored by then."),
        Mutant("counts from the end", answers.CountsFromTheEnd, BOUNDS, "A position below 0 is a mistake, or padding."),
        Mutant("says nothing", answers.SkipsIt, BOUNDS, "The caller must hear of it."),
        Mutant("another error", answers.AnotherError, BOUNDS, "The task names the error. A caller may wait for it."),
        Mutant("stores, then refuses", answers.ErrorTooLate, BOUNDS, "Position 0 has changed by then."),
    ],
    alternatives=[answers.ByHand, answers.InTwoSteps],
)  # fmt: skip
