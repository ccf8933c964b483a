"""A cache that forgets: the first tokens, the last ones, and nothing in between.

A sliding window bounds the bytes however long the text gets. Every softmax must put its weight somewhere, and models learn
to put what they do not need on the first tokens; a window that drops those breaks them, which a few kept first tokens
(attention sinks) mend. What is outside is gone: sinks keep the text fluent, not what it said.
Source: Beltagy et al. 2020 (windows), Xiao et al. 2024 (StreamingLLM).

Keys keep the positions they were rotated for. StreamingLLM counts positions inside the cache instead, which lets it run
past a model's context; here the context stays the limit.
"""

from __future__ import annotations

import numpy as np

from mini_engine.arguments import count
from mini_engine.attention.dense import check_pair, softmax


class WindowedKVCache:
    """K and V of the first `num_sinks` tokens and the last `window` (the newest included) of one sequence.

    A decoded token sees exactly those. Tokens that come together, as a prompt does, see each other: query i of them sees
    up to i tokens more than the window, and only then is all but the window dropped. `capacity` is not needed: the cache
    never fills. Raises ValueError for a window below 1 or fewer than 0 sinks.
    """

    def __init__(
        self,
        num_layers: int,
        capacity: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        window: int = 256,
        num_sinks: int = 4,
    ) -> None:
        self.window, self.num_sinks = count("window", window), count("num_sinks", num_sinks, minimum=0)
        nothing = np.zeros((0, num_kv_heads, head_dim), dtype=np.float32)
        self._layers: list[tuple[np.ndarray, ...]] = [(nothing, nothing)] * num_layers
        self._lengths = [0] * num_layers

    @property
    def num_tokens(self) -> int:
        """Tokens that every layer has been given, kept or not."""
        return min(self._lengths)

    @property
    def nbytes(self) -> int:
        """Bytes in use: at most those of num_sinks + window tokens, however many were given."""
        return sum(array.nbytes for layer in self._layers for array in layer)

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Store k[T, K, D] and v[T, K, D]; returns what the T tokens may look at, themselves last: [S, K, D] each."""
        check_pair(k, v)
        older = self.window - min(len(k), 1)  # the first of the T tokens is itself one of its window
        keys, values = (np.concatenate([self._kept(old, older), new]) for old, new in zip(self._layers[layer], (k, v)))
        self._layers[layer] = tuple(self._kept(x, self.window) for x in (keys, values))
        self._lengths[layer] += len(k)
        return keys, values

    def _kept(self, x: np.ndarray, num_last: int) -> np.ndarray:
        """The sinks in x and the last `num_last` of the tokens after them."""
        sinks, others = x[: self.num_sinks], x[self.num_sinks :]
        # concatenate copies: a view would hold on to every token that was let go
        return np.concatenate([sinks, others[max(0, len(others) - num_last) :]])


def window_mask(num_queries: int, num_keys: int, window: int | None, num_sinks: int = 0) -> np.ndarray:
    """[T, S] True where a query may look; the queries are the last T of S tokens. No window: at itself and all before it."""
    queries, keys = np.arange(num_keys - num_queries, num_keys)[:, None], np.arange(num_keys)
    causal = keys <= queries
    return causal if window is None else causal & ((keys > queries - window) | (keys < num_sinks))


def windowed_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, offset: int = 0, *, window: int, num_sinks: int = 0
) -> np.ndarray:
    """Attention in which every query sees its own window and the sinks: q[T, H, D], k[S, K, D], v[S, K, D] -> [T, H, D].

    The definition, over a cache that keeps everything; give it to `LLM(..., attention=...)` with window and num_sinks
    bound. S = offset + T. A window of S or more gives `causal_attention`.
    """
    (T, H, D), K = q.shape, k.shape[1]
    if len(k) != offset + T:
        raise ValueError(f"{T} queries after {offset} earlier tokens need {offset + T} keys, found {len(k)}")
    queries = q.reshape(T, K, H // K, D).transpose(1, 2, 0, 3)  # [K, G, T, D]
    scores = queries @ k.transpose(1, 2, 0)[:, None] * scale  # [K, G, T, S]
    weights = softmax(np.where(window_mask(T, len(k), window, num_sinks), scores, -np.inf))
    return (weights @ v.transpose(1, 0, 2)[:, None]).transpose(2, 0, 1, 3).reshape(T, H, D).astype(q.dtype)
