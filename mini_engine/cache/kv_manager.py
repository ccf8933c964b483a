"""The cache as a scheduler sees it: block tables that share computed prefixes and can be swapped."""

from __future__ import annotations

from collections.abc import Callable

from mini_engine.cache.block_tables import CacheRequest, Sequence
from mini_engine.cache.hashing import BlockHasher, TokenChain
from mini_engine.cache.prefix_index import BlockIndex, PrefixIndex
from mini_engine.cache.radix import RadixPrefixIndex
from mini_engine.cache.swapping import SwappingTables

PREFIX_INDEXES: dict[str, Callable[[], BlockIndex]] = {"hash": PrefixIndex, "radix": RadixPrefixIndex}


class KVCacheManager(SwappingTables):
    """Block tables, sharing and swap, with a prefix cache on top: all that a scheduler needs of the cache.

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
    fails later, during the forward pass, they are done and must not be repeated. `trim(request)` gives back what a
    request was given beyond its computed tokens for a step that failed.

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
        if isinstance(prefix_index, str) and prefix_index not in PREFIX_INDEXES:
            raise ValueError(f"prefix_index={prefix_index!r}: must be one of {sorted(PREFIX_INDEXES)}, or a class")
        self.index = PREFIX_INDEXES[prefix_index]() if isinstance(prefix_index, str) else prefix_index()
        super().__init__(num_blocks, block_size, num_swap_blocks, on_evict=self.index.evict)
        self.enable_prefix_caching = enable_prefix_caching
        self._hasher = hasher or BlockHasher()

    @property
    def num_cached_blocks(self) -> int:
        """Device blocks that the prefix index can find, in use or free."""
        return self.pool.num_cached

    def match(self, request: CacheRequest) -> list[int]:
        """The blocks that hold the longest computed prefix of the request; [] without prefix caching. Takes nothing."""
        if not self.enable_prefix_caching:
            return []
        chain = self._chain(self._sequence(request), request)
        return self.index.match(chain, (len(request.token_ids) - 1) // self.block_size)

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
        blocks = table[start:num_full]
        chain = self._chain(sequence, request)
        num_new = self.index.publish(chain, start, blocks, parent=table[start - 1] if start else None)
        self.pool.publish(blocks[:num_new])
        sequence.num_published = start + num_new
        return num_new

    def reset_prefix_cache(self) -> bool:
        """Forget all cached K/V, for instance because the weights changed. False, and nothing done, while any is in use."""
        if self.pool.num_free < self.pool.num_blocks or self.host_pool.num_free < self.host_pool.num_blocks:
            return False
        for block in self.pool.published_blocks():
            self.pool.evict(block)
        return True

    def _chain(self, sequence: Sequence, request: CacheRequest) -> TokenChain:
        """The request's full blocks, up to date."""
        if sequence.chain is None:
            hasher = self._hasher.for_request(request.adapter, request.cache_salt)
            sequence.chain = TokenChain(hasher, self.block_size)
        sequence.chain.extend(request.token_ids)
        return sequence.chain
