"""A paged KV pool in NumPy: keys and values of all sequences in blocks of one size, found through block tables.

Written for the find-the-bug labs. It runs, its own check passes, and nothing in the engine uses it: find out why.

    pool = PagedKVPool(num_blocks=8, block_size=4, num_heads=2, head_dim=16)
    pool.add("a", num_tokens=6)
    pool.write("a", 0, key, value)
"""

from __future__ import annotations

import numpy as np


class PagedKVPool:
    """keys and values [num_blocks, block_size, num_heads, head_dim]; tables[name] are the blocks of a sequence."""

    def __init__(self, num_blocks: int, block_size: int, num_heads: int, head_dim: int) -> None:
        self.block_size = block_size
        self.keys = np.zeros((num_blocks, block_size, num_heads, head_dim), dtype=np.float32)
        self.values = np.zeros_like(self.keys)
        self.ref_counts = np.zeros(num_blocks, dtype=np.int32)
        self.free_blocks = list(range(num_blocks))
        self.tables: dict[str, list[int]] = {}

    def take_block(self) -> int:
        """The next free block, with one holder."""
        if not self.free_blocks:
            raise MemoryError("no free blocks")
        block = self.free_blocks.pop(0)
        self.ref_counts[block] = 1
        return block

    def add(self, name: str, num_tokens: int) -> None:
        """A new sequence with room for num_tokens tokens."""
        num_blocks = -(-num_tokens // self.block_size)
        self.tables[name] = [self.take_block() for _ in range(num_blocks)]

    def write(self, name: str, position: int, key: np.ndarray, value: np.ndarray) -> None:
        """Store K and V of one token, each [num_heads, head_dim]."""
        block = self.tables[name][position // self.block_size]
        offset = position % self.block_size
        self.keys[block, offset] = key
        self.values[block, offset] = key

    @property
    def utilization(self) -> float:
        """The part of the pool that sequences hold."""
        return float((self.ref_counts > 0).mean())


def check_pool() -> None:
    """Write a token, and look whether it arrived."""
    pool = PagedKVPool(num_blocks=4, block_size=2, num_heads=2, head_dim=8)
    pool.add("a", num_tokens=3)
    pool.write("a", 2, np.full((2, 8), 2.5), np.full((2, 8), 2.5))
    block = pool.tables["a"][1]
    assert pool.keys[block, 0].mean() == 2.5
    assert pool.utilization == 0.5


if __name__ == "__main__":
    check_pool()
    print("ok")
