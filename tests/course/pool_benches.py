"""The broken pool and the engine's pools behind the same few calls, so that one scenario tries them both."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

from mini_engine.backends import NumpyBackend
from mini_engine.backends.base import BatchInput
from mini_engine.cache import BlockTables
from mini_engine.course.broken_pool import PagedKVPool
from mini_engine.course.cache_requests import CacheUser, fork

Array = np.ndarray


class BrokenPoolBench:
    """The broken pool. `peek` reads its arrays by hand."""

    def __init__(
        self, num_blocks: int = 8, block_size: int = 4, layers: int = 1, heads: int = 2, size: int = 4
    ) -> None:
        self.pool = PagedKVPool(num_blocks, block_size, heads, size)
        self.heads, self.size = heads, size

    def add(self, name: str, num_tokens: int) -> None:
        self.pool.add(name, num_tokens)

    def write(self, name: str, position: int, key: Any, value: Any, layer: int = 0) -> None:
        self.pool.write(name, position, key, value)

    def peek(self, name: str, num_tokens: int, layer: int = 0) -> tuple[Array, Array]:
        table = self.pool.tables[name]
        k, v = (
            part[table].reshape(-1, self.heads, self.size)[:num_tokens] for part in (self.pool.keys, self.pool.values)
        )
        return k, v

    def attend(self, name: str, q: Array, scale: float) -> Array:
        return self.pool.attend(name, q, scale)

    def free(self, name: str) -> None:
        self.pool.free(name)

    def fork(self, name: str, branch: str) -> None:
        self.pool.fork(name, branch)

    def share(self, name: str, branch: str) -> None:
        """By hand, since there is no other way."""
        self.pool.tables[branch] = list(self.pool.tables[name])
        self.pool.ref_counts[self.pool.tables[name]] += 1

    @staticmethod
    def work_of_one_block(num_blocks: int) -> int:
        """How many numbers move when a block is taken."""

        class Counting(list):
            moved = 0

            def pop(self, index: int = -1) -> int:
                self.moved += len(self) - 1 - range(len(self))[index]
                return super().pop(index)

        pool = PagedKVPool(num_blocks, 1, 1, 1)
        pool.free_blocks = Counting(pool.free_blocks)
        pool.take_block()
        return pool.free_blocks.moved


class EnginePoolBench:
    """`NumpyBackend`'s pools and the engine's block tables; the model's place is taken by the numbers that are written."""

    def __init__(
        self, num_blocks: int = 8, block_size: int = 4, layers: int = 1, heads: int = 2, size: int = 4
    ) -> None:
        self.tables, self.shape = BlockTables(num_blocks, block_size), (heads, size)
        spec = SimpleNamespace(num_hidden_layers=layers, is_mla=False, num_key_value_heads=heads, head_dim=size)
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

    def attend(self, name: str, q: Array, scale: float) -> Array:
        """Attention of one query over the sequence. Its slot is padding: nothing is written."""
        user = self.users[name]
        self.model.softmax_scale, n = scale, user.num_computed_tokens
        k, v = self.peek(name, n)
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

    @staticmethod
    def work_of_one_block(num_blocks: int) -> int:
        """How many instructions it takes to take a block."""
        pool, steps = BlockTables(num_blocks, 1).pool, 0

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
