"""Attention over blocks against dense attention, in pools where everything that must not be read is NaN."""

from __future__ import annotations

import numpy as np
import pytest

from mini_engine.attention import (
    decode_attention,
    gather,
    paged_attention,
    slot_mapping,
    write_kv,
)

N, K, D = 12, 2, 8
TABLE = [7, 3, 11, 1, 5]


def poisoned(length, block_size, dtype=np.float64, table=TABLE):
    """K and V of `length` tokens, and pools that hold NaN everywhere else."""
    rng = np.random.default_rng(length)
    k, v = rng.normal(size=(2, length, K, D)).astype(dtype)
    k_pool, v_pool = np.full((2, N, block_size, K, D), np.nan, dtype=dtype)
    write_kv(k, v, k_pool, v_pool, slot_mapping(table, range(length), block_size))
    return k, v, k_pool, v_pool


@pytest.mark.parametrize("heads", [2, 4, 6])
@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
def test_paged_equals_dense(heads, block_size):
    q = np.random.default_rng(1).normal(size=(heads, D)) * 5
    for length in (0, 1, block_size - 1, block_size, block_size + 1, 2 * block_size + 1, 5 * block_size):
        if length > 5 * block_size:
            continue
        k, v, k_pool, v_pool = poisoned(length, block_size)
        got = paged_attention(q, k_pool, v_pool, [*TABLE, 0, 99], length, 0.3)
        np.testing.assert_allclose(got, decode_attention(q, k, v, 0.3), rtol=0, atol=1e-12)
        for pool, values in ((k_pool, k), (v_pool, v)):
            assert np.array_equal(gather(pool, TABLE, length), values)


@pytest.mark.parametrize("window", [1, 3, 4, 5, 17, 40])
def test_a_window_keeps_the_last_tokens_and_reads_nothing_before_it(window):
    q = np.random.default_rng(2).normal(size=(4, D))
    k, v, k_pool, v_pool = poisoned(18, 4)
    for position in range(max(0, 18 - window)):
        block, offset = TABLE[position // 4], position % 4
        k_pool[block, offset] = v_pool[block, offset] = np.nan
    got = paged_attention(q, k_pool, v_pool, TABLE, 18, 0.3, window=window)
    np.testing.assert_allclose(got, decode_attention(q, k[-window:], v[-window:], 0.3), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_output_has_the_type_of_q_and_large_scores_do_not_overflow(dtype):
    k, v, k_pool, v_pool = poisoned(9, 4, dtype)
    q = np.full((4, D), 300, dtype=dtype)
    got = paged_attention(q, k_pool, v_pool, TABLE, 9, 1.0)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, decode_attention(q, k, v, 1.0), rtol=8 * np.finfo(dtype).eps)


def test_slots_are_int64_and_padding_stays_padding():
    table = np.array([2**27 + 5, 9], np.int32)
    slots = slot_mapping(table, [0, 15, 16, -1], 16)
    assert slots.dtype == np.int64
    assert slots.tolist() == [(2**27 + 5) * 16, (2**27 + 5) * 16 + 15, 144, -1]
    assert slot_mapping([], [-1], 16).tolist() == [-1]
    assert slot_mapping([], [], 16).dtype == np.int64
    with pytest.raises(IndexError):
        slot_mapping([4, 5], [32], 16)


def test_a_wrong_shape_is_refused_before_anything_is_stored():
    k_pool, v_pool = np.full((2, N, 4, K, D), np.nan)
    k, slots = np.ones((2, K, D)), np.array([4, 5])
    for wrong in (np.ones(D), np.ones((1, K, D)), np.ones((2, 1, D)), np.ones((2, K, 1)), np.ones((3, K, D))):
        for pair in ((wrong, k), (k, wrong)):
            with pytest.raises(ValueError, match="has shape"):
                write_kv(*pair, k_pool, v_pool, slots)
    assert np.isnan(k_pool).all()
    assert np.isnan(v_pool).all()
    write_kv(k[:0], k[:0], k_pool, v_pool, slots[:0])
    write_kv(k, 2 * k, k_pool, v_pool, np.array([-1, 5]))
    assert np.argwhere(~np.isnan(k_pool[..., 0, 0])).tolist() == [[1, 1]]
    assert v_pool[1, 1].tolist() == (2 * k[0]).tolist()


def test_heads_that_cannot_be_shared_evenly_are_refused():
    _, _, k_pool, v_pool = poisoned(5, 4)
    with pytest.raises(ValueError, match="3 query heads cannot share 2"):
        paged_attention(np.ones((3, D)), k_pool, v_pool, TABLE, 5, 1.0)


def test_what_a_context_needs_must_be_there():
    """One guard for all who look a token up: the window, the length, and blocks that the pool does not have."""
    _, _, k_pool, v_pool = poisoned(5, 4)
    q = np.ones((2, D))
    for table, length, window, message in (
        ([7, -1], 5, None, "token 4 lies in block -1"),
        ([7, N], 8, 3, f"token 5 lies in block {N}"),
        ([7, 3], 9, None, "a context of 9 tokens, and its block table has room for 8"),
        ([7, 3], -3, None, "a context of -3 tokens"),
        ([7, 3], 6, 0, "window=0"),
    ):
        with pytest.raises(ValueError, match=message):
            paged_attention(q, k_pool, v_pool, table, length, 1.0, window)
        with pytest.raises(ValueError, match=message):
            gather(k_pool, table, length, window)
    with pytest.raises(ValueError, match="position 3 lies in block -2"):
        slot_mapping([-2], [-1, 3], 16)
