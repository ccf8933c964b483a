"""One sequence's keys and values, kept quantised: `LLM("tiny-gqa", backend="numpy", cache=QuantizedKVCache)`.

What is per token is quantised as it comes. What is per channel waits until its group of tokens is complete: until then
the newest tokens are kept as they are. So a query reads the newest keys unquantised, and the same keys quantised once
the group is full; where that happens depends on how many tokens come at a time. Per token it does not.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from mini_engine.arguments import count
from mini_engine.attention.dense import check_pair
from mini_engine.attention.quantized import Codec, Encoded, IntCodec, kivi


class Stored(NamedTuple):
    """K or V of one layer: the older tokens encoded, the newest as they came."""

    encoded: Encoded
    recent: np.ndarray  # [n, K, D] float32

    @property
    def nbytes(self) -> int:
        """Bytes of the codes, their scales and what is not encoded yet."""
        return self.encoded.nbytes + self.recent.nbytes


class QuantizedKVCache:
    """K and V of one sequence behind `append`, each through a codec of its own.

    keys, values: codecs; by default int8 with one scale per token and head
    recent:       newest tokens, at least, that stay unquantised (KIVI's residual; its authors keep up to 128)

    `KIVIKVCache` and `kivi_cache(bits)` are this class with KIVI's codecs.
    """

    def __init__(
        self,
        num_layers: int,
        capacity: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        keys: Codec = IntCodec(8),  # noqa: B008  frozen
        values: Codec = IntCodec(8),  # noqa: B008
        recent: int = 0,
    ) -> None:
        self.capacity, self.recent = capacity, count("recent", recent, minimum=0)
        self.codecs = keys, values
        nothing = np.zeros((0, num_kv_heads, head_dim), dtype=np.float32)
        empty = tuple(Stored(codec.encode(nothing), nothing) for codec in self.codecs)
        self._layers = [empty] * num_layers
        self._lengths = [0] * num_layers

    @property
    def num_tokens(self) -> int:
        """Tokens whose keys and values every layer has."""
        return min(self._lengths)

    @property
    def nbytes(self) -> int:
        """Bytes in use: codes, scales, zeros, and the newest tokens in float32 where a group waits to be complete."""
        return sum(stored.nbytes for layer in self._layers for stored in layer)

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Store k[T, K, D] and v[T, K, D]; returns what the cache now holds of the layer, decoded: [S, K, D] float32 each.

        Raises ValueError for NaN, infinity or unequal shapes and MemoryError beyond the capacity; the cache is then as it was.
        """
        check_pair(k, v)
        length = self._lengths[layer] + len(k)
        if length > self.capacity:
            raise MemoryError(
                f"the cache holds {self.capacity} tokens, {self._lengths[layer]} of them in use: {len(k)} more do not "
                "fit; make it with a larger capacity"
            )
        older_k, older_v = self._layers[layer]
        self._layers[layer] = self._added(older_k, k, self.codecs[0]), self._added(older_v, v, self.codecs[1])
        self._lengths[layer] = length
        keys, values = (
            np.concatenate([codec.decode(stored.encoded), stored.recent])
            for codec, stored in zip(self.codecs, self._layers[layer])
        )
        return keys, values

    def _added(self, old: Stored, x: np.ndarray, codec: Codec) -> Stored:
        recent = np.concatenate([old.recent, np.asarray(x, dtype=np.float32)])
        num_ready = num_encoded(len(recent), codec.tokens_per_group, self.recent)
        return Stored(old.encoded.then(codec.encode(recent[:num_ready])), recent[num_ready:])


def num_encoded(num_tokens: int, tokens_per_group: int, recent: int = 0) -> int:
    """How many of the oldest tokens are encoded: whole groups, without the `recent` newest tokens."""
    return max(0, num_tokens - recent) // tokens_per_group * tokens_per_group


def kivi_cache(bits: int, group: int = 32, recent: int = 0) -> partial[QuantizedKVCache]:
    """A QuantizedKVCache with KIVI's codecs, to give to `LLM(..., cache=...)`."""
    keys, values = kivi(bits, group)
    return partial(QuantizedKVCache, keys=keys, values=values, recent=recent)
