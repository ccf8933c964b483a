"""Block tables: which blocks each request has, and every way in which that changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from mini_engine.cache.block_pool import BlockPool, NoFreeBlocksError
from mini_engine.cache.hashing import BlockHasher, TokenChain
from mini_engine.cache.ops import CacheOp
from mini_engine.cache.prefix_index import BlockIndex, PrefixIndex
from mini_engine.cache.radix import RadixPrefixIndex

PREFIX_INDEXES: dict[str, Callable[[], BlockIndex]] = {"hash": PrefixIndex, "radix": RadixPrefixIndex}


class CacheRequest(Protocol):
    """All that the manager reads of a request. It writes to one of these: it edits block_table in place."""

    request_id: str
    index: int  # the branch, when one request has several
    token_ids: list[int]  # prompt and sampled tokens; only ever grows
    num_computed_tokens: int  # tokens whose K/V is in the cache
    block_table: list[int]  # block_table[i] holds tokens i * block_size ... (i + 1) * block_size - 1
    cache_salt: str | None
    adapter: str | None


class _Sequence:
    """What the manager remembers of one request between calls."""

    __slots__ = ("chain", "host_blocks", "is_swapped", "num_allocated", "num_published", "table")

    def __init__(self, table: list[int], chain: TokenChain) -> None:
        self.table = table
        self.chain = chain
        self.num_allocated = 0  # tokens that the table was asked to have room for
        self.num_published = 0  # leading blocks of the table that the index has
        self.is_swapped = False
        self.host_blocks: list[int] = []


class KVCacheManager:
    """Gives blocks to requests, finds computed prefixes, shares, copies on write, swaps.

    The contract with a scheduler
    -----------------------------
    **What is read and written.** Of a request the manager reads only `request_id`, `index`, `token_ids`,
    `num_computed_tokens`, `block_table`, `cache_salt` and `adapter`. It writes only `block_table`, in place: never edit,
    replace or share that list. `num_computed_tokens` is advanced by the scheduler alone. A request is known by
    (request_id, index).

    **Failure.** Each method does all of its work or raises and changes nothing, neither here nor in the request:
    `NoFreeBlocksError` (a MemoryError) when blocks are lacking, `ValueError` when the call makes no sense.

    **The life of a request.**
    1. Waiting, `block_table == []`, `num_computed_tokens == 0`. `match(request)` looks up its computed prefix and takes
       nothing: call it as often as you like, the answer holds until the next change. A hit never covers the whole
       sequence: at most (len(token_ids) - 1) // block_size blocks, so that at least one token is left to compute.
    2. Admission: `hit = allocate(request, num_tokens)` matches again (an old match may be stale), takes the hit blocks
       and as many new ones as it takes for the table to have room for num_tokens tokens, and returns the number of
       tokens hit. Set `num_computed_tokens = hit`; the first chunk starts there. num_tokens counts from the start of
       the sequence: len(token_ids) for whole-prompt admission, hit + chunk for first-chunk admission, prompt plus
       max_tokens for worst-case admission. If hit is more than num_tokens the table simply covers the hit.
       On a table that is not empty `allocate` only grows it (never shrinks it) and returns 0.
       (A step that was planned and failed: `trim(request)` gives back what was taken beyond num_computed_tokens.)
    3. Every later chunk or decode: `ops = append(request, n)` makes the next n positions, num_computed_tokens onwards,
       writable: it grows the table where it must and, if the block that takes the first of them is shared, copies that
       block first. Blocks reserved earlier are used before new ones are taken. (After `allocate` in the same step no
       `append` is needed: positions after the hit are in new blocks.)
    4. After the step was computed: advance `num_computed_tokens`, append the sampled token to `token_ids`, call
       `publish(request)`: the blocks that became full and computed can now be found. The sampled token has no K/V yet.
    5. `free(request)`, at the end or to preempt by recompute (then set `num_computed_tokens = 0`). The table becomes [].
       Also call it for a request that was only ever matched: it is what makes the manager forget. Harmless twice.

    **Operations.** `append`, `cow_if_shared`, `swap_out` and `swap_in` return `CacheOp`s. The bookkeeping is done when
    they return; the content moves when the backend executes them. Collect them in the order they were returned and
    execute them in that order before the step's forward pass: a later operation or write may reuse a block that an
    earlier one reads, and none can come before it. Only the operations of a request that is freed in the same step may
    be dropped. If a step fails before all were executed, the content of their targets is lost: `free` the requests
    whose table has a "copy" or "swap_in" target, and those swapped out in that step, and compute them again. If it
    fails later, during the forward pass, they are done and must not be repeated.

    **Sharing.** `fork(src, dst)` gives dst, whose table is empty and whose `num_computed_tokens` equals src's, the
    blocks that hold src's computed tokens, a partly filled last one included. Blocks reserved beyond stay src's alone.
    Each branch calls `append` before it writes; all but the last to do so get a copy of the shared last block.

    **Swap.** Host blocks are numbered like device blocks, 1 to num_swap_blocks, 0 unused. `swap_out(request)` moves the
    computed blocks to the host and empties the table; keep `num_computed_tokens` as it is. `swap_in(request)` brings
    them back into new blocks, after which `append` goes on as ever. When the host pool is too full `swap_out` raises
    `NoFreeBlocksError`: preempt by recompute instead. `free` on a swapped request frees its host blocks. Sharing is not
    kept across a swap: each branch gets blocks of its own.

    **Asking first.** `num_blocks_to_allocate(request, num_tokens)`, `num_blocks_to_append(request, n)` and
    `num_blocks_to_swap_in(request)` say by how much `num_free_blocks` would fall (a hit on a cached free block counts),
    so a call succeeds exactly when that is at most `num_free_blocks`. Compare with a watermark as you please.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        enable_prefix_caching: bool = True,
        prefix_index: str | Callable[[], BlockIndex] = "hash",
        hasher: BlockHasher | None = None,
        num_swap_blocks: int = 0,
    ) -> None:
        """num_blocks: usable blocks, the null block not counted. prefix_index: "hash", "radix" or a class of your own.

        hasher: names the model, `BlockHasher("smollm2-135m")`; each request's adapter and salt are added to it.
        """
        for name, value, least in (
            ("num_blocks", num_blocks, 1),
            ("block_size", block_size, 1),
            ("num_swap_blocks", num_swap_blocks, 0),
        ):
            if value < least:
                raise ValueError(f"{name}={value}: must be at least {least}")
        if isinstance(prefix_index, str) and prefix_index not in PREFIX_INDEXES:
            raise ValueError(f"prefix_index={prefix_index!r}: must be one of {sorted(PREFIX_INDEXES)}, or a class")
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.index = PREFIX_INDEXES[prefix_index]() if isinstance(prefix_index, str) else prefix_index()
        self.pool = BlockPool(num_blocks, on_evict=self.index.evict)
        self.host_pool = BlockPool(num_swap_blocks)
        self._hasher = hasher or BlockHasher()
        self._sequences: dict[tuple[str, int], _Sequence] = {}

    # Gauges

    @property
    def num_free_blocks(self) -> int:
        """Device blocks that no request holds, cached ones included."""
        return self.pool.num_free

    @property
    def num_cached_blocks(self) -> int:
        """Device blocks that the prefix index can find, in use or free."""
        return self.pool.num_cached

    @property
    def num_free_swap_blocks(self) -> int:
        """Host blocks that no swapped request holds."""
        return self.host_pool.num_free

    # Finding and taking blocks

    def match(self, request: CacheRequest) -> list[int]:
        """The blocks that hold the longest computed prefix of the request; [] without prefix caching. Takes nothing."""
        if not self.enable_prefix_caching:
            return []
        chain = self._sequence(request).chain
        chain.extend(request.token_ids)
        return self.index.match(chain, (len(request.token_ids) - 1) // self.block_size)

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
        sequence.table += self.pool.allocate(num_new)
        sequence.num_published += len(hits)
        hit_tokens = len(hits) * self.block_size
        sequence.num_allocated = max(sequence.num_allocated, num_tokens, hit_tokens)
        return hit_tokens

    def num_blocks_to_append(self, request: CacheRequest, n: int = 1) -> int:
        """By how much num_free_blocks would fall in append(request, n)."""
        must_copy, num_new = self._plan_append(request, n)
        return must_copy + num_new

    def append(self, request: CacheRequest, n: int = 1) -> list[CacheOp]:
        """Make the next n positions, from num_computed_tokens on, writable; the operations to execute before writing.

        NoFreeBlocksError when blocks are lacking; ValueError when the request is swapped out or n is less than 1.
        """
        must_copy, num_new = self._plan_append(request, n)
        if must_copy + num_new > self.pool.num_free:
            raise NoFreeBlocksError(must_copy + num_new, self.pool.num_free)
        sequence = self._sequence(request)
        op = self.cow_if_shared(request)
        sequence.table += self.pool.allocate(num_new)
        sequence.num_allocated = max(sequence.num_allocated, request.num_computed_tokens + n)
        return [] if op is None else [op]

    def trim(self, request: CacheRequest) -> None:
        """Give back the blocks beyond the computed tokens: the step they were taken for will not happen."""
        sequence = self._resident(request)
        num_blocks = self._num_blocks(request.num_computed_tokens)
        self.pool.release(sequence.table[num_blocks:])
        del sequence.table[num_blocks:]
        sequence.num_allocated = request.num_computed_tokens

    # Sharing

    def fork(self, src: CacheRequest, dst: CacheRequest) -> None:
        """Let dst share the blocks that hold src's computed tokens. Takes no block.

        ValueError when src is swapped out, dst has blocks already, or their num_computed_tokens differ.
        """
        parent = self._resident(src)
        if src.num_computed_tokens != dst.num_computed_tokens:
            raise ValueError(
                f"fork of {_name(src)} to {_name(dst)}: {src.num_computed_tokens} and {dst.num_computed_tokens} computed "
                "tokens; a branch begins with exactly what its parent has computed"
            )
        if _key(dst) in self._sequences or dst.block_table:
            raise ValueError(f"fork to {_name(dst)}: it is in use already")
        shared = src.block_table[: self._num_blocks(src.num_computed_tokens)]
        self.pool.touch(shared)
        dst.block_table += shared
        child = _Sequence(dst.block_table, parent.chain.copy(src.num_computed_tokens // self.block_size))
        child.num_allocated = src.num_computed_tokens
        child.num_published = parent.num_published
        self._sequences[_key(dst)] = child

    def cow_if_shared(self, request: CacheRequest) -> CacheOp | None:
        """Copy on write: if the block for the next token is held by others too, or published, replace it by a copy.

        None when the block is the request's own, or does not exist yet. NoFreeBlocksError when no block is free.
        The new block is taken before the old one is given up: a failure must not leave two owners with one count.
        """
        sequence = self._resident(request)
        if not self._must_copy(request):
            return None
        i = request.num_computed_tokens // self.block_size
        src = request.block_table[i]
        (dst,) = self.pool.allocate(1)
        request.block_table[i] = dst
        self.pool.release([src])
        sequence.num_published = min(sequence.num_published, i)
        return CacheOp("copy", src, dst)

    # After computing

    def publish(self, request: CacheRequest) -> int:
        """Let others find the blocks that are full and computed by now; the number of blocks newly published.

        Stops at a block whose name belongs to other content, since what follows it could not be told apart either.
        """
        num_full = request.num_computed_tokens // self.block_size
        sequence = self._resident(request)
        table, start = sequence.table, sequence.num_published
        if not self.enable_prefix_caching or num_full <= start:
            return 0
        while start < num_full and self.pool.is_published(table[start]):  # by a branch that shares the block
            start += 1
        sequence.chain.extend(request.token_ids)
        blocks = table[start:num_full]
        num_new = self.index.publish(sequence.chain, start, blocks, parent=table[start - 1] if start else None)
        self.pool.publish(blocks[:num_new])
        sequence.num_published = start + num_new
        return num_new

    def free(self, request: CacheRequest) -> None:
        """Give up all blocks of a request, on the device and on the host, and forget it. Harmless when it has none."""
        sequence = self._sequence(request)
        self.pool.release(sequence.table)
        self.host_pool.release(sequence.host_blocks)
        sequence.table.clear()
        del self._sequences[_key(request)]

    def reset_prefix_cache(self) -> bool:
        """Forget all cached K/V, for instance because the weights changed. False, and nothing done, while any is in use."""
        if self.pool.num_free < self.pool.num_blocks or self.host_pool.num_free < self.host_pool.num_blocks:
            return False
        for block in self.pool.published_blocks():
            self.pool.evict(block)
        return True

    # Swapping

    def swap_out(self, request: CacheRequest) -> list[CacheOp]:
        """Move the request's computed blocks to the host and give up its device blocks.

        NoFreeBlocksError when the host pool is too full: preempt by recompute instead. ValueError when it is out already.
        """
        sequence = self._resident(request)
        blocks = request.block_table[: self._num_blocks(request.num_computed_tokens)]
        if len(blocks) > self.host_pool.num_free:
            raise NoFreeBlocksError(len(blocks), self.host_pool.num_free, where="host")
        sequence.host_blocks = self.host_pool.allocate(len(blocks))
        sequence.is_swapped = True
        sequence.num_allocated = sequence.num_published = 0
        self.pool.release(sequence.table)
        sequence.table.clear()
        return [CacheOp("swap_out", src, dst) for src, dst in zip(blocks, sequence.host_blocks)]

    def is_swapped(self, request: CacheRequest) -> bool:
        """Whether the request's K/V is on the host."""
        sequence = self._sequences.get(_key(request))
        return sequence is not None and sequence.is_swapped

    def host_blocks(self, request: CacheRequest) -> list[int]:
        """The host blocks of a swapped request, in the order of its tokens; [] when it is not swapped out."""
        sequence = self._sequences.get(_key(request))
        return [] if sequence is None else list(sequence.host_blocks)

    def num_blocks_to_swap_in(self, request: CacheRequest) -> int:
        """By how much num_free_blocks would fall in swap_in(request)."""
        return len(self._swapped(request).host_blocks)

    def swap_in(self, request: CacheRequest) -> list[CacheOp]:
        """Bring a swapped request back into new device blocks, and give up its host blocks.

        NoFreeBlocksError when blocks are lacking; ValueError when it is not swapped out.
        """
        sequence = self._swapped(request)
        blocks = self.pool.allocate(len(sequence.host_blocks))
        ops = [CacheOp("swap_in", src, dst) for src, dst in zip(sequence.host_blocks, blocks)]
        self.host_pool.release(sequence.host_blocks)
        sequence.host_blocks = []
        sequence.is_swapped = False
        sequence.table += blocks
        sequence.num_allocated = request.num_computed_tokens
        return ops

    # Inside

    def _sequence(self, request: CacheRequest) -> _Sequence:
        """The memory of a request, begun at first sight. ValueError when its table is not the one we filled."""
        sequence = self._sequences.get(_key(request))
        if sequence is None:
            if request.block_table:
                raise ValueError(f"{_name(request)} has blocks that this manager never gave it, or was freed already")
            hasher = self._hasher.for_request(request.adapter, request.cache_salt)
            sequence = _Sequence(request.block_table, TokenChain(hasher, self.block_size))
            self._sequences[_key(request)] = sequence
        if sequence.table is not request.block_table:
            raise ValueError(
                f"{_name(request)}: its block_table is not the list that the manager filled; either it was replaced, or "
                "another request with this id and index is alive"
            )
        return sequence

    def _resident(self, request: CacheRequest) -> _Sequence:
        sequence = self._sequence(request)
        if sequence.is_swapped:
            raise ValueError(f"{_name(request)} is swapped out: swap it in first")
        return sequence

    def _swapped(self, request: CacheRequest) -> _Sequence:
        sequence = self._sequence(request)
        if not sequence.is_swapped:
            raise ValueError(f"{_name(request)} is not swapped out")
        return sequence

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _num_free_among(self, blocks: Iterable[int]) -> int:
        return sum(self.pool.ref_count(block) == 0 for block in blocks)

    def _plan_allocation(self, request: CacheRequest, num_tokens: int) -> tuple[list[int], int]:
        """The blocks to share and the number of new ones that give the request room for num_tokens tokens."""
        self._resident(request)
        table = request.block_table
        if not table and request.num_computed_tokens:
            raise ValueError(
                f"{_name(request)} claims {request.num_computed_tokens} computed tokens but has no blocks: set "
                "num_computed_tokens to 0 when it is freed, and to the hit after allocate"
            )
        hits = [] if table else self.match(request)
        return hits, max(0, self._num_blocks(num_tokens) - len(table) - len(hits))

    def _plan_append(self, request: CacheRequest, n: int) -> tuple[bool, int]:
        """Whether the first block to be written must be copied, and the number of new blocks."""
        self._resident(request)
        if n < 1:
            raise ValueError(f"n={n}: append makes room for at least 1 token")
        room = len(request.block_table) * self.block_size
        if request.num_computed_tokens > room:
            raise ValueError(
                f"{_name(request)} claims {request.num_computed_tokens} computed tokens, its blocks hold {room}"
            )
        num_new = self._num_blocks(request.num_computed_tokens + n) - len(request.block_table)
        return self._must_copy(request), max(0, num_new)

    def _must_copy(self, request: CacheRequest) -> bool:
        i = request.num_computed_tokens // self.block_size
        if i >= len(request.block_table):
            return False
        block = request.block_table[i]
        return self.pool.ref_count(block) > 1 or self.pool.is_published(block)


def _key(request: CacheRequest) -> tuple[str, int]:
    return (request.request_id, request.index)


def _name(request: CacheRequest) -> str:
    return f"request {request.request_id!r} (branch {request.index})"
