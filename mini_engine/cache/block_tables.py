"""Block tables: which blocks each request has, how a table grows, and how two requests share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from mini_engine.cache.block_pool import BlockPool, NoFreeBlocksError
from mini_engine.cache.hashing import TokenChain
from mini_engine.cache.ops import CacheOp


class CacheRequest(Protocol):
    """All that the cache reads of a request. It writes to one of these: it edits block_table in place."""

    request_id: str
    index: int  # the branch, when one request has several
    token_ids: list[int]  # prompt and sampled tokens; only ever grows
    num_computed_tokens: int  # tokens whose K/V is in the cache
    block_table: list[int]  # block_table[i] holds tokens i * block_size ... (i + 1) * block_size - 1
    cache_salt: str | None
    adapter: str | None


class Sequence:
    """What is remembered of one request between calls."""

    __slots__ = ("chain", "host_blocks", "is_swapped", "num_allocated", "num_published", "table")

    def __init__(self, table: list[int]) -> None:
        self.table = table
        self.num_allocated = 0  # tokens that the table was asked to have room for
        self.num_published = 0  # leading blocks of the table that the prefix index has
        self.chain: TokenChain | None = None
        self.is_swapped = False
        self.host_blocks: list[int] = []


class BlockTables:
    """Tables over one pool: they grow on demand, can be forked, and copy on write. No prefix cache, no swap.

    `KVCacheManager` adds those and states the contract.
    """

    def __init__(self, num_blocks: int, block_size: int, on_evict: Callable[[int], None] | None = None) -> None:
        for name, value in (("num_blocks", num_blocks), ("block_size", block_size)):
            if value < 1:
                raise ValueError(f"{name}={value}: must be at least 1")
        self.block_size = block_size
        self.pool = BlockPool(num_blocks, on_evict)
        self._sequences: dict[tuple[str, int], Sequence] = {}

    @property
    def num_free_blocks(self) -> int:
        """Device blocks that no request holds, cached ones included."""
        return self.pool.num_free

    def match(self, request: CacheRequest) -> list[int]:
        """The blocks that hold the longest computed prefix of the request. Without a prefix cache there are none."""
        return []

    def num_blocks_to_allocate(self, request: CacheRequest, num_tokens: int) -> int:
        """By how much num_free_blocks would fall in allocate(request, num_tokens)."""
        hits, num_new = self._plan_allocation(request, num_tokens)
        return num_new + self._num_free_among(hits)

    def allocate(self, request: CacheRequest, num_tokens: int) -> int:
        """Give the request room for its first num_tokens tokens, and return how many of them are computed already.

        An empty table first takes the blocks of the request's computed prefix. NoFreeBlocksError when blocks are
        lacking; ValueError when the request is swapped out, or claims computed tokens without having blocks.
        """
        hits, num_new = self._plan_allocation(request, num_tokens)
        num_needed = num_new + self._num_free_among(hits)
        if num_needed > self.pool.num_free:
            raise NoFreeBlocksError(num_needed, self.pool.num_free)
        sequence = self._sequence(request)
        self.pool.touch(hits)  # before new blocks are taken, or those could be the hits
        sequence.table += hits
        self.grow(request, num_tokens)
        sequence.num_published += len(hits)
        hit_tokens = len(hits) * self.block_size
        sequence.num_allocated = max(sequence.num_allocated, num_tokens, hit_tokens)
        return hit_tokens

    def num_blocks_to_append(self, request: CacheRequest, n: int = 1) -> int:
        """By how much num_free_blocks would fall in append(request, n)."""
        must_copy, num_new = self._plan_append(self._resident(request), request, n)
        return must_copy + num_new

    def append(self, request: CacheRequest, n: int = 1) -> list[CacheOp]:
        """Make the next n positions, from num_computed_tokens on, writable; the operations to execute before writing.

        NoFreeBlocksError when blocks are lacking; ValueError when the request is swapped out or n is less than 1.
        """
        sequence = self._resident(request)
        must_copy, num_new = self._plan_append(sequence, request, n)
        if must_copy + num_new > self.pool.num_free:
            raise NoFreeBlocksError(must_copy + num_new, self.pool.num_free)
        op = self.cow_if_shared(request) if must_copy else None
        ops = [op] if op is not None else []
        if num_new:
            self.grow(request, request.num_computed_tokens + n)
        sequence.num_allocated = max(sequence.num_allocated, request.num_computed_tokens + n)
        return ops

    def grow(self, request: CacheRequest, num_tokens: int) -> None:
        """Append blocks to the table, in place, until it has room for num_tokens tokens; it never shrinks.

        What `allocate` and `append` do once they know that there are enough. NoFreeBlocksError, and nothing changed,
        when there are not.
        """
        missing = self._num_blocks(num_tokens) - len(request.block_table)
        if missing > 0:
            request.block_table += self.pool.allocate(missing)

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        """Copy on write: if the block for the next token is held by others too, or published, replace it by a copy.

        None when the block is the request's own, or does not exist yet. NoFreeBlocksError when no block is free.
        """
        sequence, i = self._resident(request), request.num_computed_tokens // self.block_size
        return self._copy(sequence, i) if self._must_copy(sequence, i) else None

    def fork(self, src: CacheRequest, dst: CacheRequest) -> None:
        """Let dst share the blocks that hold src's computed tokens. Takes no block.

        ValueError when src is swapped out, dst is known or has blocks, or their num_computed_tokens differ.
        """
        parent = self._resident(src)
        num_tokens = src.num_computed_tokens
        if num_tokens != dst.num_computed_tokens:
            raise ValueError(
                f"fork of {_name(src)} to {_name(dst)}: {num_tokens} and {dst.num_computed_tokens} computed tokens; "
                "a branch begins with exactly what its parent has computed"
            )
        if _key(dst) in self._sequences or dst.block_table:
            raise ValueError(f"fork to {_name(dst)}: it is in use already")
        shared = parent.table[: self._num_blocks(num_tokens)]
        self.pool.touch(shared)
        child = self._sequence(dst)
        child.table += shared
        child.num_allocated = num_tokens
        child.num_published = parent.num_published
        if parent.chain is not None:
            child.chain = parent.chain.copy(num_tokens // self.block_size)

    def trim(self, request: CacheRequest) -> None:
        """Give back the blocks beyond the computed tokens: the step they were taken for will not happen."""
        sequence = self._resident(request)
        num_blocks = self._num_blocks(request.num_computed_tokens)
        self.pool.release(sequence.table[num_blocks:])
        del sequence.table[num_blocks:]
        sequence.num_allocated = request.num_computed_tokens

    def free(self, request: CacheRequest) -> None:
        """Give up all blocks of a request, and forget it. Harmless when it has none."""
        sequence = self._sequence(request)
        self.pool.release(sequence.table)
        sequence.table.clear()
        del self._sequences[_key(request)]

    def _sequence(self, request: CacheRequest) -> Sequence:
        """The memory of a request, begun at first sight. ValueError when its table is not the one we filled."""
        sequence = self._sequences.get(_key(request))
        if sequence is None:
            if request.block_table:
                raise ValueError(f"{_name(request)} has blocks that this manager never gave it, or was freed already")
            sequence = self._sequences[_key(request)] = Sequence(request.block_table)
        if sequence.table is not request.block_table:
            raise ValueError(
                f"{_name(request)}: its block_table is not the list that the manager filled; either it was replaced, or "
                "another request with this id and index is alive"
            )
        return sequence

    def _resident(self, request: CacheRequest) -> Sequence:
        """The memory of a request whose K/V is on the device."""
        sequence = self._sequence(request)
        if sequence.is_swapped:
            raise ValueError(f"{_name(request)} is swapped out: swap it in first")
        return sequence

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _num_free_among(self, blocks: Iterable[int]) -> int:
        return sum(self.pool.ref_count(block) == 0 for block in blocks)

    def _plan_allocation(self, request: CacheRequest, num_tokens: int) -> tuple[list[int], int]:
        """The blocks to share and the number of new ones that give the request room for num_tokens tokens."""
        table = self._resident(request).table
        if not table and request.num_computed_tokens:
            raise ValueError(
                f"{_name(request)} claims {request.num_computed_tokens} computed tokens but has no blocks: set "
                "num_computed_tokens to 0 when it is freed, and to the hit after allocate"
            )
        hits = [] if table else self.match(request)
        return hits, max(0, self._num_blocks(num_tokens) - len(table) - len(hits))

    def _plan_append(self, sequence: Sequence, request: CacheRequest, n: int) -> tuple[bool, int]:
        """Whether the first block to be written must be copied, and the number of new blocks."""
        start, num_blocks = request.num_computed_tokens, len(sequence.table)
        if n < 1:
            raise ValueError(f"n={n}: append makes room for at least 1 token")
        if start > num_blocks * self.block_size:
            raise ValueError(
                f"{_name(request)} claims {start} computed tokens, its blocks hold {num_blocks * self.block_size}"
            )
        num_new = self._num_blocks(start + n) - num_blocks
        return self._must_copy(sequence, start // self.block_size), max(0, num_new)

    def _must_copy(self, sequence: Sequence, i: int) -> bool:
        """Whether block i of the table exists and others would see what is written into it."""
        return i < len(sequence.table) and not self.pool.is_private(sequence.table[i])

    def _copy(self, sequence: Sequence, i: int) -> CacheOp:
        """Replace block i of the table by a copy of its own.

        The new block is taken before the old one is given up: a failure must not leave two owners with one count.
        """
        src = sequence.table[i]
        (dst,) = self.pool.allocate(1)
        sequence.table[i] = dst
        self.pool.release([src])
        sequence.num_published = min(sequence.num_published, i)
        return CacheOp("copy", src, dst)


def _key(request: CacheRequest) -> tuple[str, int]:
    return (request.request_id, request.index)


def _name(request: CacheRequest) -> str:
    return f"request {request.request_id!r} (branch {request.index})"
