"""What a lossy cache makes of attention, over a whole text in one pass.

Decoding token by token, a query reads what the cache holds at that moment. The same can be had for all queries at once:
encode everything, and let a mask say for each query which keys were encoded by then, which were still as they came, and
which were gone. That makes it cheap to measure what a cache costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mini_engine.attention.dense import softmax
from mini_engine.attention.quantized import Codec
from mini_engine.attention.quantized_cache import QuantizedKVCache, num_encoded
from mini_engine.attention.windowed import WindowedKVCache, window_mask


@dataclass(frozen=True)
class KVScheme:
    """A way to keep keys and values.

    keys, values: codecs (both or neither), with the `recent` newest tokens left as they came (see `QuantizedKVCache`)
    window:       keep only the last `window` tokens and the first `num_sinks`, as they came (see `WindowedKVCache`)

    With none of them everything is kept in float32. Raises ValueError for both at once.
    """

    keys: Codec | None = None
    values: Codec | None = None
    recent: int = 0
    window: int | None = None
    num_sinks: int = 0

    def __post_init__(self) -> None:
        if (self.keys is None) != (self.values is None):
            raise ValueError("keys and values: give a codec for both, or for neither")
        if self.keys is not None and self.window is not None:
            raise ValueError("a scheme has codecs or a window, not both")

    def cache(
        self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int
    ) -> QuantizedKVCache | WindowedKVCache:
        """The cache of one sequence; `LLM(..., cache=scheme.cache)` runs on it."""
        shape = num_layers, capacity, num_kv_heads, head_dim
        if self.keys is not None and self.values is not None:
            return QuantizedKVCache(*shape, keys=self.keys, values=self.values, recent=self.recent)
        return WindowedKVCache(*shape, window=self.window or max(capacity, 1), num_sinks=self.num_sinks)


def lossy_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, scheme: KVScheme) -> np.ndarray:
    """Causal attention of a whole sequence over what `scheme.cache` would hold: q[T, H, D], k and v[T, K, D] -> [T, H, D].

    Equal to appending the tokens to the cache one at a time and letting each attend. K/V count as float32, the result has
    q's dtype.
    """
    (T, H, D), K = q.shape, k.shape[1]
    k, v = (np.asarray(x, dtype=np.float32) for x in (k, v))
    queries = np.ascontiguousarray(q.reshape(T, K, H // K, D).transpose(1, 2, 0, 3))  # [K, G, T, D]
    keys = _Read(k, scheme.keys, scheme.recent)
    scores = queries @ np.ascontiguousarray(keys.encoded.transpose(1, 2, 0))[:, None] * scale  # [K, G, T, S]
    if keys.waiting is not None:
        as_they_came = queries @ np.ascontiguousarray(k.transpose(1, 2, 0))[:, None] * scale
        scores = np.where(keys.waiting, as_they_came, scores)
    seen = window_mask(T, T, scheme.window, scheme.num_sinks)
    weights = softmax(np.where(seen, scores, -np.inf).astype(scores.dtype, copy=False))
    values = _Read(v, scheme.values, scheme.recent)
    by_head = np.ascontiguousarray(values.encoded.transpose(1, 0, 2))[:, None]  # [K, 1, S, D]
    if values.waiting is None:
        out = weights @ by_head
    else:
        out = np.where(values.waiting, 0, weights) @ by_head
        out += np.where(values.waiting, weights, 0) @ np.ascontiguousarray(v.transpose(1, 0, 2))[:, None]
    return out.transpose(2, 0, 1, 3).reshape(T, H, D).astype(q.dtype, copy=False)


class _Read:
    """K or V as read from a cache: `encoded` [T, K, D], and [T, S] True where query t still finds key s as it came."""

    def __init__(self, x: np.ndarray, codec: Codec | None, recent: int) -> None:
        self.encoded, self.waiting = x, None
        if codec is None:
            return
        T = len(x)
        ready = np.array([num_encoded(t + 1, codec.tokens_per_group, recent) for t in range(T)])
        if (ready <= np.arange(T)).any():
            self.waiting = np.arange(T) >= ready[:, None]
        last = int(ready[-1])
        self.encoded = np.concatenate([codec.decode(codec.encode(x[:last])), x[last:]])
