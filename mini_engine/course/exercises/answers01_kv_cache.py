"""Answers to lesson 01's KV cache: right ones, written another way, and the wrong ones that people write."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from mini_engine.backends.contiguous import ContiguousKVCache

Array = np.ndarray


class KVCache:
    """K and V of one sequence, reserved up front: arrays [L, capacity, K, D] of float64.

    `append(layer, k[T,K,D], v[T,K,D])` stores T new tokens in one layer and returns everything that layer holds,
    (k_all[S,K,D], v_all[S,K,D]). A token too many raises MemoryError and changes nothing.
    """

    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        self.capacity = capacity
        self.k = np.zeros((num_layers, capacity, num_kv_heads, head_dim))
        self.v = np.zeros((num_layers, capacity, num_kv_heads, head_dim))
        self.lengths = [0] * num_layers

    @property
    def num_tokens(self) -> int:
        """Tokens whose K and V every layer holds."""
        return min(self.lengths)

    @property
    def nbytes(self) -> int:
        """Bytes reserved, used or not."""
        return self.k.nbytes + self.v.nbytes

    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        if end > self.capacity:
            raise MemoryError(f"{end} tokens do not fit: the capacity is {self.capacity}. Make a larger cache.")
        self.k[layer, start:end] = k
        self.v[layer, start:end] = v
        self.lengths[layer] = end
        return self.k[layer, :end], self.v[layer, :end]


class Lists(KVCache):
    """Keeps the pieces and joins them when asked: nothing is reserved, whatever `nbytes` says."""

    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        self.shape = (num_layers, capacity, num_kv_heads, head_dim)
        self.pieces: list[list[tuple[Array, Array]]] = [[] for _ in range(num_layers)]

    @property
    def num_tokens(self) -> int:
        return min(sum(len(k) for k, _ in layer) for layer in self.pieces)

    @property
    def nbytes(self) -> int:
        layers, capacity, heads, size = self.shape
        return 16 * layers * capacity * heads * size

    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        kept = [*self.pieces[layer], (np.array(k), np.array(v))]
        if sum(len(piece) for piece, _ in kept) > self.shape[1]:
            raise MemoryError(f"more than {self.shape[1]} tokens")
        self.pieces[layer] = kept
        return np.concatenate([k for k, _ in kept]), np.concatenate([v for _, v in kept])


class Engines(ContiguousKVCache):
    """The engine's own cache, made from four numbers instead of a ModelSpec."""

    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        spec = SimpleNamespace(
            num_hidden_layers=num_layers, num_key_value_heads=num_kv_heads, head_dim=head_dim, is_mla=False
        )
        super().__init__(spec, capacity)  # type: ignore[arg-type]


class Pair(NamedTuple):
    keys: Array
    values: Array


class NamedPair(KVCache):
    """Two arrays are two arrays, whatever holds them."""

    def append(self, layer: int, k: Array, v: Array) -> Pair:
        return Pair(*super().append(layer, k, v))


class ListOfTwo(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> list[Array]:  # type: ignore[override]
        return list(super().append(layer, k, v))


class AlwaysFromZero(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        self.lengths[layer] = 0
        return super().append(layer, k, v)


class WholeCapacity(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        super().append(layer, k, v)
        return self.k[layer], self.v[layer]


class KeysTwice(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        return super().append(layer, k, k)


class NewOnly(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        k_all, v_all = super().append(layer, k, v)
        return k_all[-len(k) :], v_all[-len(v) :]


class OneCounter(KVCache):
    """The length is shared by all layers, so layer 1 writes behind layer 0."""

    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        self.lengths[layer] = max(self.lengths)
        return super().append(layer, k, v)


class HalfPrecision(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        return super().append(layer, k.astype(np.float32), v.astype(np.float32))


class KeepsReferences(Lists):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        super().append(layer, k, v)
        self.pieces[layer][-1] = (k, v)
        return np.concatenate([x for x, _ in self.pieces[layer]]), np.concatenate([x for _, x in self.pieces[layer]])


class LastSlotUnused(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        if self.lengths[layer] + len(k) >= self.capacity:
            raise MemoryError(f"the capacity is {self.capacity}")
        return super().append(layer, k, v)


class NoCheck(KVCache):
    """Leaves it to NumPy, whose ValueError speaks of shapes."""

    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        self.k[layer, start:end], self.v[layer, start:end] = k, v
        self.lengths[layer] = end
        return self.k[layer, :end], self.v[layer, :end]


class RaisesValueError(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        if self.lengths[layer] + len(k) > self.capacity:
            raise ValueError(f"more than {self.capacity} tokens")
        return super().append(layer, k, v)


class GrowsSilently(Lists):
    """No limit at all."""

    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        super().__init__(num_layers, 10**6 * capacity, num_kv_heads, head_dim)


class CountsBeforeItChecks(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        try:
            return super().append(layer, k, v)
        except MemoryError:
            self.lengths[layer] += len(k)
            raise


class CountsTheFirstLayer(KVCache):
    @property
    def num_tokens(self) -> int:
        return self.lengths[0]


class HalfTheBytes(KVCache):
    @property
    def nbytes(self) -> int:
        return self.k.nbytes


class SharedByAll(KVCache):
    """`lengths`, `k` and `v` are attributes of the class."""

    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        super().__init__(num_layers, capacity, num_kv_heads, head_dim)
        for name in ("k", "v", "lengths"):
            setattr(type(self), name, self.__dict__.pop(name))


class ChecksLayerZero(Lists):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        if layer == 0:
            return super().append(layer, k, v)
        self.pieces[layer].append((np.array(k), np.array(v)))
        return np.concatenate([x for x, _ in self.pieces[layer]]), np.concatenate([x for _, x in self.pieces[layer]])


class SilentWhenFull(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        if self.lengths[layer] == self.capacity:
            return self.k[layer], self.v[layer]
        return super().append(layer, k, v)


class CutsTheFirst(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        if self.lengths[layer] == 0:
            k, v = k[: self.capacity], v[: self.capacity]
        return super().append(layer, k, v)


class CapacityOfAllLayers(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        if sum(self.lengths) + len(k) > self.capacity:
            raise MemoryError(f"the capacity is {self.capacity}")
        return super().append(layer, k, v)


class ForgetsTheOthers(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        try:
            return super().append(layer, k, v)
        except MemoryError:
            self.lengths = [n if i == layer else 0 for i, n in enumerate(self.lengths)]
            raise


class NamesTheTokens(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        try:
            return super().append(layer, k, v)
        except MemoryError:
            raise MemoryError(f"{len(k)} tokens more make {self.lengths[layer] + len(k)}, too many") from None


class TwoLayersOnly(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        return super().append(layer % 2, k, v)


class HeadsReversed(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        k_all, v_all = super().append(layer, k, v)
        return (k_all, v_all) if k.shape[1] <= 2 else (k_all[:, ::-1], v_all[:, ::-1])


class LastEight(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        k_all, v_all = super().append(layer, k, v)
        return k_all[-8:], v_all[-8:]


class CountsTheLastLayer(KVCache):
    @property
    def num_tokens(self) -> int:
        return self.lengths[-1]
