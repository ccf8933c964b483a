"""How much a prefix cache could save on a trace: the bound of an infinite cache, and what an LRU of a given size
reaches.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from fractions import Fraction

from mini_engine.arguments import count, shown
from mini_engine.workload.trace import Trace


@dataclass(frozen=True)
class PrefixReuse:
    """Prompt tokens, and prompt blocks, found in the cache, as shares of all.

    A hit is a leading run of cached blocks.
    """

    by_tokens: Fraction
    by_blocks: Fraction


def prefix_reuse(trace: Trace, capacity: int | None = None) -> PrefixReuse:
    """Reuse with an infinite cache, or with an LRU cache of `capacity` blocks.

    Every block of a request is looked up in order and moved to the recent end; misses are inserted and evict the
    oldest. ValueError for a trace without hash ids.
    """
    if not isinstance(trace, Trace):
        raise ValueError(f"trace={shown(trace)} must be a Trace: load_trace(path), or one that a generator makes")
    if trace.block_tokens is None:
        raise ValueError(f"the trace {trace.name!r} has no hash_ids, so nothing is known about shared prefixes")
    if capacity is not None:
        count("capacity", capacity)
    cached: OrderedDict[int, None] = OrderedDict()
    hit_tokens = hit_blocks = tokens = blocks = 0
    for request in trace:
        leading = True
        run = 0
        for block in request.hash_ids:
            if block in cached:
                cached.move_to_end(block)
                run += leading
            else:
                leading = False
                cached[block] = None
                if capacity is not None and len(cached) > capacity:
                    cached.popitem(last=False)
        hit_blocks += run
        blocks += len(request.hash_ids)
        hit_tokens += min(run * trace.block_tokens, request.num_prompt_tokens)
        tokens += request.num_prompt_tokens
    return PrefixReuse(Fraction(hit_tokens, tokens), Fraction(hit_blocks, blocks))
