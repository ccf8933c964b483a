"""The engine's cache manager, opened at three places for a learner: naming a block, matching a prompt, publishing blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mini_engine.cache import BlockHasher, CacheRequest, KVCacheManager, PrefixIndex
from mini_engine.course.cache_requests import CacheUser, prefill
from mini_engine.course.exercises.bugs09_prefix import HeadFirst, TrustingIndex
from mini_engine.workload import Trace

__all__ = [
    "HeadFirst",
    "PrefixCacheLab",
    "TrustingIndex",
    "hasher_of",
    "hit_share",
    "manager_with",
    "prompts_of",
]

BlockHash = Callable[[Any, Sequence[int], "tuple[str | None, ...]"], bytes]


class _FindableIndex(PrefixIndex):
    """The hash chain, which also says what it has under a name."""

    def find(self, name: bytes) -> int | None:
        entry = self._entries.get(name)
        return next(iter(entry.blocks), None) if entry else None


class PrefixCacheLab(KVCacheManager):
    """The engine's manager with four more methods: `names`, `find`, `held` and `enter`. It runs in LLMEngine as it is."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **{**options, "prefix_index": _FindableIndex})
        self._offered: set[int] = set()

    def names(self, request: CacheRequest) -> list[bytes]:
        """The names of the request's full blocks, in order: each covers all tokens up to its end."""
        chain = self._chain(self._sequence(request), request)
        return list(chain.digests(len(chain.tokens)))

    def find(self, name: bytes) -> int | None:
        """A published block of this name, or None."""
        return self.index.find(name)  # type: ignore[attr-defined]

    def held(self, block: int) -> list[int]:
        """All tokens that a published block stands for: from the first of its sequence to the last in the block."""
        return self.index.history(block)

    def enter(self, request: CacheRequest, i: int) -> int:
        """Let others find block i of the request: 1, or 0 when they could already.

        ValueError unless its tokens are known and block i - 1 was entered before it.
        """
        sequence = self._resident(request)
        table, chain = sequence.table, self._chain(sequence, request)
        if not 0 <= i < min(len(table), len(chain.tokens)):
            raise ValueError(f"block {i} of request {request.request_id!r} has no {self.block_size} tokens yet")
        if not self.enable_prefix_caching or self.pool.is_published(table[i]):
            return 0
        if i and not self.pool.is_published(table[i - 1]):
            if table[i - 1] not in self._offered:
                raise ValueError(
                    f"block {i} is entered before block {i - 1}: a block is found through the one before it"
                )
            return 0  # its parent met a name that belongs to other content: it could not be told apart
        self._offered.add(table[i])
        entered = self.index.publish(chain, i, [table[i]], parent=table[i - 1] if i else None)
        self.pool.publish([table[i]][:entered])
        sequence.num_published = max(sequence.num_published, i + entered)
        return entered


def hasher_of(block_hash: BlockHash) -> type[BlockHasher]:
    """The engine's hasher with a learner's block_hash(parent, token_ids, extra) inside; extra is (model, adapter, salt)."""

    class OwnHasher(BlockHasher):
        def hash_block(self, parent: bytes | None, token_ids: Sequence[int]) -> bytes:
            return block_hash(parent, token_ids, self.namespace)

    return OwnHasher


def manager_with(block_hash: BlockHash) -> type[KVCacheManager]:
    """A class for `LLMEngine(kv_manager=...)`: the engine's manager, whose blocks are named by block_hash."""
    hasher = hasher_of(block_hash)

    class OwnNames(KVCacheManager):
        def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
            super().__init__(num_blocks, block_size, **{"hasher": hasher(), **options})

    return OwnNames


def prompts_of(trace: Trace) -> list[list[int]]:
    """Made-up tokens with the trace's lengths and its shared blocks: a hash id stands for that many equal tokens."""
    size = trace.block_tokens or 1
    return [
        [block for block in request.hash_ids for _ in range(size)][: request.num_prompt_tokens] for request in trace
    ]


def hit_share(prompts: Iterable[Sequence[int]], cache: KVCacheManager) -> float:
    """The share of prompt tokens that the cache has when the prompts come one after the other."""
    found = asked = 0
    for number, prompt in enumerate(prompts):
        user = CacheUser(str(number), list(prompt))
        found += prefill(cache, user)
        asked += len(user.token_ids)
        cache.free(user)
    return found / asked
