"""What must be true of the cache between any two operations. Each check raises AssertionError naming what broke and where.

I1   free blocks + blocks in use + the null block = rows of the pool
I2   a block's count = the number of block tables of live requests that hold it
I3   a block is in the free queue exactly when its count is 0, and once; blank blocks stand before cached ones
I4   a published block is full, computed, and entered under the very tokens it was computed from
I5   index and pool agree, both ways, on which blocks can be found
I6   a table is as long as it was asked to be, holds no block twice, and covers all computed and scheduled tokens
I7   a slot about to be written is in a block that one request holds and nobody can find
I10  an operation that fails changes nothing
I11  no operation of a plan writes to a block that nobody holds
I14  when no request is alive, every block is free

(I8, I9, I12 and I13 speak of queues, chunks and outputs: they are the scheduler's and the engine's.)
The checks read everything, so they cost time in proportion to the pool: for tests and for finding faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

from mini_engine.cache.block_pool import NULL_BLOCK, BlockPool
from mini_engine.cache.block_tables import CacheRequest
from mini_engine.cache.kv_manager import KVCacheManager
from mini_engine.cache.ops import CacheOp


def check_manager(
    manager: KVCacheManager,
    requests: Iterable[CacheRequest],
    scheduled: Mapping[tuple[str, int], int] | None = None,
) -> None:
    """Check I1 to I7. requests: all that are alive. scheduled: (request_id, index) -> tokens the next step will write."""
    requests = list(requests)
    check_pool(manager.pool)
    check_pool(manager.host_pool, name="host block")
    _check_holders(manager, requests)
    _check_index(manager)
    for request in requests:
        _check_table(manager, request, (scheduled or {}).get((request.request_id, request.index), 0))
        _check_published(manager, request)


def check_idle(manager: KVCacheManager) -> None:
    """Check I14, and that nothing is remembered of any request."""
    check_manager(manager, [])
    for pool, name in ((manager.pool, "block"), (manager.host_pool, "host block")):
        for block in range(1, pool.num_blocks + 1):
            if pool.ref_count(block):
                raise AssertionError(f"I14: no request is alive, but {name} {block} has count {pool.ref_count(block)}")
    if manager._sequences:
        raise AssertionError(f"I14: no request is alive, but some are remembered: {list(manager._sequences)}")


def check_pool(pool: BlockPool, name: str = "block") -> None:
    """Check I1 and I3."""
    queue = list(islice(pool.free_queue, pool.num_blocks + 1))  # a broken queue may run in a circle
    in_use = [block for block in range(1, pool.num_blocks + 1) if pool.ref_count(block)]
    if pool.num_free + len(in_use) != pool.num_blocks:
        raise AssertionError(f"I1: {pool.num_free} free + {len(in_use)} in use is not {pool.num_blocks} {name}s")
    for block, times in Counter(queue).items():
        if times > 1 or block == NULL_BLOCK:
            raise AssertionError(f"I3: {name} {block} is in the free queue {times} times")
        if pool.ref_count(block):
            raise AssertionError(f"I3: {name} {block} is in the free queue with count {pool.ref_count(block)}")
    if len(queue) != pool.num_free:
        raise AssertionError(f"I3: the free queue holds {len(queue)} {name}s and says {pool.num_free}")
    published = [pool.is_published(block) for block in queue]
    if published != sorted(published):
        raise AssertionError(f"I3: a blank {name} stands behind a cached one: {list(zip(queue, published))}")
    if pool.num_cached != len(pool.published_blocks()):
        raise AssertionError(f"I3: {pool.num_cached} cached {name}s noted, {len(pool.published_blocks())} found")


def check_ops(manager: KVCacheManager, ops: Sequence[CacheOp]) -> None:
    """Check I11 for the operations of one plan, after planning: each target is held, or read by a later operation."""
    for i, op in enumerate(ops):
        to_host = op.kind == "swap_out"
        pool = manager.host_pool if to_host else manager.pool
        read_later = any(op.dst == later.src and to_host == (later.kind == "swap_in") for later in ops[i + 1 :])
        if not pool.ref_count(op.dst) and not read_later:
            raise AssertionError(f"I11: operation {i}, {op}, writes to block {op.dst}, which nobody holds")


@contextmanager
def unchanged_on_failure(manager: KVCacheManager, requests: Iterable[CacheRequest]) -> Iterator[None]:
    """Check I10 around one operation: when it raises, everything must be as before. The exception goes on."""
    requests = list(requests)
    before = _snapshot(manager, requests)
    try:
        yield
    except Exception as error:
        for (name, old), (_, new) in zip(before, _snapshot(manager, requests)):
            if old != new:
                raise AssertionError(f"I10: {error!r} left {name} changed: {old} became {new}") from error
        raise


def _check_holders(manager: KVCacheManager, requests: Sequence[CacheRequest]) -> None:
    holders: dict[int, list[str]] = {}
    host_holders: dict[int, list[str]] = {}
    alive = {(request.request_id, request.index) for request in requests}
    for key, sequence in manager._sequences.items():
        if key not in alive and (sequence.table or sequence.host_blocks):
            raise AssertionError(f"I2: request {key} is not alive but holds blocks {sequence.table}")
        for block in sequence.host_blocks:
            host_holders.setdefault(block, []).append(str(key))
    for request in requests:
        for block in request.block_table:
            holders.setdefault(block, []).append(str((request.request_id, request.index)))
    for pool, held, name in ((manager.pool, holders, "block"), (manager.host_pool, host_holders, "host block")):
        for block in range(1, pool.num_blocks + 1):
            by = held.pop(block, [])
            if pool.ref_count(block) != len(by):
                raise AssertionError(f"I2: {name} {block} has count {pool.ref_count(block)}, it is held by {by}")
        if held:
            raise AssertionError(f"I2: {name}s that do not exist are held: {held}")


def _check_index(manager: KVCacheManager) -> None:
    found, published = manager.index.blocks(), set(manager.pool.published_blocks())
    if found != published:
        raise AssertionError(f"I5: only in the index: {found - published}; only in the pool: {published - found}")
    try:
        manager.index.check()
    except AssertionError as error:
        raise AssertionError(f"I5: {error}") from None
    for block in published:
        num_tokens = len(manager.index.history(block))
        if not num_tokens or num_tokens % manager.block_size:
            raise AssertionError(f"I4: block {block} is published with {num_tokens} tokens before its end")


def _check_published(manager: KVCacheManager, request: CacheRequest) -> None:
    for i, block in enumerate(request.block_table):
        if not manager.pool.is_published(block):
            continue
        end = (i + 1) * manager.block_size
        if end > request.num_computed_tokens:
            raise AssertionError(
                f"I4: block {block} of {_name(request)} is published, only {request.num_computed_tokens} of its {end} "
                "tokens are computed"
            )
        if manager.index.history(block) != list(request.token_ids[:end]):
            raise AssertionError(f"I4: block {block} of {_name(request)} is entered under other tokens than it holds")


def _check_table(manager: KVCacheManager, request: CacheRequest, num_scheduled: int) -> None:
    table, size = request.block_table, manager.block_size
    sequence = manager._sequences.get((request.request_id, request.index))
    if sequence is None:
        if table:
            raise AssertionError(f"I6: {_name(request)} has blocks {table} but is unknown")
        return
    if len(table) != -(-sequence.num_allocated // size):
        raise AssertionError(f"I6: {_name(request)} has {len(table)} blocks for {sequence.num_allocated} tokens")
    if len(set(table)) != len(table) or NULL_BLOCK in table:
        raise AssertionError(f"I6: {_name(request)} has a block twice, or the null block: {table}")
    if sequence.is_swapped:
        needed = -(-request.num_computed_tokens // size)
        if table or len(sequence.host_blocks) != needed or num_scheduled:
            raise AssertionError(f"I6: {_name(request)} is swapped out, {needed} host blocks: {sequence.host_blocks}")
        return
    end = request.num_computed_tokens + num_scheduled
    if end > len(table) * size:
        raise AssertionError(f"I6: {_name(request)} has {len(table)} blocks, {end} tokens are computed or scheduled")
    for i in range(request.num_computed_tokens // size, -(-end // size) if num_scheduled else 0):
        block = manager.pool.block(table[i])
        if block.ref_count != 1 or block.is_published:
            raise AssertionError(f"I7: {_name(request)} is about to write to {block}")


def _snapshot(manager: KVCacheManager, requests: Sequence[CacheRequest]) -> list[tuple[str, object]]:
    state: list[tuple[str, object]] = []
    for pool, name in ((manager.pool, "block"), (manager.host_pool, "host block")):
        state.append((f"the free {name}s", pool.free_blocks()))
        state.append((f"the {name}s", [pool.block(block) for block in range(1, pool.num_blocks + 1)]))
    state.append(("the index", {block: manager.index.history(block) for block in manager.index.blocks()}))
    for request in requests:
        sequence = manager._sequences.get((request.request_id, request.index))
        notes: tuple = (False, [], 0, 0)  # a failed first call may leave us knowing the request's hashes, and no more
        if sequence is not None:
            notes = (sequence.is_swapped, list(sequence.host_blocks), sequence.num_allocated, sequence.num_published)
        state.append((_name(request), (list(request.block_table), request.num_computed_tokens, notes)))
    return state


def _name(request: CacheRequest) -> str:
    return f"request {request.request_id!r} (branch {request.index})"
