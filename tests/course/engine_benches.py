"""The engine behind the calls that `mini_engine.course.defects.benches` gives the broken classes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from mini_engine.backends import NumpyBackend
from mini_engine.backends.base import BatchInput
from mini_engine.cache import BlockTables, KVCacheManager, WeakHasher
from mini_engine.course.cache_requests import CacheUser, compute, fork, look_up, start

Array = np.ndarray


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


class EnginePoolBench:
    """`NumpyBackend`'s pools and the engine's block tables; the model's place is taken by the numbers that are written."""

    def __init__(
        self, num_blocks: int = 8, block_size: int = 4, layers: int = 1, heads: int = 2, size: int = 4
    ) -> None:
        self.tables, self.shape = BlockTables(num_blocks, block_size), (2, 4)
        spec = SimpleNamespace(num_hidden_layers=layers, is_mla=False, num_key_value_heads=2, head_dim=4)
        for name, value in {"vocab_size": 1, "eos_token_ids": (), "max_model_len": 99, "window_note": ""}.items():
            setattr(spec, name, value)
        self.model = SimpleNamespace(spec=spec, softmax_scale=1.0, forward=self._forward)
        self.backend = NumpyBackend(self.model)
        self.backend.init_kv(num_blocks, block_size)
        self.users: dict[str, CacheUser] = {}

    def add(self, name: str, num_tokens: int) -> None:
        user = CacheUser(name, [])
        self.tables.allocate(user, num_tokens)
        self.users[name] = user

    def write(self, name: str, position: int, key: Any, value: Any, layer: int = 0) -> None:
        user, size = self.users[name], self.tables.block_size
        if position >= 0:
            user.num_computed_tokens = position
            self.backend.apply_ops(self.tables.append(user, 1))
            user.num_computed_tokens = position + 1
        slot = user.block_table[position // size] * size + position % size if position >= 0 else -1  # -1 is padding
        self._run(user, np.array([slot]), layer, np.asarray(key), np.asarray(value))

    def peek(self, name: str, num_tokens: int, layer: int = 0) -> tuple[Array, Array]:
        blocks = [self.backend.block(block) for block in self.users[name].block_table]
        k, v = (np.concatenate([block[part][layer] for block in blocks])[:num_tokens] for part in ("k", "v"))
        return k, v

    def attend(self, name: str, q: Array, scale: float, num_tokens: int) -> Array:
        """Attention of one query over the sequence. Its slot is padding: nothing is written."""
        user = self.users[name]
        self.model.softmax_scale = scale
        assert user.num_computed_tokens == num_tokens
        k, v = self.peek(name, num_tokens)
        return self._run(user, np.array([-1]), 0, k[-1], v[-1], q)

    def free(self, name: str) -> None:
        self.tables.free(self.users[name])

    def fork(self, name: str, branch: str) -> None:
        self.users[branch] = fork(self.tables, self.users[name], index=len(self.users))

    share = fork

    def _run(
        self, user: CacheUser, slots: Array, layer: int, key: Array, value: Array, q: Array | None = None
    ) -> Array:
        self.now = layer, key[None], value[None], q
        n = max(user.num_computed_tokens, 1)
        table = np.array([user.block_table], dtype=np.int32)
        one = np.zeros(1, dtype=np.int64)
        self.backend.execute(
            BatchInput(one, one, slots, table, np.array([n], np.int32), np.array([0, 1], np.int32), one)
        )
        return self.out

    def _forward(self, token_ids: Array, positions: Array, attend: Any, logits_rows: Array) -> Array:
        layer, key, value, q = self.now
        self.out = attend(layer, np.zeros((1, *self.shape)) if q is None else q[None], key, value)[0]
        return np.zeros((1, 1))

    def work_of_one_block(self) -> int:
        """How many instructions it takes to take a block."""
        pool, steps = self.tables.pool, 0

        def count(frame: Any, event: str, arg: Any) -> Any:
            nonlocal steps
            frame.f_trace_opcodes = True
            steps += event == "opcode"
            return count

        before = sys.gettrace()
        pool.allocate(1)  # Python 3.13 reports a function's instructions from its second call on
        sys.settrace(count)
        try:
            pool.allocate(1)
        finally:
            sys.settrace(before)
        return steps
