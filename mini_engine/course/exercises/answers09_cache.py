"""Classes for lesson 09: `match` and `publish` in several right ways, and the wrong ones that people write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mini_engine.cache import CacheRequest
from mini_engine.course.own_prefix_cache import PrefixCacheLab


class Matches(PrefixCacheLab):
    """Walks the names, stops at the first that is not there or stands for other tokens, and leaves a token to compute."""

    def match(self, request: CacheRequest) -> list[int]:
        hits: list[int] = []
        for name in self.names(request)[: self.most(len(request.token_ids))]:
            block = self.find(name)
            if block is None or not self.stands_for(block, request.token_ids, len(hits)):
                break
            hits.append(block)
        return hits

    def most(self, length: int) -> int:
        """Blocks that may be hit."""
        return (length - 1) // self.block_size

    def stands_for(self, block: int, token_ids: Sequence[int], i: int) -> bool:
        """Whether it holds block i of these tokens, after all that come before."""
        return self.held(block) == list(token_ids[: (i + 1) * self.block_size])


class MatchesByLength(Matches):
    """Right: looks for the longest prefix first."""

    def match(self, request: CacheRequest) -> list[int]:
        found = [self.find(name) for name in self.names(request)]
        for n in range(self.most(len(request.token_ids)), 0, -1):
            blocks = [block for block in found[:n] if block is not None]
            if len(blocks) == n and all(self.stands_for(b, request.token_ids, i) for i, b in enumerate(blocks)):
                return blocks
        return []


class WholePrompt(Matches):
    def most(self, length: int) -> int:
        return length // self.block_size


class OneBlockLess(Matches):
    def match(self, request: CacheRequest) -> list[int]:
        return super().match(request)[: max(0, len(request.token_ids) // self.block_size - 1)]


class LeavesOutTheLast(Matches):
    """Gives up the last block always, also where a token is left over."""

    def match(self, request: CacheRequest) -> list[int]:
        return super().match(request)[:-1]


class OverTheGap(Matches):
    def match(self, request: CacheRequest) -> list[int]:
        names = self.names(request)[: self.most(len(request.token_ids))]
        return [block for name in names if (block := self.find(name)) is not None]


class BelievesTheName(Matches):
    def stands_for(self, block: int, token_ids: Sequence[int], i: int) -> bool:
        return True


class ComparesTheBlockOnly(Matches):
    def stands_for(self, block: int, token_ids: Sequence[int], i: int) -> bool:
        size = self.block_size
        return self.held(block)[-size:] == list(token_ids[i * size : (i + 1) * size])


class ComparesSorted(Matches):
    def stands_for(self, block: int, token_ids: Sequence[int], i: int) -> bool:
        return sorted(self.held(block)) == sorted(token_ids[: (i + 1) * self.block_size])


class CountsThem(Matches):
    def match(self, request: CacheRequest) -> Any:
        return len(super().match(request))


class OneByOne(Matches):
    def match(self, request: CacheRequest) -> Any:
        yield from super().match(request)


class NothingOnAMiss(Matches):
    def match(self, request: CacheRequest) -> Any:
        return super().match(request) or None


class MovesTheRequestOn(Matches):
    def match(self, request: CacheRequest) -> list[int]:
        hits = super().match(request)
        request.num_computed_tokens = len(hits) * self.block_size
        return hits


class TakesThem(Matches):
    def match(self, request: CacheRequest) -> list[int]:
        hits = super().match(request)
        self.pool.touch(hits)
        return hits


class FromTheEnd(Matches):
    def match(self, request: CacheRequest) -> list[int]:
        return super().match(request)[::-1]


class ThreeAtMost(Matches):
    def match(self, request: CacheRequest) -> list[int]:
        return super().match(request)[:3]


class Publishes(PrefixCacheLab):
    """Every block that is full of computed tokens."""

    def publish(self, request: CacheRequest) -> int:
        return sum(self.enter(request, i) for i in range(request.num_computed_tokens // self.block_size))


class PublishesBlockByBlock(PrefixCacheLab):
    """Right: goes up to the first block that is not full."""

    def publish(self, request: CacheRequest) -> int:
        new, i = 0, 0
        while (i + 1) * self.block_size <= request.num_computed_tokens:
            new += self.enter(request, i)
            i += 1
        return new


class AllBlocks(PrefixCacheLab):
    def publish(self, request: CacheRequest) -> int:
        full = len(request.token_ids) // self.block_size
        return sum(self.enter(request, i) for i in range(min(full, len(request.block_table))))


class RoundsUp(PrefixCacheLab):
    def publish(self, request: CacheRequest) -> int:
        blocks = -(-request.num_computed_tokens // self.block_size)
        return sum(self.enter(request, i) for i in range(min(blocks, len(request.token_ids) // self.block_size)))


class OneTooFew(PrefixCacheLab):
    def publish(self, request: CacheRequest) -> int:
        return sum(self.enter(request, i) for i in range((request.num_computed_tokens - 1) // self.block_size))


class Once(PrefixCacheLab):
    def publish(self, request: CacheRequest) -> int:
        if self._sequence(request).num_published:
            return 0
        return sum(self.enter(request, i) for i in range(request.num_computed_tokens // self.block_size))


class LengthAtFirst(PrefixCacheLab):
    """Never goes beyond the tokens that the request came with."""

    def publish(self, request: CacheRequest) -> int:
        seen = self.__dict__.setdefault("lengths", {})
        known = seen.setdefault(request.request_id, len(request.token_ids))
        return sum(self.enter(request, i) for i in range(min(known, request.num_computed_tokens) // self.block_size))


class RoundsUpTheLast(PrefixCacheLab):
    def publish(self, request: CacheRequest) -> int:
        return sum(self.enter(request, i) for i in range((request.num_computed_tokens + 1) // self.block_size))


class FromTheLast(PrefixCacheLab):
    def publish(self, request: CacheRequest) -> int:
        full = request.num_computed_tokens // self.block_size
        return sum(self.enter(request, i) for i in reversed(range(full)))


class OneTooMany(PrefixCacheLab):
    """Counts the token that was just sampled."""

    def publish(self, request: CacheRequest) -> int:
        known, computed = len(request.token_ids), request.num_computed_tokens
        tokens = known if computed == known - 1 else computed
        return sum(self.enter(request, i) for i in range(tokens // self.block_size))


class LastBlockOnly(PrefixCacheLab):
    def publish(self, request: CacheRequest) -> int:
        i = request.num_computed_tokens // self.block_size - 1
        return self.enter(request, i) if i >= 0 else 0


class CountsAll(PrefixCacheLab):
    def publish(self, request: CacheRequest) -> int:
        full = request.num_computed_tokens // self.block_size
        for i in range(full):
            self.enter(request, i)
        return full


class Never(PrefixCacheLab):
    def publish(self, request: CacheRequest) -> int:
        return 0
