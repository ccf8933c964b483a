"""Int8 caches for lesson 05: the reference, right ones written another way, and wrong ones that people write."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from mini_engine.course.exercises.answers05_quantize import Array, dequantize, quantize


class Int8KVCache:
    """K and V of one sequence as int8 codes [L, capacity, K, D] with a float16 scale for every token and head.

    `append(layer, k[T,K,D], v[T,K,D])` quantizes T new tokens and returns everything that layer holds, dequantized:
    (k_all[S,K,D], v_all[S,K,D]). A token too many raises MemoryError and changes nothing.
    """

    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        shape = (num_layers, capacity, num_kv_heads)
        self.capacity = capacity
        self.codes = [np.zeros((*shape, head_dim), dtype=np.int8) for _ in "kv"]
        self.scales = [np.zeros((*shape, 1), dtype=np.float16) for _ in "kv"]
        self.lengths = [0] * num_layers

    @property
    def num_tokens(self) -> int:
        """Tokens whose K and V every layer holds."""
        return min(self.lengths)

    @property
    def nbytes(self) -> int:
        """Bytes reserved: codes and scales."""
        return sum(array.nbytes for arrays in (self.codes, self.scales) for array in arrays)

    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        if end > self.capacity:
            raise MemoryError(f"{end} tokens do not fit: the capacity is {self.capacity}. Make a larger cache.")
        for x, codes, scales in zip((k, v), self.codes, self.scales):
            codes[layer, start:end], scales[layer, start:end] = quantize(x, axis=-1)
        self.lengths[layer] = end
        k_all, v_all = (dequantize(c[layer, :end], s[layer, :end]) for c, s in zip(self.codes, self.scales))
        return k_all, v_all


# -- right, another way ------------------------------------------------------------------------------------------------


class JoinsPieces:
    """Grows by joining. It reserves nothing, and reports what it may come to hold."""

    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        self.shape = (num_layers, capacity, num_kv_heads, head_dim)
        empty = quantize(np.zeros((0, num_kv_heads, head_dim)), -1)
        self.kept = [{"k": empty, "v": empty} for _ in range(num_layers)]

    @property
    def num_tokens(self) -> int:
        return min(len(layer["k"][0]) for layer in self.kept)

    @property
    def nbytes(self) -> int:
        layers, capacity, heads, size = self.shape
        return 2 * layers * capacity * heads * (size + 2)

    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        held = len(self.kept[layer]["k"][0])
        if held + len(k) > self.shape[1]:
            raise MemoryError(f"full: {held} + {len(k)} tokens, capacity {self.shape[1]}")
        for name, x in (("k", k), ("v", v)):
            old, new = self.kept[layer][name], quantize(x, -1)
            self.kept[layer][name] = (np.concatenate([old[0], new[0]]), np.concatenate([old[1], new[1]]))
        now = self.kept[layer]
        return dequantize(*now["k"]), dequantize(*now["v"])


class OneArray:
    """K and V in one array, token by token, float64 out."""

    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        self.q = np.zeros((num_layers, 2, capacity, num_kv_heads, head_dim), np.int8)
        self.s = np.ones((num_layers, 2, capacity, num_kv_heads, 1), np.float16)
        self.n = np.zeros(num_layers, int)

    @property
    def num_tokens(self) -> int:
        return int(self.n.min())

    @property
    def nbytes(self) -> int:
        return self.q.nbytes + self.s.nbytes

    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        n, total = int(self.n[layer]), self.q.shape[2]
        if n + len(k) > total:
            raise MemoryError(f"capacity {total} reached")
        for t in range(len(k)):
            codes, scales = quantize(np.stack([k[t], v[t]]), -1)
            self.q[layer, :, n + t], self.s[layer, :, n + t] = codes, scales
        self.n[layer] += len(k)
        n = int(self.n[layer])
        k_all, v_all = self.q[layer, :, :n] * self.s[layer, :, :n].astype(np.float64)
        return k_all, v_all


# -- wrong -------------------------------------------------------------------------------------------------------------


class ReturnsCodes(Int8KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        super().append(layer, k, v)
        k_all, v_all = (codes[layer, : self.lengths[layer]].astype(np.float64) for codes in self.codes)
        return k_all, v_all


class KeysTwice(Int8KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        return super().append(layer, k, k)


class ScalesOfKeys(Int8KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        k_all, _ = super().append(layer, k, v)
        end = self.lengths[layer]
        return k_all, dequantize(self.codes[1][layer, :end], self.scales[0][layer, :end])


class OneScaleALayer(Int8KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        super().append(layer, k, v)
        end = self.lengths[layer]
        k_all, v_all = (dequantize(c[layer, :end], s[layer, end - 1 : end]) for c, s in zip(self.codes, self.scales))
        return k_all, v_all


class NewOnly(Int8KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        k_all, v_all = super().append(layer, k, v)
        return k_all[-len(k) :], v_all[-len(k) :]


class OneLayer(Int8KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        k_all, v_all = super().append(layer, k, v)
        for codes, scales in zip(self.codes, self.scales):
            codes[:], scales[:] = codes[layer].copy(), scales[layer].copy()
        return k_all, v_all


class OneForAll(Int8KVCache):
    shared: ClassVar[dict[tuple[int, ...], Any]] = {}

    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        super().__init__(num_layers, capacity, num_kv_heads, head_dim)
        shape = (num_layers, capacity, num_kv_heads, head_dim)
        self.codes, self.scales = self.shared.setdefault(shape, (self.codes, self.scales))


class QuantizesAgain(Int8KVCache):
    """Dequantizes all, adds the new tokens, and quantizes all again, with a scale that is a little too large each time."""

    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        got = super().append(layer, k, v)
        for x, codes, scales in zip(got, self.codes, self.scales):
            end = len(x)
            scales[layer, :end] = np.abs(x).max(axis=-1, keepdims=True) / 126
            step = np.where(scales[layer, :end] == 0, 1, scales[layer, :end]).astype(np.float64)
            codes[layer, :end] = np.rint(x / step)
        return got


class Rescales(Int8KVCache):
    """One scale for each head of the layer, that of the loudest token so far."""

    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        k_all, v_all = super().append(layer, k, v)
        k_out, v_out = (dequantize(*quantize(x.reshape(1, -1), -1)).reshape(x.shape) for x in (k_all, v_all))
        return k_out, v_out


class NewestExact(Int8KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        k_all, v_all = super().append(layer, k, v)
        k_all[-len(k) :], v_all[-len(k) :] = k, v
        return k_all, v_all


class KeepsFloats(Int8KVCache):
    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        super().__init__(num_layers, capacity, num_kv_heads, head_dim)
        self.exact = np.zeros((2, num_layers, capacity, num_kv_heads, head_dim))


class KeepsDecoded(Int8KVCache):
    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        super().__init__(num_layers, capacity, num_kv_heads, head_dim)
        self.decoded: dict[int, tuple[Array, Array]] = {}

    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        self.decoded[layer] = super().append(layer, k, v)
        return self.decoded[layer]


class ScalesNotCounted(Int8KVCache):
    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.codes)


class WideScales(Int8KVCache):
    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        super().__init__(num_layers, capacity, num_kv_heads, head_dim)
        self.scales = [scales.astype(np.float64) for scales in self.scales]


class CountsTheFirst(Int8KVCache):
    @property
    def num_tokens(self) -> int:
        return self.lengths[0]


class NoCheck(Int8KVCache):
    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        super().__init__(num_layers, capacity, num_kv_heads, head_dim)
        self.capacity = 10**9


class CountsBeforeItChecks(Int8KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        try:
            return super().append(layer, k, v)
        except MemoryError:
            self.lengths[layer] += len(k)
            raise
