"""One small mend for each defect of the broken pool, alone: for teachers, and as what a lab goes on with."""

from __future__ import annotations

from collections import deque

import numpy as np

from mini_engine.attention import decode_attention
from mini_engine.course.broken_pool import PagedKVPool

Array = np.ndarray


class Attends(PagedKVPool):
    """Reads what it wrote: with values that are right, for which see `KeepsTheValues`."""

    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        KeepsTheValues.write(self, name, position, key, value)  # type: ignore[arg-type]

    def gather(self, name: str, num_tokens: int) -> tuple[Array, Array]:
        table = self.tables[name]
        k, v = (part[table].reshape(-1, *part.shape[2:])[:num_tokens] for part in (self.keys, self.values))
        return k, v

    def attend(self, name: str, q: Array, scale: float, num_tokens: int) -> Array:
        return decode_attention(q, *self.gather(name, num_tokens), scale)


class GivesBack(PagedKVPool):
    def free(self, name: str) -> None:
        for block in self.tables.pop(name):
            self.ref_counts[block] -= 1
            if not self.ref_counts[block]:
                self.free_blocks.append(block)


class TakesFromADeque(PagedKVPool):
    def __init__(self, num_blocks: int, block_size: int, num_heads: int, head_dim: int) -> None:
        super().__init__(num_blocks, block_size, num_heads, head_dim)
        self.free_blocks = deque(self.free_blocks)  # type: ignore[assignment]

    def take_block(self) -> int:
        if not self.free_blocks:
            raise MemoryError("no free blocks")
        block = self.free_blocks.popleft()  # type: ignore[attr-defined]
        self.ref_counts[block] = 1
        return block


class ChecksThePosition(PagedKVPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        if position < 0:
            raise ValueError(f"position {position}: positions begin at 0")
        super().write(name, position, key, value)


class ChecksTheShape(PagedKVPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        for part in (key, value):
            if np.shape(part) != self.keys.shape[2:]:
                raise ValueError(f"K or V of shape {np.shape(part)}: must be {self.keys.shape[2:]}")
        super().write(name, position, key, value)


class GrowsOnDemand(PagedKVPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        while position >= len(self.tables[name]) * self.block_size:
            self.tables[name].append(self.take_block())
        super().write(name, position, key, value)


class KeepsAllDigits(PagedKVPool):
    def __init__(
        self, num_blocks: int, block_size: int, num_heads: int, head_dim: int, dtype: type = np.float64
    ) -> None:
        super().__init__(num_blocks, block_size, num_heads, head_dim)
        self.keys, self.values = self.keys.astype(dtype), self.values.astype(dtype)


class KeepsTheValues(PagedKVPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        PagedKVPool.write(self, name, position, key, value)
        self.values[self.tables[name][position // self.block_size], position % self.block_size] = value


class Forks(PagedKVPool):
    def fork(self, name: str, branch: str) -> None:
        self.tables[branch] = list(self.tables[name])
        self.ref_counts[self.tables[name]] += 1


class CopiesOnWrite(PagedKVPool):
    def write(self, name: str, position: int, key: Array, value: Array) -> None:
        table, i = self.tables[name], position // self.block_size
        shared = table[i]
        if self.ref_counts[shared] > 1:
            table[i] = self.take_block()  # before the other is given up
            self.keys[table[i]], self.values[table[i]] = self.keys[shared], self.values[shared]
            self.ref_counts[shared] -= 1
        super().write(name, position, key, value)


POOL_MENDS: dict[str, type[PagedKVPool]] = {
    "nothing can be read back": Attends,
    "nothing is ever given back": GivesBack,
    "a larger pool is slower": TakesFromADeque,
    "position -1 writes into the last slot": ChecksThePosition,
    "a wrong shape is spread over the heads": ChecksTheShape,
    "a table cannot grow": GrowsOnDemand,
    "numbers come back rounded": KeepsAllDigits,
    "the values are the keys": KeepsTheValues,
    "no branch can be made": Forks,
    "a write to a shared block changes the sibling": CopiesOnWrite,
}
"""All but the missing layers: those change every array and every call."""
