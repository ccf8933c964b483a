"""Paged decode attention against dense attention over the same tokens: any blocks, anything in the slots that are nobody's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mini_engine.attention import context_slots, paged_decode_attention


def one_number_at_a_time(q, keys, values, scale):
    """From the definition: q[H, D], keys and values as lists of [K, D] rows."""
    out = np.zeros_like(q)
    for h in range(len(q)):
        kv = h // (len(q) // len(keys[0])) if keys else 0
        weights = [math.exp(scale * float(q[h] @ key[kv])) for key in keys]
        for weight, value in zip(weights, values):
            out[h] += weight / sum(weights) * value[kv]
    return out


def paged(lengths, P, K, D, rng, spare=2):
    """Tokens of each sequence, and pools that hold them in random blocks, NaN everywhere else."""
    needed = [-(-n // P) for n in lengths]
    pools = [np.full((sum(needed) + spare, P, K, D), np.nan) for _ in range(2)]
    free = rng.permutation(sum(needed) + spare).tolist()
    tables = np.full((len(lengths), max(needed) + 1), 2**31 - 1, dtype=np.int32)
    tokens = [[rng.normal(size=(n, K, D)) for _ in range(2)] for n in lengths]
    for row, length in enumerate(lengths):
        for at in range(length):
            if at % P == 0:
                tables[row, at // P] = free.pop()
            for pool, x in zip(pools, tokens[row]):
                pool[tables[row, at // P], at % P] = x[at]
    return tokens, pools, tables


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=4), P=st.sampled_from([1, 2, 4, 5]), K=st.integers(1, 2),
    group=st.integers(1, 3), window=st.none() | st.integers(1, 10), seed=st.integers(0, 2**16),
)  # fmt: skip
def test_it_equals_the_definition_wherever_the_blocks_lie(lengths, P, K, group, window, seed):
    rng = np.random.default_rng(seed)
    tokens, pools, tables = paged(lengths, P, K, 3, rng)
    q = rng.normal(size=(len(lengths), K * group, 3))
    out = paged_decode_attention(q, *pools, tables, np.array(lengths, np.int32), 0.6, window=window)
    for row, (keys, values) in enumerate(tokens):
        last = slice(0 if window is None else max(0, len(keys) - window), None)
        expected = one_number_at_a_time(q[row], list(keys[last]), list(values[last]), 0.6)
        np.testing.assert_allclose(out[row], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 2e-3), (np.float32, 1e-5)])
def test_output_has_the_dtype_of_q_and_values_may_have_a_size_of_their_own(dtype, tolerance):
    rng = np.random.default_rng(0)
    _tokens, (k_pool, v_pool), tables = paged([5], 2, 1, 4, rng)
    q = rng.normal(size=(1, 2, 4))
    exact = paged_decode_attention(q, k_pool, v_pool, tables, np.array([5]), 0.5)
    out = paged_decode_attention(
        q.astype(dtype), k_pool.astype(dtype), v_pool[..., :3].astype(dtype), tables, np.array([5]), 0.5
    )
    assert out.dtype == dtype
    np.testing.assert_allclose(out, exact[..., :3], atol=tolerance)


def test_a_window_begins_at_the_token_it_should():
    """Window w keeps exactly the last w tokens: the weights of equal keys tell how many were read."""
    pool = np.zeros((3, 2, 1, 1))
    values = np.arange(6.0).reshape(3, 2, 1, 1)
    for window, expected in [(1, 4), (2, 3.5), (3, 3), (5, 2), (99, 2), (None, 2)]:
        out = paged_decode_attention(np.ones((1, 1, 1)), pool, values, np.array([[0, 1, 2]]), [5], 1.0, window=window)
        assert out.item() == expected, window


def test_blocks_before_the_window_need_not_exist():
    out = paged_decode_attention(
        np.ones((1, 1, 1)), np.zeros((1, 2, 1, 1)), np.ones((1, 2, 1, 1)), np.array([[-1, 77, 0]]), [5], 1.0, window=1
    )
    assert out.item() == 1


def test_context_slots_are_in_the_order_of_the_tokens():
    blocks, slots = context_slots(np.array([7, 3, 9]), 5, 2, 10)
    assert (blocks.tolist(), slots.tolist()) == ([7, 7, 3, 3, 9], [0, 1, 0, 1, 0])
    assert [len(x) for x in context_slots(np.array([], dtype=np.int32), 0, 2, 10)] == [0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context_lens": [5]}, "a context of 5 tokens, and its block table has room for 4"),
        ({"context_lens": [-1]}, "a context of -1 tokens"),
        ({"context_lens": [1, 2]}, "must agree on B"),
        ({"block_tables": np.array([[0, 2]])}, "token 2 lies in block 2, and the pool has blocks 0 to 1"),
        ({"block_tables": np.array([[-1, 0]])}, "token 0 lies in block -1"),
        ({"window": 0}, "window=0"),
        ({"v_pool": np.zeros((3, 2, 1, 1))}, "both pools"),
        ({"q": np.ones((1, 1))}, "must agree"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    right = {
        "q": np.ones((1, 1, 1)), "k_pool": np.zeros((2, 2, 1, 1)), "v_pool": np.zeros((2, 2, 1, 1)),
        "block_tables": np.array([[0, 1]]), "context_lens": [4], "scale": 1.0,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        paged_decode_attention(**{**right, **change})
