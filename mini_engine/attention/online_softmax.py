"""Online softmax: attention over a context that comes in parts, of which none has to be kept.

`OnlineSoftmax` is the arithmetic; `paged_attention` feeds it a paged context block by block, which is the way a kernel
goes. `paged_decode_attention` of `paged` gathers first and is the simpler truth. Sources: Milakov and Gimelshein 2018;
Kwon et al. 2023, section 4.1.
"""

from __future__ import annotations

import numpy as np

from mini_engine.attention.slots import Table, used_tokens


class OnlineSoftmax:
    """One query q[H, D] over the parts that `add` brings: the largest score so far, the sum of the weights, and the
    weighted sum of the values, [K, G, ...] each. Works in q's dtype, and in float32 at least.

    ValueError when the query heads cannot be shared evenly.
    """

    def __init__(self, q: np.ndarray, num_kv_heads: int, value_dim: int, scale: float) -> None:
        H, D = q.shape
        if num_kv_heads == 0 or H % num_kv_heads:
            raise ValueError(f"{H} query heads cannot share {num_kv_heads} key/value heads evenly")
        self.dtype = np.result_type(q.dtype, np.float32)  # half precision is too coarse to sum in
        self.scale = self.dtype.type(scale)
        self.queries = q.astype(self.dtype).reshape(num_kv_heads, H // num_kv_heads, D)
        shape = self.queries.shape[:2]
        self.top = np.full((*shape, 1), -np.inf, dtype=self.dtype)
        self.total = np.zeros((*shape, 1), dtype=self.dtype)
        self.values = np.zeros((*shape, value_dim), dtype=self.dtype)

    def add(self, k: np.ndarray, v: np.ndarray) -> None:
        """Go on with k[n, K, D] and v[n, K, Dv]; n is at least 1."""
        keys, values = k.astype(self.dtype), v.astype(self.dtype)
        scores = self.queries @ keys.transpose(1, 2, 0) * self.scale  # [K, G, n]
        top = np.maximum(self.top, scores.max(axis=-1, keepdims=True))
        shrink, weights = np.exp(self.top - top), np.exp(scores - top)
        self.total = self.total * shrink + weights.sum(axis=-1, keepdims=True)
        self.values = self.values * shrink + weights @ values.transpose(1, 0, 2)
        self.top = top

    @property
    def output(self) -> np.ndarray:
        """[H, Dv]; zeros if nothing was added."""
        out = self.values / np.where(self.total == 0, 1, self.total)
        return out.reshape(-1, out.shape[-1])

    @property
    def log_sum_exp(self) -> np.ndarray:
        """[H], natural log; -inf if nothing was added."""
        with np.errstate(divide="ignore"):
            return (self.top + np.log(self.total)).reshape(-1)


def paged_attention(
    q: np.ndarray,
    k_pool: np.ndarray,
    v_pool: np.ndarray,
    block_table: Table,
    context_len: int,
    scale: float,
    window: int | None = None,
) -> np.ndarray:
    """One query q[H, D] over the first context_len tokens of a sequence, block by block -> [H, Dv] in q's dtype.

    Nothing is gathered. `window` keeps the last tokens only. Slots outside the context and table entries behind it are
    never read. Context 0 gives zeros. ValueError as `used_tokens`, and when heads cannot be shared evenly.
    """
    P, K = k_pool.shape[1:3]
    used = used_tokens(block_table, context_len, P, len(k_pool), window)
    softmax = OnlineSoftmax(q, K, v_pool.shape[3], scale)
    for i in range(used.start // P, -(-used.stop // P)):
        offsets = slice(max(used.start - i * P, 0), min(used.stop - i * P, P))
        softmax.add(k_pool[block_table[i], offsets], v_pool[block_table[i], offsets])
    return softmax.output.astype(q.dtype)
