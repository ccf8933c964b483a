"""Drive a cache without an engine: requests that are nothing but tokens, and the calls that a scheduler makes for them.

cache = KVCacheManager(num_blocks=8, block_size=4)
a = CacheUser("a", [1, 2, 3, 4, 5])
hit = prefill(cache, a)          # room for the prompt, the prompt computed, its full blocks published
ops = decode(cache, a, 6)        # one more token: room for it, computed, published; the copies to make before it
b = fork(cache, a, index=1)      # a second branch of a
look_up(cache, [1, 2, 3, 4, 9])  # tokens of a prompt that the cache has: 4
cache.free(a)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mini_engine.cache import BlockTables, CacheOp, KVCacheManager


@dataclass(eq=False)
class CacheUser:
    """All that a cache reads of a request."""

    request_id: str
    token_ids: list[int]
    index: int = 0
    cache_salt: str | None = None
    adapter: str | None = None
    num_computed_tokens: int = 0
    block_table: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.token_ids = list(self.token_ids)


def start(cache: BlockTables, user: CacheUser, num_tokens: int | None = None) -> int:
    """Admit: room for num_tokens tokens (None: all there are). Returns the tokens found in the cache; nothing is computed."""
    hit = cache.allocate(user, len(user.token_ids) if num_tokens is None else num_tokens)
    user.num_computed_tokens += hit
    return hit


def compute(cache: BlockTables, user: CacheUser, n: int | None = None) -> list[CacheOp]:
    """Compute the next n known tokens (None: all that are left); returns the operations that come before the writes."""
    n = len(user.token_ids) - user.num_computed_tokens if n is None else n
    ops = cache.append(user, n)
    user.num_computed_tokens += n
    if isinstance(cache, KVCacheManager):
        cache.publish(user)
    return ops


def prefill(cache: BlockTables, user: CacheUser) -> int:
    """Admit a request and compute its whole prompt; returns the number of tokens found in the cache."""
    hit = start(cache, user)
    if user.num_computed_tokens < len(user.token_ids):
        compute(cache, user)
    return hit


def decode(cache: BlockTables, user: CacheUser, *token_ids: int) -> list[CacheOp]:
    """Append tokens and compute each; returns the operations. When blocks are lacking, the token is taken back."""
    ops = []
    for token in token_ids:
        user.token_ids.append(token)
        try:
            ops += compute(cache, user, 1)
        except BaseException:
            user.token_ids.pop()
            raise
    return ops


def fork(cache: BlockTables, parent: CacheUser, index: int) -> CacheUser:
    """A branch of parent that shares all that parent has computed."""
    branch = CacheUser(parent.request_id, list(parent.token_ids), index, parent.cache_salt, parent.adapter)
    branch.num_computed_tokens = parent.num_computed_tokens
    cache.fork(parent, branch)
    return branch


def look_up(
    cache: BlockTables, token_ids: Sequence[int], cache_salt: str | None = None, adapter: str | None = None
) -> int:
    """Tokens of a prompt that the cache has. Takes nothing, and is forgotten at once."""
    user = CacheUser("look up", list(token_ids), cache_salt=cache_salt, adapter=adapter)
    try:
        return len(cache.match(user)) * cache.block_size
    finally:
        cache.free(user)
