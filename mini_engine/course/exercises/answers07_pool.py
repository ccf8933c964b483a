"""Lesson 07, a mended pool: right answers written another way, and wrong ones that people write."""

from __future__ import annotations

from typing import Any

import numpy as np

from mini_engine.attention import slot_mapping, write_kv
from mini_engine.course.broken_pool import PagedKVPool

Array = np.ndarray


class MendedPool(PagedKVPool):
    """The pool with a `write` that goes by the slot, and leaves the shapes to `write_kv`."""

    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        if position < 0:
            raise ValueError(f"position {position}: positions begin at 0")
        slots = slot_mapping(self.tables[name], [position], self.block_size)
        write_kv(np.asarray(key)[None], np.asarray(value)[None], self.keys, self.values, slots)


class ByHand(PagedKVPool):
    """Another right answer: each check written out."""

    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        for part, array in (("key", key), ("value", value)):
            if np.shape(array) != self.keys.shape[2:]:
                raise ValueError(f"{part} of shape {np.shape(array)}: must be {self.keys.shape[2:]}")
        if not position >= 0:
            raise ValueError(f"position {position}: positions begin at 0")
        block, offset = self.tables[name][position // self.block_size], position % self.block_size
        self.keys[block, offset] = key
        self.values[block, offset] = value


class InTwoSteps(PagedKVPool):
    """Another right answer: the old `write` goes on with the keys."""

    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        if not (position >= 0 and np.shape(key) == np.shape(value) == (self.keys.shape[2], self.keys.shape[3])):
            raise ValueError("bad position or shape")
        super().write(name, position, key, value)
        slots = self.values.reshape(-1, *self.values.shape[2:])
        slots[self.tables[name][position // self.block_size] * self.block_size + position % self.block_size] = value


class ValuesOnly(MendedPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        super().write(name, position, value, value)


class ForgetsTheTable(MendedPool):
    """The position is taken for the slot: every sequence begins at slot 0."""

    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        own = self.tables[name]
        self.tables[name] = list(range(len(own)))
        super().write(name, position, key, value)
        self.tables[name] = own


class FillsTheRest(MendedPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        super().write(name, position, key, value)
        block, offset = self.tables[name][position // self.block_size], position % self.block_size
        self.keys[block, offset:] = key


class ClearsNewBlocks(MendedPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        if position >= 0 and position % self.block_size == 0:
            self.values[self.tables[name][position // self.block_size]] = 0
        super().write(name, position, key, value)


def _spread(array: Any, shape: tuple[int, ...]) -> Any:
    """As NumPy does it when it stores."""
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        return array


class ChecksTheKeyOnly(MendedPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        super().write(name, position, key, _spread(value, self.values.shape[2:]))


class ChecksTheValueOnly(MendedPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        super().write(name, position, _spread(key, self.keys.shape[2:]), value)


class ComparesBoth(MendedPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        if np.shape(key) != np.shape(value):
            raise ValueError("key and value differ in shape")
        super().write(name, position, _spread(key, self.keys.shape[2:]), _spread(value, self.keys.shape[2:]))


class CountsNumbers(MendedPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        shape = self.keys.shape[2:]
        if not np.size(key) == np.size(value) == shape[0] * shape[1]:
            raise ValueError("wrong size")
        super().write(name, position, np.reshape(key, shape), np.reshape(value, shape))


class TooLate(MendedPool):
    """The key is stored by the time that the value is looked at."""

    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        super().write(name, position, key, key if np.shape(value) != np.shape(key) else value)
        if np.shape(value) != self.values.shape[2:]:
            raise ValueError("wrong shape")


class CountsFromTheEnd(PagedKVPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        MendedPool.write(self, name, position % (len(self.tables[name]) * self.block_size), key, value)  # type: ignore[arg-type]


class SkipsIt(MendedPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        if position >= 0:
            super().write(name, position, key, value)


class AnotherError(MendedPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        if position < 0:
            raise IndexError(position)
        super().write(name, position, key, value)


class ErrorTooLate(MendedPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        super().write(name, max(position, 0), key, value)
        if position < 0:
            raise ValueError(position)
