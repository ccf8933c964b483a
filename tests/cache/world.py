"""A scheduler and a backend in miniature, to drive the cache manager and to know what every slot must hold.

The content of a slot is what K/V would depend on: the adapter, the salt and all tokens up to its own. So content equals
expectation exactly when the cache gave the right block to the right request at the right moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mini_engine.cache import CacheOp, KVCacheManager
from mini_engine.cache.invariants import check_manager, check_ops


@dataclass(eq=False)
class FakeRequest:
    """A request with nothing but what the manager may read."""

    request_id: str
    token_ids: list[int]
    index: int = 0
    cache_salt: str | None = None
    adapter: str | None = None
    num_computed_tokens: int = 0
    block_table: list[int] = field(default_factory=list)

    def history(self, position: int) -> tuple:
        return (self.adapter, self.cache_salt, tuple(self.token_ids[: position + 1]))

    def __repr__(self) -> str:
        return f"{self.request_id}.{self.index}"


class World:
    """Plan with append, swap_in, swap_out ...; then run the step with execute()."""

    def __init__(self, num_blocks: int, block_size: int, **options) -> None:
        self.manager = KVCacheManager(num_blocks, block_size, **options)
        self.requests: list[FakeRequest] = []
        self.slots: dict[tuple[int, int], tuple] = {}  # (block, offset) -> content
        self.host_slots: dict[tuple[int, int], tuple] = {}
        self.planned: list[tuple[FakeRequest, CacheOp]] = []
        self.scheduled: dict[FakeRequest, int] = {}

    def add(self, request_id: str, token_ids: list[int], **keys) -> FakeRequest:
        request = FakeRequest(request_id, list(token_ids), **keys)
        self.requests.append(request)
        return request

    def admit(self, request: FakeRequest, num_tokens: int | None = None) -> int:
        """Admit for num_tokens tokens (None: all there are); the number of tokens hit."""
        hit = self.manager.allocate(request, len(request.token_ids) if num_tokens is None else num_tokens)
        request.num_computed_tokens += hit
        return hit

    def append(self, request: FakeRequest, n: int = 1) -> None:
        """Plan to compute the next n tokens."""
        self._plan(request, self.manager.append(request, n))
        self.scheduled[request] = n

    def fork(self, src: FakeRequest, index: int, token_ids: list[int] | None = None) -> FakeRequest:
        dst = FakeRequest(src.request_id, token_ids or list(src.token_ids), index, src.cache_salt, src.adapter)
        dst.num_computed_tokens = src.num_computed_tokens
        self.manager.fork(src, dst)
        self.requests.append(dst)
        return dst

    def swap_out(self, request: FakeRequest) -> None:
        self._plan(request, self.manager.swap_out(request))
        self.scheduled.pop(request, None)

    def swap_in(self, request: FakeRequest) -> None:
        self._plan(request, self.manager.swap_in(request))

    def preempt(self, request: FakeRequest) -> None:
        """By recompute: the blocks go, the tokens stay."""
        self._drop(request)
        request.num_computed_tokens = 0

    def free(self, request: FakeRequest) -> None:
        self._drop(request)
        self.requests.remove(request)

    def execute(self, sample: int = 0) -> None:
        """Run the step: operations in order, then all writes, then commit; a fully computed request samples a token."""
        ops = [op for _, op in self.planned]
        check_ops(self.manager, ops)
        for op in ops:
            self._apply(op)
        for request, n in self.scheduled.items():
            for position in range(request.num_computed_tokens, request.num_computed_tokens + n):
                self.slots[self._slot(request, position)] = request.history(position)
        for request, n in self.scheduled.items():
            request.num_computed_tokens += n
            if request.num_computed_tokens == len(request.token_ids):
                request.token_ids.append(sample)
            self.manager.publish(request)
        self.planned, self.scheduled = [], {}

    def roll_back(self) -> None:
        """The step fails before it begins: no operation is executed, nothing is written."""
        copied = {owner for owner, op in self.planned if op.kind != "swap_out"}
        lost = {owner for owner, op in self.planned if op.kind == "swap_out"}
        for request in self.requests:
            if request in copied or (request in lost and self.manager.is_swapped(request)):
                self.preempt(request)
            elif request.block_table:
                self.manager.trim(request)
        self.planned, self.scheduled = [], {}

    def prefill(self, request: FakeRequest, sample: int = 0) -> int:
        """Admit a request and compute its whole prompt in one step; the number of tokens hit."""
        hit = self.admit(request)
        self.append(request, len(request.token_ids) - hit)
        self.execute(sample)
        self.check()
        return hit

    def run(self, request_id: str, token_ids: list[int], **keys) -> int:
        """Prefill a request and finish it; the number of tokens hit."""
        request = self.add(request_id, token_ids, **keys)
        hit = self.prefill(request)
        self.free(request)
        self.check()
        return hit

    def check(self) -> None:
        """Every invariant, and, between steps, that every computed token is where its table says."""
        scheduled = {(request.request_id, request.index): n for request, n in self.scheduled.items()}
        check_manager(self.manager, self.requests, scheduled)
        if self.planned or self.scheduled:
            return
        for request in self.requests:
            swapped = self.manager.is_swapped(request)
            for position in range(request.num_computed_tokens):
                slot = self._slot(request, position)
                found = (self.host_slots if swapped else self.slots).get(slot)
                assert found == request.history(position), f"{request}, position {position}, slot {slot}: {found}"

    def computed_prefix(self, request: FakeRequest) -> int:
        """What a match must find, by looking at what published blocks hold, in blocks."""
        size = self.manager.block_size
        held = {self.slots.get((block, size - 1)) for block in self.manager.pool.published_blocks()}
        num_blocks = 0
        while num_blocks < (len(request.token_ids) - 1) // size:
            if request.history((num_blocks + 1) * size - 1) not in held:
                break
            num_blocks += 1
        return num_blocks

    def _plan(self, request: FakeRequest, ops: list[CacheOp]) -> None:
        self.planned += [(request, op) for op in ops]

    def _drop(self, request: FakeRequest) -> None:
        self.manager.free(request)
        self.scheduled.pop(request, None)
        self.planned = [(owner, op) for owner, op in self.planned if owner is not request]

    def _slot(self, request: FakeRequest, position: int) -> tuple[int, int]:
        size = self.manager.block_size
        table = self.manager.host_blocks(request) or request.block_table
        return table[position // size], position % size

    def _apply(self, op: CacheOp) -> None:
        source = self.host_slots if op.kind == "swap_in" else self.slots
        target = self.host_slots if op.kind == "swap_out" else self.slots
        for offset in range(self.manager.block_size):
            target[op.dst, offset] = source.get((op.src, offset))
