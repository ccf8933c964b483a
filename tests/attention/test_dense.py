"""Dense attention against a loop over single numbers, and against torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mini_engine.attention import causal_attention, decode_attention, softmax


def attention_by_loops(q, k, v, scale, offset):
    """Straight from the definition, one number at a time."""
    T, H, D = q.shape
    group = H // k.shape[1]
    out = np.zeros((T, H, D))
    for t in range(T):
        for h in range(H):
            weights = [
                math.exp(scale * sum(q[t, h, d] * k[s, h // group, d] for d in range(D))) for s in range(offset + t + 1)
            ]
            for d in range(D):
                out[t, h, d] = sum(w * v[s, h // group, d] for s, w in enumerate(weights)) / sum(weights)
    return out


def random_qkv(T, S, H, K, D, seed=0):
    generator = np.random.default_rng(seed)
    return tuple(generator.normal(size=shape) for shape in ((T, H, D), (S, K, D), (S, K, D)))


@given(
    T=st.integers(1, 5), offset=st.integers(0, 4), extra=st.integers(0, 2), K=st.integers(1, 3), group=st.integers(1, 4),
    D=st.integers(1, 4),
)  # fmt: skip
def test_causal_attention_equals_the_definition(T, offset, extra, K, group, D):
    q, k, v = random_qkv(T, offset + T + extra, K * group, K, D)
    k[offset + T :] = v[offset + T :] = np.nan  # keys no query may see must not be read at all
    out = causal_attention(q, k, v, 0.7, offset=offset)
    np.testing.assert_allclose(out, attention_by_loops(q, k, v, 0.7, offset), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("H", "K"), [(8, 8), (9, 3), (8, 2), (8, 1)])
def test_causal_attention_equals_torch(H, K):
    import torch

    q, k, v = random_qkv(33, 33, H, K, 16)
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *(torch.from_numpy(x).transpose(0, 1) for x in (q, k, v)), is_causal=True, scale=0.25, enable_gqa=True
    ).transpose(0, 1)
    np.testing.assert_allclose(causal_attention(q, k, v, 0.25), theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("S", [1, 2, 17])
def test_decode_attention_is_the_last_row_of_causal_attention(S):
    q, k, v = random_qkv(S, S, 6, 2, 8)
    np.testing.assert_allclose(decode_attention(q[-1], k, v, 0.3), attention_by_loops(q, k, v, 0.3, 0)[-1], rtol=1e-9)


def test_decode_attention_over_no_keys_is_zero():
    q, k, v = random_qkv(1, 0, 6, 2, 8)
    assert np.array_equal(decode_attention(q[0], k, v, 1.0), np.zeros((6, 8)))


def test_no_queries_give_no_rows():
    q, k, v = random_qkv(0, 3, 4, 2, 8)
    assert causal_attention(q, k, v, 1.0, offset=3).shape == (0, 4, 8)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 2e-3), (np.float32, 1e-5), (np.float64, 1e-12)])
def test_output_has_the_dtype_of_q(dtype, tolerance):
    q, k, v = (x.astype(dtype) for x in random_qkv(4, 4, 4, 2, 8))
    out = causal_attention(q, k, v, 0.3)
    assert out.dtype == dtype
    exact = attention_by_loops(*(x.astype(np.float64) for x in (q, k, v)), 0.3, 0)
    np.testing.assert_allclose(out, exact, rtol=0, atol=tolerance)


def test_scores_that_overflow_exp_do_not_overflow_attention():
    q, k, v = random_qkv(3, 3, 2, 1, 4)
    out = causal_attention(q * 1e4, k, v, 1.0)
    assert np.isfinite(out).all()
    winner = (q[2, 0] @ k[:, 0].T).argmax()
    np.testing.assert_allclose(out[2, 0], v[winner, 0])


@pytest.mark.parametrize(
    ("shapes", "offset", "message"),
    [
        (((3, 4, 8), (3, 3, 8), (3, 3, 8)), 0, "4 query heads cannot share 3"),
        (((3, 4, 8), (3, 2, 8), (2, 2, 8)), 0, "k and v"),
        (((3, 4, 8), (3, 2, 4), (3, 2, 4)), 0, "k and v"),
        (((3, 4, 8), (2, 2, 8), (2, 2, 8)), 0, "at least 3 keys, found 2"),
        (((3, 4, 8), (5, 2, 8), (5, 2, 8)), 3, "at least 6 keys, found 5"),
        (((3, 4, 8), (5, 2, 8), (5, 2, 8)), -1, "-1 earlier tokens"),
    ],
)
def test_shapes_that_do_not_fit_are_named(shapes, offset, message):
    with pytest.raises(ValueError, match=message):
        causal_attention(*(np.zeros(shape) for shape in shapes), 1.0, offset=offset)


def test_softmax_equals_the_definition_along_any_axis():
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    for axis in (-1, 0, 1):
        expected = np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True)
        np.testing.assert_allclose(softmax(x, axis=axis), expected, rtol=1e-12)


def test_softmax_at_the_edges():
    assert np.array_equal(
        softmax(np.array([[1e4, 1e4], [-np.inf, 0.0], [-np.inf, -np.inf]])), [[0.5, 0.5], [0, 1], [0, 0]]
    )
    assert softmax(np.zeros((2, 0))).shape == (2, 0)
    assert softmax(np.zeros(3, dtype=np.float32)).dtype == np.float32
