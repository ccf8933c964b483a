"""Prefix caches with one bug each: the engine's own manager, with one method of it or of a part overridden."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Blocks
from typing import Any

from mini_engine.cache import BlockPool, CacheRequest, FreeBlockQueue, KVCacheManager, PrefixIndex, TokenChain
from mini_engine.cache.block_tables import Sequence
from mini_engine.course.bug_bank import Bug, BugBank, hand_out_class
from mini_engine.course.exercises.bugs07_block_tables import with_part


class RadixManager(KVCacheManager):
    """Right: a radix tree finds the same blocks as the hash chain."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **{"prefix_index": "radix", **options})


class OtherNumbers(KVCacheManager):
    """Right: it hands out the last block first."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.pool.release(self.pool.allocate(num_blocks))


def with_index(kind: type[PrefixIndex]) -> type[KVCacheManager]:
    """The manager over an index of another class."""

    class Cache(KVCacheManager):
        def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
            super().__init__(num_blocks, block_size, **{**options, "prefix_index": kind})

    return Cache


def blocks_entered(cache: KVCacheManager, request: CacheRequest) -> int:
    """How many blocks of the request others can find."""
    return cache._resident(request).num_published


RIGHT = {"the engine's own": KVCacheManager, "with a radix tree": RadixManager, "other block numbers": OtherNumbers}


class _PublishesTooEarly(KVCacheManager):
    """Enters the names of all blocks as soon as there is room for them."""

    def allocate(self, request: CacheRequest, num_tokens: int) -> int:
        hit = super().allocate(request, num_tokens)
        computed, request.num_computed_tokens = request.num_computed_tokens, num_tokens
        self.publish(request)
        request.num_computed_tokens = computed
        return hit


class _CountsTheSampledToken(KVCacheManager):
    def publish(self, request: CacheRequest) -> int:
        computed, request.num_computed_tokens = request.num_computed_tokens, len(request.token_ids)
        try:
            return super().publish(request)
        finally:
            request.num_computed_tokens = computed


class _PublishesOnce(KVCacheManager):
    def publish(self, request: CacheRequest) -> int:
        if blocks_entered(self, request) > 0:
            return 0
        return super().publish(request)


class _LeavesNothingToCompute(KVCacheManager):
    def match(self, request: CacheRequest) -> list[int]:
        chain = self._chain(self._sequence(request), request)
        return self.index.match(chain, len(request.token_ids) // self.block_size)


class _ForgetsTheSalt(KVCacheManager):
    def _chain(self, sequence: Sequence, request: CacheRequest) -> TokenChain:
        sequence.chain = sequence.chain or TokenChain(self._hasher.for_request(request.adapter, None), self.block_size)
        return super()._chain(sequence, request)


class _ForgetsWhatCameBefore(KVCacheManager):
    def match(self, request: CacheRequest) -> list[int]:
        chain, size = self._chain(self._sequence(request), request), self.block_size
        found = {tuple(self.index.history(block)[-size:]): block for block in sorted(self.index.blocks())}
        hits: list[int] = []
        for tokens in chain.tokens[: (len(request.token_ids) - 1) // size]:
            if tuple(tokens) not in found or found[tuple(tokens)] in hits:
                break
            hits.append(found[tuple(tokens)])
        return hits


class _AsksForTooFew(KVCacheManager):
    def _num_free_among(self, blocks: Any) -> int:
        return 0


class _HeadFirst(BlockPool):
    def release(self, blocks: Blocks[int]) -> None:
        super().release(blocks[::-1])


HeadFirst = with_part(KVCacheManager, "pool", _HeadFirst)
"""A manager that gives blocks back from the head of a prompt on, so that the head is reused first."""


class _StaysInTheQueue(BlockPool):
    def touch(self, blocks: Blocks[int]) -> None:
        for block in blocks:
            self._refs[block] += 1


class _KeepsItsName(BlockPool):
    def _unpublish(self, block: int) -> None:
        self._published[block] = False
        self.num_cached -= 1


class _BehindTheCached(FreeBlockQueue):
    __slots__ = ()

    def push_blank(self, block: int) -> None:
        self._insert_after(self._prev[0], block)


class _NewestFirst(FreeBlockQueue):
    __slots__ = ()

    def push_cached(self, block: int) -> None:
        self._insert_after(self._last_blank, block)


class TrustingIndex(PrefixIndex):
    """An index that believes a name without looking at the tokens."""

    def _holds(self, entry: Any, tokens: array[int], parent: Any, chain: TokenChain) -> bool:
        return True


class _OneBlockAName(PrefixIndex):
    def evict(self, block: int) -> None:
        for twin in list(self._entry_of[block].blocks) if block in self._entry_of else []:
            super().evict(twin)


WRONG = {
    "publishes before computing": Bug(
        _PublishesTooEarly, "Admitted, but not computed: the blocks of a prompt hold nothing yet. Look them up then."
    ),
    "counts the sampled token": Bug(
        _CountsTheSampledToken,
        "Put a token into token_ids that is not computed, so that a block would be full with it.",
    ),
    "publishes the prompt only": Bug(
        _PublishesOnce, "Let decoding fill a block, then send prompt and answer as the next prompt."
    ),
    "leaves nothing to compute": Bug(
        _LeavesNothingToCompute, "Send a prompt that the cache holds to its last token: one must be left to compute."
    ),
    "forgets the salt": Bug(_ForgetsTheSalt, "The same prompt with two values of cache_salt must not meet."),
    "forgets what came before": Bug(
        _ForgetsWhatCameBefore, "The same tokens after another beginning have other K/V: swap two blocks of a prompt."
    ),
    "believes the name": Bug(
        with_index(TrustingIndex),
        "Names can collide. make(8, 4, hasher=WeakHasher()) makes them collide all the time.",
    ),
    "frees the head first": Bug(
        HeadFirst,
        "Free a prompt of several blocks, let somebody take one block, send the prompt again.",
    ),
    "a hit stays in the free queue": Bug(
        with_part(KVCacheManager, "pool", _StaysInTheQueue),
        "After a hit on blocks that were free: does num_free fall? Allocate all the rest.",
    ),
    "a refused prompt keeps its hits": Bug(
        _AsksForTooFew, "Send a prompt that hits free blocks and is one block too long: what is free after the refusal?"
    ),
    "an evicted block keeps its name": Bug(
        with_part(KVCacheManager, "pool", _KeepsItsName), "Reuse every block for another prompt, then match the first."
    ),
    "blank blocks queue behind cached ones": Bug(
        with_part(KVCacheManager, "pool.free_queue", _BehindTheCached),
        "In a pool that has no other block left: free a full block, then one that was never full; take one. Is the full one still found?",
    ),
    "evicts the newest first": Bug(
        with_part(KVCacheManager, "pool.free_queue", _NewestFirst),
        "Free two prompts one after the other, take one block: which of them is still found?",
    ),
    "one block a name": Bug(
        with_index(_OneBlockAName),
        "Compute one prompt twice at the same time, so that two blocks hold the same; pool.evict the one.",
    ),
}

PREFIX_BUGS = BugBank("prefix cache", RIGHT, WRONG, hand_out_class, crash_counts=True)
