"""Split-KV attention: whatever the cut, the parts put together are the whole."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mini_engine.attention import combine_partials, decode_attention, split_kv_partials


def random_qkv(S, K, group, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(K * group, 4)), rng.normal(size=(S, K, 4)), rng.normal(size=(S, K, 3))


@given(
    S=st.integers(0, 12), num_splits=st.integers(1, 15), K=st.integers(1, 2), group=st.integers(1, 3),
    seed=st.integers(0, 99), shift=st.sampled_from([0.0, 300.0]),
)  # fmt: skip
def test_the_parts_combined_are_the_whole(S, num_splits, K, group, seed, shift):
    q, k, v = random_qkv(S, K, group, seed)
    k = k + shift  # scores far from 0: exp of them alone would overflow, or be 0 in every part
    parts, lse = split_kv_partials(q, k, v, 0.7, num_splits)
    assert parts.shape == (num_splits, K * group, 3)
    assert lse.shape == (num_splits, K * group)
    whole, whole_lse = combine_partials(parts, lse)
    np.testing.assert_allclose(whole, decode_attention(q, k, v, 0.7), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(whole_lse, split_kv_partials(q, k, v, 0.7, 1)[1][0], rtol=1e-9)


def test_log_sum_exp_is_the_natural_logarithm_of_the_sum():
    q, k, v = random_qkv(5, 2, 2)
    _, lse = split_kv_partials(q, k, v, 0.5, 2)
    for split, tokens in enumerate([range(3), range(3, 5)]):
        for h in range(4):
            expected = math.log(sum(math.exp(0.5 * float(q[h] @ k[s, h // 2])) for s in tokens))
            assert lse[split, h] == pytest.approx(expected, rel=1e-12)


def test_an_empty_part_counts_for_nothing_whatever_it_holds():
    q, k, v = random_qkv(2, 1, 2)
    parts, lse = split_kv_partials(q, k, v, 1.0, 4)
    assert np.isneginf(lse[2:]).all()
    assert not parts[2:].any()
    parts[2:] = np.nan  # as in memory that was never written
    np.testing.assert_allclose(combine_partials(parts, lse)[0], decode_attention(q, k, v, 1.0))


def test_nothing_but_empty_parts_is_zero():
    for num_splits in (0, 1, 3):
        whole, lse = combine_partials(np.full((num_splits, 2, 3), np.nan), np.full((num_splits, 2), -np.inf))
        assert np.array_equal(whole, np.zeros((2, 3)))
        assert np.isneginf(lse).all()


def test_some_first_and_the_rest_later_is_the_same():
    q, k, v = random_qkv(11, 2, 3)
    parts, lse = split_kv_partials(q, k, v, 1.0, 5)
    whole, whole_lse = combine_partials(parts, lse)
    first = combine_partials(parts[:3], lse[:3])
    rest = combine_partials(parts[3:], lse[3:])
    again, again_lse = combine_partials(*(np.stack(both) for both in zip(first, rest)))
    np.testing.assert_allclose(again, whole, rtol=1e-12)
    np.testing.assert_allclose(again_lse, whole_lse, rtol=1e-12)


def test_half_precision_is_summed_in_float32():
    q, k, v = (x.astype(np.float16) for x in random_qkv(9, 1, 2))
    parts, lse = split_kv_partials(q, k, v, 1.0, 2)
    assert parts.dtype == lse.dtype == np.float32


@pytest.mark.parametrize(
    ("shapes", "num_splits", "message"),
    [
        (((3, 4), (5, 2, 4), (5, 2, 4)), 1, "3 query heads cannot share 2"),
        (((4, 4), (5, 2, 3), (5, 2, 4)), 1, "k and v"),
        (((4, 4), (5, 2, 4), (4, 2, 4)), 1, "k and v"),
        (((4, 4), (5, 2, 4), (5, 2, 4)), 0, "num_splits=0"),
    ],
)
def test_shapes_that_do_not_fit_are_named(shapes, num_splits, message):
    with pytest.raises(ValueError, match=message):
        split_kv_partials(*(np.zeros(shape) for shape in shapes), 1.0, num_splits)
    with pytest.raises(ValueError, match="lse must have"):
        combine_partials(np.zeros((2, 3, 4)), np.zeros((2, 4)))
