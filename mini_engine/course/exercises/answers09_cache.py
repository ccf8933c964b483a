"""Classes for lesson 09: `match` and `publish` in several right ways, and the wrong ones that people write."""

from __future__ import annotations

from mini_engine.cache import CacheRequest
from mini_engine.course.own_prefix_cache import PrefixCacheLab


class Matches(PrefixCacheLab):
    """Walks the names, stops at the first that is not there or stands for other tokens, and leaves a token to compute."""

    def match(self, request: CacheRequest) -> list[int]:
        hits: list[int] = []
        size = self.block_size
        for name in self.names(request)[: (len(request.token_ids) - 1) // size]:
            block = self.find(name)
            end = (len(hits) + 1) * size
            if block is None or self.held(block) != request.token_ids[:end]:
                break
            hits.append(block)
        return hits


class MatchesByLength(PrefixCacheLab):
    """Right: looks for the longest prefix first."""

    def match(self, request: CacheRequest) -> list[int]:
        size, names = self.block_size, self.names(request)
        found = [self.find(name) for name in names]
        for n in range((len(request.token_ids) - 1) // size, 0, -1):
            blocks = [block for block in found[:n] if block is not None]
            if len(blocks) == n and all(
                self.held(block) == list(request.token_ids[: (i + 1) * size]) for i, block in enumerate(blocks)
            ):
                return blocks
        return []


class WholePrompt(PrefixCacheLab):
    def match(self, request: CacheRequest) -> list[int]:
        hits: list[int] = []
        for name in self.names(request):
            block = self.find(name)
            if block is None or self.held(block) != request.token_ids[: (len(hits) + 1) * self.block_size]:
                break
            hits.append(block)
        return hits


class OneBlockLess(Matches):
    def match(self, request: CacheRequest) -> list[int]:
        return super().match(request)[: max(0, len(request.token_ids) // self.block_size - 1)]


class LeavesOutTheLast(Matches):
    """Gives up the last block always, also where a token is left over."""

    def match(self, request: CacheRequest) -> list[int]:
        return super().match(request)[:-1]


class OverTheGap(PrefixCacheLab):
    def match(self, request: CacheRequest) -> list[int]:
        names = self.names(request)[: (len(request.token_ids) - 1) // self.block_size]
        return [block for name in names if (block := self.find(name)) is not None]


class BelievesTheName(PrefixCacheLab):
    def match(self, request: CacheRequest) -> list[int]:
        hits: list[int] = []
        for name in self.names(request)[: (len(request.token_ids) - 1) // self.block_size]:
            block = self.find(name)
            if block is None:
                break
            hits.append(block)
        return hits


class ComparesTheBlockOnly(PrefixCacheLab):
    def match(self, request: CacheRequest) -> list[int]:
        hits: list[int] = []
        size = self.block_size
        for i, name in enumerate(self.names(request)[: (len(request.token_ids) - 1) // size]):
            block = self.find(name)
            if block is None or self.held(block)[-size:] != request.token_ids[i * size : (i + 1) * size]:
                break
            hits.append(block)
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


class OneTooMany(PrefixCacheLab):
    """Counts the token that was just sampled."""

    def publish(self, request: CacheRequest) -> int:
        tokens = min(len(request.token_ids), request.num_computed_tokens + 1)
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
