"""The broken allocator and the engine's manager behind the same few calls, so that one scenario tries them both."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from mini_engine.cache import KVCacheManager, WeakHasher
from mini_engine.course.broken_allocator import Block, BlockAllocator
from mini_engine.course.broken_allocator import Sequence as BrokenSequence
from mini_engine.course.cache_requests import CacheUser, compute, fork, look_up, start


def refused(call: Callable[[], object], kinds: type[Exception] | tuple[type[Exception], ...] = MemoryError) -> bool:
    """Whether the call raises one of these errors."""
    try:
        call()
    except kinds:
        return True
    return False


class WeakAllocator(BlockAllocator):
    """Its names collide all the time, as those of `WeakHasher` do."""

    def digest(self, parent: int, tokens: Sequence[int]) -> int:
        return sum(tokens) % 7


class BrokenBench:
    """The broken allocator."""

    def __init__(self, num_blocks: int, block_size: int, weak_names: bool = False) -> None:
        self.allocator = (WeakAllocator if weak_names else BlockAllocator)(num_blocks, block_size)
        self.blocks = list(self.allocator.free.values())
        self.sequences: dict[str, BrokenSequence] = {}

    @property
    def num_free(self) -> int:
        return len(self.allocator.free)

    def counts(self) -> list[int]:
        return [block.ref_count for block in self.blocks]

    def start(self, name: str, tokens: Sequence[int], computed: bool = True, **keys: str) -> int:
        sequence = self.allocator.start(tokens, **keys)
        self.sequences[name] = sequence
        return sequence.num_cached_tokens

    def append(self, name: str, *tokens: int) -> object:
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
        twin = copy.deepcopy(self.allocator)
        twin.free.update((number, Block(number)) for number in range(1000, 1000 + len(tokens)))
        return twin.start(tokens, **keys).num_cached_tokens

    def can_start(self, tokens: Sequence[int]) -> bool:
        return self.allocator.can_start(tokens)

    def fork(self, name: str, branch: str) -> None:
        self.sequences[branch] = self.allocator.fork(self.sequences[name])

    def share(self, name: str, branch: str) -> None:
        """By hand, since there is no other way."""
        self.sequences[branch] = BrokenSequence(list(self.sequences[name].blocks))
        for block in self.sequences[branch].blocks:
            block.ref_count += 1

    def evict(self, number: int) -> None:
        self.allocator.free.move_to_end(number, last=False)
        block = self.allocator._take()
        block.ref_count = 0
        self.allocator.free[number] = block


class EngineBench:
    """The engine's manager; slots holds what a backend would have written."""

    def __init__(self, num_blocks: int, block_size: int, weak_names: bool = False) -> None:
        self.cache = KVCacheManager(num_blocks, block_size, hasher=WeakHasher() if weak_names else None)
        self.users: dict[str, CacheUser] = {}
        self.slots: dict[tuple[int, int], int] = {}

    @property
    def num_free(self) -> int:
        return self.cache.num_free_blocks

    def counts(self) -> list[int]:
        return [self.cache.pool.ref_count(block) for block in range(1, self.cache.pool.num_blocks + 1)]

    def start(self, name: str, tokens: Sequence[int], computed: bool = True, **keys: str) -> int:
        user = CacheUser(name, list(tokens), **keys)
        try:
            hit = start(self.cache, user)
        except MemoryError:
            self.cache.free(user)
            raise
        self.users[name] = user
        if computed and tokens:
            self._compute(user)
        return hit

    def append(self, name: str, *tokens: int) -> object:
        user, ops = self.users[name], []
        for token in tokens:
            user.token_ids.append(token)
            try:
                ops += self._compute(user)
            except Exception:
                user.token_ids.pop()
                raise
        return [(op.src, op.dst) for op in ops]

    def release(self, name: str) -> None:
        self.cache.free(self.users[name])

    def table(self, name: str) -> list[int]:
        return list(self.users[name].block_table)

    def contents(self, name: str) -> list[int]:
        return [self.slots[self._slot(self.users[name], i)] for i in range(self.users[name].num_computed_tokens)]

    def look_up(self, tokens: Sequence[int], **keys: str) -> int:
        return look_up(self.cache, tokens, **keys)

    def can_start(self, tokens: Sequence[int]) -> bool:
        user = CacheUser("may I", list(tokens))
        fits = self.cache.num_blocks_to_allocate(user, len(tokens)) <= self.cache.num_free_blocks
        self.cache.free(user)
        return fits

    def fork(self, name: str, branch: str) -> None:
        self.users[branch] = fork(self.cache, self.users[name], index=len(self.users))

    share = fork

    def evict(self, number: int) -> None:
        self.cache.pool.evict(number)

    def _compute(self, user: CacheUser) -> list:
        begin, size = user.num_computed_tokens, self.cache.block_size
        ops = compute(self.cache, user)
        for op in ops:
            for i in range(size):
                if (op.src, i) in self.slots:
                    self.slots[op.dst, i] = self.slots[op.src, i]
        for position in range(begin, len(user.token_ids)):
            self.slots[self._slot(user, position)] = user.token_ids[position]
        return ops

    def _slot(self, user: CacheUser, position: int) -> tuple[int, int]:
        size = self.cache.block_size
        return user.block_table[position // size], position % size
