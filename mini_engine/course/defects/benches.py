"""A broken class, or somebody's mended one, behind a few calls of one kind, so that the engine can stand in the same scenario.

What the class cannot do by itself is done by hand where a scenario needs it: sharing, looking up, evicting.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mini_engine.course.broken_allocator import Block, BlockAllocator
from mini_engine.course.broken_allocator import Sequence as Blocks
from mini_engine.course.broken_pool import PagedKVPool


def refused(call: Callable[[], object], kinds: type[Exception] | tuple[type[Exception], ...] = MemoryError) -> bool:
    """Whether the call raises one of these errors."""
    try:
        call()
    except kinds:
        return True
    return False


class AllocatorBench:
    """`BlockAllocator`, or a subclass of it."""

    def __init__(
        self, num_blocks: int, block_size: int, kind: type[BlockAllocator] = BlockAllocator, weak_names: bool = False
    ) -> None:
        weak = {"digest": lambda self, parent, tokens: sum(tokens) % 7}  # names that collide all the time
        self.allocator: Any = (type(kind.__name__, (kind,), weak) if weak_names else kind)(num_blocks, block_size)
        self.blocks = list(self.allocator.free.values())
        self.sequences: dict[str, Blocks] = {}

    @property
    def num_free(self) -> int:
        return len(self.allocator.free)

    def counts(self) -> list[int]:
        return [block.ref_count for block in self.blocks]

    def start(self, name: str, tokens: Sequence[int], computed: bool = True, **keys: str) -> int:
        self.sequences[name] = self.allocator.start(list(tokens), **keys)
        if computed and hasattr(self.allocator, "computed"):
            self.allocator.computed(self.sequences[name])
        return self.sequences[name].num_cached_tokens

    def append(self, name: str, *tokens: int) -> Any:
        ops = None
        for token in tokens:
            ops = self.allocator.append(self.sequences[name], token)
        return ops

    def release(self, name: str) -> None:
        self.allocator.release(self.sequences[name])

    def table(self, name: str) -> list[int]:
        return self.sequences[name].table

    def contents(self, name: str) -> list[int]:
        return [token for block in self.sequences[name].blocks for token in block.tokens]

    def look_up(self, tokens: Sequence[int], **keys: str) -> int:
        """Tokens that a start would find, tried on a copy with room to spare."""
        twin = copy.deepcopy(self.allocator)
        twin.free.update((number, Block(number)) for number in range(1000, 1000 + len(tokens)))
        return twin.start(list(tokens), **keys).num_cached_tokens

    def can_start(self, tokens: Sequence[int]) -> bool:
        return self.allocator.can_start(list(tokens))

    def fork(self, name: str, branch: str) -> None:
        self.sequences[branch] = self.allocator.fork(self.sequences[name])

    def share(self, name: str, branch: str) -> None:
        self.sequences[branch] = Blocks(list(self.sequences[name].blocks))
        for block in self.sequences[branch].blocks:
            block.ref_count += 1

    def evict(self, number: int) -> None:
        self.allocator.free.move_to_end(number, last=False)
        block = self.allocator._take()
        block.ref_count = 0
        self.allocator.free[number] = block


class PoolBench:
    """`PagedKVPool`, or a subclass of it; `peek` reads its arrays."""

    def __init__(
        self, num_blocks: int = 8, block_size: int = 4, layers: int = 1, kind: type[PagedKVPool] = PagedKVPool
    ) -> None:
        self.pool: Any = kind(num_blocks, block_size, 2, 4)

    def add(self, name: str, num_tokens: int) -> None:
        self.pool.add(name, num_tokens)

    def write(self, name: str, position: int, key: Any, value: Any, layer: int = 0) -> None:
        self.pool.write(name, position, key, value)

    def peek(self, name: str, num_tokens: int, layer: int = 0) -> tuple[np.ndarray, np.ndarray]:
        table = self.pool.tables[name]
        k, v = (part[table].reshape(-1, 2, 4)[:num_tokens] for part in (self.pool.keys, self.pool.values))
        return k, v

    def attend(self, name: str, q: np.ndarray, scale: float, num_tokens: int) -> np.ndarray:
        return self.pool.attend(name, q, scale, num_tokens)

    def free(self, name: str) -> None:
        self.pool.free(name)

    def fork(self, name: str, branch: str) -> None:
        self.pool.fork(name, branch)

    def share(self, name: str, branch: str) -> None:
        self.pool.tables[branch] = list(self.pool.tables[name])
        self.pool.ref_counts[self.pool.tables[name]] += 1

    def work_of_one_block(self) -> int:
        """How many numbers move when a block is taken."""
        free = self.pool.free_blocks
        if not isinstance(free, list):
            return 0  # a deque, or whatever else takes from its front at once
        counting = self.pool.free_blocks = _CountingList(free)
        self.pool.take_block()
        return counting.moved


class _CountingList(list):
    moved = 0

    def pop(self, index: Any = -1) -> Any:
        self.moved += len(self) - 1 - range(len(self))[index]
        return super().pop(index)
