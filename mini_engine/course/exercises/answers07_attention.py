"""Lesson 07, attention over blocks: right answers written another way, and wrong ones that people write."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mini_engine.attention import decode_attention, gather, paged_attention

Array = np.ndarray


def by_loops(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    """Token by token, each with a weight of its own."""
    P, K, _ = k_pool.shape[1:]
    out = np.zeros((len(q), v_pool.shape[3]), dtype=q.dtype)
    for h, query in enumerate(q):
        head, top, total = h // (len(q) // K), -math.inf, 0.0
        for at in range(context_len):
            block, offset = table[at // P], at % P
            score = float(query @ k_pool[block, offset, head]) * scale
            new_top = max(top, score)
            shrink, weight = math.exp(top - new_top), math.exp(score - new_top)
            out[h] = out[h] * shrink + weight * v_pool[block, offset, head]
            total, top = total * shrink + weight, new_top
        if total:
            out[h] /= total
    return out


def in_two_passes(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    """Scores of all blocks first, a few numbers a token; then the values."""
    P, K, D = k_pool.shape[1:]
    queries = q.reshape(K, -1, D)
    sizes = [min(P, context_len - start) for start in range(0, context_len, P)]
    if not sizes:
        return np.zeros((len(q), v_pool.shape[3]))
    scores = [np.einsum("kgd,nkd->kgn", queries, k_pool[block, :n]) * scale for block, n in zip(table, sizes)]
    top = np.max([part.max(axis=2) for part in scores], axis=0)[..., None]
    weights = [np.exp(part - top) for part in scores]
    out = sum(np.einsum("kgn,nkd->kgd", w, v_pool[block, :n]) for w, block, n in zip(weights, table, sizes))
    return (out / sum(w.sum(axis=2, keepdims=True) for w in weights)).reshape(len(q), -1)


def by_parts(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    """Each block's own attention, mixed by the logarithm of its sum."""
    P, K, _ = k_pool.shape[1:]
    out, lse = np.zeros((len(q), v_pool.shape[3])), np.full(len(q), -np.inf)
    for i, start in enumerate(range(0, context_len, P)):
        n = min(P, context_len - start)
        k, v = (np.repeat(pool[table[i], :n], len(q) // K, axis=1) for pool in (k_pool, v_pool))
        scores = np.einsum("hd,nhd->hn", q, k) * scale
        top = scores.max(axis=1, keepdims=True)
        weights = np.exp(scores - top)
        part_lse = top[:, 0] + np.log(weights.sum(axis=1))
        part = np.einsum("hn,nhd->hd", weights, v) / weights.sum(axis=1, keepdims=True)
        both = np.logaddexp(lse, part_lse)
        out = out * np.exp(lse - both)[:, None] + part * np.exp(part_lse - both)[:, None]
        lse = both
    return out


def one_run(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    """Reads the pool from the first block on, as if the sequence were in one piece."""
    first = int(table[0]) if context_len else 0
    run = (np.arange(len(table)) + first) % len(k_pool)
    return paged_attention(q, k_pool, v_pool, run, context_len, scale)


def whole_blocks(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    P = k_pool.shape[1]
    return paged_attention(q, k_pool, v_pool, table, -(-context_len // P) * P, scale)


def hides_scores_only(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    """A weight of 0 for each unused slot, times NaN, is NaN."""
    P, K, D = k_pool.shape[1:]
    blocks = list(table[: -(-context_len // P)])
    if not blocks:
        return np.zeros((len(q), v_pool.shape[3]))
    scores = np.einsum("kgd,nkd->kgn", q.reshape(K, -1, D), k_pool[blocks].reshape(-1, K, D)) * scale
    scores[..., context_len:] = -np.inf
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    return np.einsum("kgn,nkd->kgd", weights, v_pool[blocks].reshape(-1, K, v_pool.shape[3])).reshape(len(q), -1)


def whole_table(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    """Gathers every block that the table names, and cuts afterwards."""
    k, v = (pool[np.asarray(table)].reshape(-1, *pool.shape[2:])[:context_len] for pool in (k_pool, v_pool))
    return decode_attention(q, k, v, scale)


def gathers_all(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    k, v = (gather(pool, table, context_len) for pool in (k_pool, v_pool))
    return decode_attention(q, k, v, scale)


def _online(q: Any, k_pool: Any, v_pool: Any, table: Any, context_len: int, scale: float, **wrong: float) -> Array:
    """The reference's steps, with one of them left out."""
    P, K, D = k_pool.shape[1:]
    queries = q.reshape(K, -1, D)
    shape = (*queries.shape[:2], 1)
    top, total, out = np.full(shape, -np.inf), np.zeros(shape), np.zeros((*shape[:2], v_pool.shape[3]))
    top = np.full(shape, float(wrong.get("top_starts_at", -np.inf)))
    for i, start in enumerate(range(0, context_len, P)):
        n = min(P, context_len - start)
        scores = np.einsum("kgd,nkd->kgn", queries, k_pool[table[i], :n]) * scale
        block_top = scores.max(axis=2, keepdims=True)
        new_top = block_top if wrong.get("top_of_block") else np.maximum(top, block_top)
        with np.errstate(all="ignore"):
            shrink = np.exp(top - new_top)
            weights = np.exp(scores if wrong.get("no_top") else scores - new_top)
        if wrong.get("no_shrink") or wrong.get("no_top"):
            shrink = np.ones(shape)
        total = total * (np.ones(shape) if wrong.get("sum_not_shrunk") else shrink) + weights.sum(axis=2, keepdims=True)
        out = out * shrink + np.einsum("kgn,nkd->kgd", weights, v_pool[table[i], :n])
        top = new_top
    with np.errstate(all="ignore"):
        return (out / (total if wrong.get("no_empty") else np.where(total == 0, 1, total))).reshape(len(q), -1)


def averages_blocks(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    """The mean of what each block would give alone."""
    P = k_pool.shape[1]
    parts = [
        paged_attention(q, k_pool, v_pool, table[i:], min(P, context_len - i * P), scale)
        for i in range(-(-context_len // P))
    ]
    return np.mean(parts, axis=0) if parts else np.zeros((len(q), v_pool.shape[3]))


def heads_in_turn(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    """Query head h reads head h % K."""
    K = k_pool.shape[2]
    order = np.argsort(np.arange(len(q)) % K, kind="stable")
    out = np.empty((len(q), v_pool.shape[3]))
    out[order] = paged_attention(q[order], k_pool, v_pool, table, context_len, scale)
    return out


def no_scale(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    return paged_attention(q, k_pool, v_pool, table, context_len, 1.0)


def first_block_only(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    return paged_attention(q, k_pool, v_pool, table, min(context_len, k_pool.shape[1]), scale)


def full_blocks_only(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    P = k_pool.shape[1]
    return paged_attention(q, k_pool, v_pool, table, max(context_len // P * P, min(context_len, P)), scale)


def _wrong(**wrong: float) -> Any:
    def run(q: Any, k_pool: Any, v_pool: Any, table: Any, context_len: int, scale: float) -> Array:
        return _online(q, k_pool, v_pool, table, context_len, scale, **wrong)

    return run


no_shrink, sum_not_shrunk = _wrong(no_shrink=True), _wrong(sum_not_shrunk=True)
no_top, top_of_block = _wrong(no_top=True), _wrong(top_of_block=True)
top_starts_at_zero, top_starts_at_minus_1000 = _wrong(top_starts_at=0), _wrong(top_starts_at=-1000)
no_empty = _wrong(no_empty=True)


def _at_most(num_blocks: int) -> Any:
    def run(q: Any, k_pool: Any, v_pool: Any, table: Any, context_len: int, scale: float) -> Array:
        return paged_attention(q, k_pool, v_pool, table, min(context_len, num_blocks * k_pool.shape[1]), scale)

    return run


four_blocks_at_most, sixteen_blocks_at_most = _at_most(4), _at_most(16)


def stops_at_zero(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    """A 0 in the table is taken for its end."""
    ends = np.flatnonzero(np.asarray(table) == 0)
    size = int(ends[0]) if ends.size else len(table)
    return paged_attention(q, k_pool, v_pool, table, min(context_len, size * k_pool.shape[1]), scale)


def two_heads_always(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    """Two K/V heads, as in the case that was looked at."""
    heads = np.arange(len(q)) * 2 // len(q) % k_pool.shape[2]
    return paged_attention(q, k_pool[:, :, heads], v_pool[:, :, heads], table, context_len, scale)


def nan_to_zero(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    return np.asarray(paged_attention(q, np.nan_to_num(k_pool), np.nan_to_num(v_pool), table, context_len, scale))


def nan_to_zero_in_a_block(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    """Unused slots become zeros, and a broken token does as well."""
    P = k_pool.shape[1]
    used = [int(block) for block in table[: -(-context_len // P)]]
    k, v = (np.nan_to_num(np.stack([pool[block] for block in used] or [pool[0]])) for pool in (k_pool, v_pool))
    return paged_attention(q, k, v, range(len(used)), context_len, scale)


def slices_then_all(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    """Each block on its own; then they are put together after all."""
    P = k_pool.shape[1]
    sizes = [min(P, context_len - start) for start in range(0, context_len, P)]
    k, v = (
        np.concatenate([pool[:0].reshape(0, *pool.shape[2:]), *(pool[block, :n] for block, n in zip(table, sizes))])
        for pool in (k_pool, v_pool)
    )
    return decode_attention(q, k, v, scale)


def in_float32(q: Array, k_pool: Array, v_pool: Array, table: Any, context_len: int, scale: float) -> Array:
    k, v = (pool.astype(np.float32) for pool in (k_pool, v_pool))
    return paged_attention(q.astype(np.float32), k, v, table, context_len, scale).astype(q.dtype)
