"""Who owns which block: reference counts and the one order in which free blocks are reused.

A block is a number, 1 to num_blocks. Number 0 is the null block: it pads block tables, is never handed out and is not
counted, so a pool of num_blocks usable blocks has num_blocks + 1 rows. Names follow vLLM's v1 `block_pool.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

NULL_BLOCK = 0


class NoFreeBlocksError(MemoryError):
    """The pool has fewer free blocks than were asked for. Nothing was changed."""

    def __init__(self, needed: int, free: int, where: str = "KV cache") -> None:
        self.needed, self.free = needed, free
        super().__init__(
            f"{needed} {where} blocks needed, {free} free: free or preempt a request, or make the pool larger"
        )


class Block(NamedTuple):
    """What the pool knows about one block, at the moment of asking."""

    block_id: int
    ref_count: int
    is_published: bool  # the prefix index can find it


class FreeBlockQueue:
    """The free blocks in the order they will be reused: blank ones first, then cached ones, longest unused first.

    A blank block holds nothing that anyone could find; a cached one still holds published K/V, and reusing it destroys
    that. So blank blocks queue in front of cached ones. Every operation takes constant time per block.

    A doubly linked list threaded through two lists of integers. The null block is never free, so its row holds the
    ends: `_next[0]` is the first block, `_prev[0]` the last.
    """

    __slots__ = ("_last_blank", "_length", "_next", "_num_blank", "_prev")

    def __init__(self, num_blocks: int) -> None:
        ids = list(range(num_blocks + 1))
        self._next = ids[1:] + ids[:1]
        self._prev = ids[-1:] + ids[:-1]
        self._length = self._num_blank = num_blocks
        self._last_blank = num_blocks  # 0 when there is none: blank blocks are inserted after this row

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        block = self._next[0]
        while block:
            yield block
            block = self._next[block]

    def pop(self, n: int) -> list[int]:
        """Take the first n blocks. The caller has checked that there are so many."""
        following = self._next
        blocks, block = [], following[0]
        for _ in range(n):
            blocks.append(block)
            block = following[block]
        following[0] = block
        self._prev[block] = 0
        self._length -= n
        self._num_blank -= n
        if self._num_blank <= 0:
            self._num_blank = self._last_blank = 0
        return blocks

    def push_blank(self, block: int) -> None:
        """Queue a block that holds nothing findable: behind the other blank ones, before every cached one."""
        self._insert_after(self._last_blank, block)
        self._last_blank = block
        self._num_blank += 1

    def push_cached(self, block: int) -> None:
        """Queue a block that holds published K/V: it will be the last to be reused."""
        self._insert_after(self._prev[0], block)

    def remove(self, block: int) -> None:
        """Take a cached block out of the middle, because someone wants its content again."""
        left, right = self._prev[block], self._next[block]
        self._next[left] = right
        self._prev[right] = left
        self._length -= 1

    def _insert_after(self, left: int, block: int) -> None:
        right = self._next[left]
        self._next[left] = self._prev[right] = block
        self._prev[block] = left
        self._next[block] = right
        self._length += 1


class BlockPool:
    """Reference counts of all blocks, and the queue of the free ones.

    A block is free exactly when its count is 0. A free block that is published keeps its K/V and can be found and
    taken back with `touch`, until `allocate` reuses it: then it is unpublished and `on_evict(block)` tells the index.

    Every method either does all it was asked to, or raises and changes nothing.
    """

    def __init__(self, num_blocks: int, on_evict: Callable[[int], None] | None = None) -> None:
        if num_blocks < 0:
            raise ValueError(f"num_blocks={num_blocks}: a pool cannot have fewer than 0 blocks")
        self.num_blocks = num_blocks
        self.num_cached = 0
        self._on_evict = on_evict or (lambda block: None)
        self._refs = [0] * (num_blocks + 1)
        self._published = bytearray(num_blocks + 1)
        self.free_queue = FreeBlockQueue(num_blocks)

    @property
    def num_free(self) -> int:
        """Blocks at count 0, the cached ones included."""
        return len(self.free_queue)

    def ref_count(self, block: int) -> int:
        """How many block tables hold this block. ValueError for a number that is no block."""
        self._check(block)
        return self._refs[block]

    def is_published(self, block: int) -> bool:
        """Whether the prefix index can find this block."""
        self._check(block)
        return bool(self._published[block])

    def is_private(self, block: int) -> bool:
        """Whether one table alone holds this block and nobody can find it: only then may it be written to."""
        self._check(block)
        return self._refs[block] == 1 and not self._published[block]

    def block(self, block: int) -> Block:
        """All there is to know about one block."""
        return Block(block, self.ref_count(block), self.is_published(block))

    def free_blocks(self) -> list[int]:
        """The free blocks in the order they will be reused."""
        return list(self.free_queue)

    def published_blocks(self) -> list[int]:
        """The blocks that the index can find, in use or free, by number."""
        return [block for block, published in enumerate(self._published) if published]

    def allocate(self, n: int) -> list[int]:
        """Take n free blocks, each with count 1, evicting cached content only when no blank block is left.

        NoFreeBlocksError when fewer than n are free, ValueError when n is negative.
        """
        if n < 0:
            raise ValueError(f"n={n}: cannot allocate fewer than 0 blocks")
        if n > len(self.free_queue):
            raise NoFreeBlocksError(n, len(self.free_queue))
        blocks = self.free_queue.pop(n)
        for block in blocks:
            self._refs[block] = 1
            if self._published[block]:
                self._unpublish(block)
        return blocks

    def touch(self, blocks: Sequence[int]) -> None:
        """Add one holder to each block, taking those that were free out of the queue.

        ValueError when a block is free and blank: nothing in it belongs to anyone.
        """
        for block in blocks:
            self._check(block)
            if not (self._refs[block] or self._published[block]):
                raise ValueError(f"block {block} is free and holds nothing: allocate blocks, touch only cached ones")
        for block in blocks:
            if not self._refs[block]:
                self.free_queue.remove(block)
            self._refs[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Drop one holder of each block of a table; blocks that nobody holds any more become free.

        In reverse: the tail is queued first and so reused first, because a prefix is of use without its tail and a
        tail is of none without its prefix. ValueError when a block is released more often than it is held.
        """
        refs = self._refs
        freed, num_done = [], 0
        try:
            for block in reversed(blocks):
                self._check(block)
                if not refs[block]:
                    raise ValueError(f"block {block} is free already: it was released more often than it was held")
                refs[block] -= 1
                num_done += 1
                if not refs[block]:
                    freed.append(block)
        except ValueError:
            for block in list(reversed(blocks))[:num_done]:
                refs[block] += 1
            raise
        for block in freed:
            if self._published[block]:
                self.free_queue.push_cached(block)
            else:
                self.free_queue.push_blank(block)

    def publish(self, blocks: Sequence[int]) -> None:
        """Note that the index can find these blocks. ValueError unless each is in use and not yet published."""
        for block in blocks:
            self._check(block)
            if not self._refs[block] or self._published[block]:
                raise ValueError(f"{self.block(block)}: only a block in use, not yet published, can be published")
        for block in blocks:
            self._published[block] = True
        self.num_cached += len(set(blocks))

    def evict(self, block: int) -> None:
        """Make a free cached block blank at once. ValueError when it is in use or holds nothing."""
        if self.ref_count(block) or not self._published[block]:
            raise ValueError(f"{self.block(block)}: only a free, published block can be evicted")
        self.free_queue.remove(block)
        self._unpublish(block)
        self.free_queue.push_blank(block)

    def _unpublish(self, block: int) -> None:
        self._published[block] = False
        self.num_cached -= 1
        self._on_evict(block)

    def _check(self, block: int) -> None:
        if not 0 < block <= self.num_blocks:
            raise ValueError(f"block {block} is not in the pool: blocks are numbered 1 to {self.num_blocks}")
