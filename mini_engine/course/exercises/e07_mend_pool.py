"""Lesson 07, find the bug: `write` of the broken NumPy pool."""

from __future__ import annotations

import numpy as np

from mini_engine.course.broken_pool import PagedKVPool
from mini_engine.course.defects.labs import STILL_WORKS, cured, pool_works
from mini_engine.course.exercise import Exercise, Mutant, Property

Array = np.ndarray


class MendedPool(PagedKVPool):
    """The pool with a `write` that checks what it is given, takes blocks when it needs them, and keeps K and V."""

    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        if position < 0:
            raise ValueError(f"position {position}: positions begin at 0")
        for part, array in (("key", key), ("value", value)):
            if np.shape(array) != self.keys.shape[2:]:
                raise ValueError(f"{part} of shape {np.shape(array)}: must be {self.keys.shape[2:]}")
        table = self.tables[name]
        while position >= len(table) * self.block_size:
            table.append(self.take_block())
        block, offset = table[position // self.block_size], position % self.block_size
        self.keys[block, offset] = key
        self.values[block, offset] = value


class _InTwoSteps(PagedKVPool):
    """Another right answer: the old `write` goes on with the keys."""

    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        if not (position >= 0 and key.shape == value.shape == (self.keys.shape[2], self.keys.shape[3])):
            raise ValueError("bad position or shape")
        missing = position // self.block_size + 1 - len(self.tables[name])
        self.tables[name] += [self.take_block() for _ in range(missing)]
        super().write(name, position, key, value)
        slots = self.values.reshape(-1, *self.values.shape[2:])
        slots[self.tables[name][position // self.block_size] * self.block_size + position % self.block_size] = value


class _ValuesOnly(PagedKVPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        super().write(name, position, value, value)


class _ReshapesTheKey(MendedPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        super().write(name, position, np.broadcast_to(key, self.keys.shape[2:]), value)


class _CountsFromTheEnd(MendedPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        super().write(name, position % (len(self.tables[name]) * self.block_size), key, value)


class _OneTooEarly(MendedPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        super().write(name, position, key, value)
        if (position + 1) == len(self.tables[name]) * self.block_size:
            self.tables[name].append(self.take_block())


class _NeverGrows(MendedPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        if position >= len(self.tables[name]) * self.block_size:
            raise ValueError("no room")
        super().write(name, position, key, value)


class _StartsOver(MendedPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        if position >= len(self.tables[name]) * self.block_size:
            self.tables[name] = [self.take_block() for _ in range(position // self.block_size + 1)]
        super().write(name, position, key, value)


VALUES, SHAPES = "keys and values are read as they were written", "a wrong shape is refused"
BOUNDS, GROWTH = "a position below 0 changes nothing", "a table grows when it has to"

MEND_POOL = Exercise(
    id="07.mend_pool",
    title="A pool that reads back what was written",
    reference=MendedPool,
    properties=[
        Property(STILL_WORKS, pool_works),
        cured("the values are the keys", VALUES),
        cured("position -1 writes into the last slot", BOUNDS),
        cured("a wrong shape is spread over the heads", SHAPES),
        cured("a table cannot grow", GROWTH),
    ],
    mutants=[
        Mutant("as it was", PagedKVPool, VALUES, "Both lines of `write` store the key."),
        Mutant("the values twice", _ValuesOnly, VALUES, "Now the keys are values."),
        Mutant("counts from the end", _CountsFromTheEnd, BOUNDS, "A position below 0 is a mistake, or padding."),
        Mutant("spreads the key over the heads", _ReshapesTheKey, SHAPES, "A wrong shape is a bug of the caller."),
        Mutant("no room", _NeverGrows, GROWTH, "A sequence does not know how long it will get."),
        Mutant("starts a new table", _StartsOver, GROWTH, "The old blocks hold the old tokens."),
        Mutant("takes a block early", _OneTooEarly, STILL_WORKS, "The last block is full, and nothing more may come."),
    ],
    alternatives=[_InTwoSteps],
)  # fmt: skip
