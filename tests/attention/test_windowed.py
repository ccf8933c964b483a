"""The cache that forgets, against attention over a cache that keeps everything and masks."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_engine import LLM, SamplingParams
from mini_engine.attention import WindowedKVCache, causal_attention, windowed_attention
from mini_engine.attention.windowed import window_mask


def random_qkv(T, H=4, K=2, D=4, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=(T, heads, D)) for heads in (H, K, K))


def attention_by_loops(q, k, v, scale, window, num_sinks):
    """From the definition: query t looks at keys s <= t that are sinks or less than `window` behind."""
    T, H, _ = q.shape
    out = np.zeros_like(q)
    for t in range(T):
        seen = [s for s in range(t + 1) if s < num_sinks or t - s < window]
        for h in range(H):
            kv = h // (H // k.shape[1])
            weights = np.exp(scale * k[seen, kv] @ q[t, h])
            out[t, h] = weights @ v[seen, kv] / weights.sum()
    return out


@settings(max_examples=40)
@given(T=st.integers(1, 20), window=st.integers(1, 24), num_sinks=st.integers(0, 6), seed=st.integers(0, 99))
def test_token_by_token_it_is_attention_through_a_mask(T, window, num_sinks, seed):
    q, k, v = random_qkv(T, seed=seed)
    expected = attention_by_loops(q, k, v, 0.5, window, num_sinks)
    masked = windowed_attention(q, k, v, 0.5, window=window, num_sinks=num_sinks)
    np.testing.assert_allclose(masked, expected, rtol=1e-9, atol=1e-12)

    cache = WindowedKVCache(1, T, 2, 4, window=window, num_sinks=num_sinks)
    for t in range(T):
        keys, values = cache.append(0, k[t : t + 1], v[t : t + 1])
        assert len(keys) == len({*range(min(t + 1, num_sinks)), *range(max(0, t + 1 - window), t + 1)})
        out = causal_attention(q[t : t + 1], keys, values, 0.5, offset=len(keys) - 1)
        np.testing.assert_allclose(out[0], expected[t], rtol=1e-9, atol=1e-12)
    assert cache.num_tokens == T


@settings(max_examples=40)
@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=8), window=st.integers(1, 9), num_sinks=st.integers(0, 4))
def test_pieces_see_the_window_of_their_first_token_and_each_other(sizes, window, num_sinks):
    k = np.arange(sum(sizes), dtype=float).reshape(-1, 1, 1)  # every token is its own number
    cache = WindowedKVCache(1, 99, 1, 1, window=window, num_sinks=num_sinks)
    start = 0
    for size in sizes:
        keys, values = cache.append(0, k[start : start + size], -k[start : start + size])
        oldest = max(0, start - window + (1 if size else 0))
        end = start + size
        assert keys.ravel().tolist() == sorted({*range(min(end, num_sinks)), *range(oldest, end)})
        np.testing.assert_array_equal(values, -keys)
        start = end
    assert cache.nbytes <= 2 * (window + num_sinks) * 8


def test_bytes_stay_bounded_and_nothing_holds_on_to_the_rest():
    cache = WindowedKVCache(2, 5000, 2, 4, window=16, num_sinks=4)
    _, k, v = random_qkv(5000)
    bound = 2 * 2 * 20 * 2 * 4 * 8
    for layer in (0, 1):
        cache.append(layer, k, v)
        for t in range(40):
            cache.append(layer, k[t : t + 1], v[t : t + 1])
    assert cache.nbytes == bound
    assert all(array.base is None for layer in cache._layers for array in layer)


def test_a_token_counts_once_every_layer_has_it():
    cache = WindowedKVCache(3, 100, 2, 4, window=2, num_sinks=1)
    _, k, v = random_qkv(5)
    for layer, counted in ((0, 0), (2, 0), (1, 5)):
        cache.append(layer, k, v)
        assert cache.num_tokens == counted
    cache.append(1, k[:1], v[:1])
    assert cache.num_tokens == 5


@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 5), (3, 5), (5, 5)])
def test_masks(T, S):
    full = window_mask(T, S, None)
    np.testing.assert_array_equal(full, np.tril(np.ones((S, S), bool))[S - T :])
    np.testing.assert_array_equal(window_mask(T, S, S), full)
    assert (window_mask(T, S, 1).sum(axis=1) == 1).all()


@pytest.mark.parametrize("options", [{"window": 0}, {"window": 2.5}, {"num_sinks": -1}])
def test_options_are_checked(options):
    (name,) = options
    with pytest.raises(ValueError, match=name):
        WindowedKVCache(1, 9, 1, 1, **options)


def test_keys_that_are_missing_are_named():
    q, k, v = random_qkv(2)
    with pytest.raises(ValueError, match="need 3 keys, found 2"):
        windowed_attention(q, k, v, 1.0, offset=1, window=2)


def test_it_runs_inside_the_engine(tiny_gqa):
    """The same text while the context fits, another one when it does not."""
    prompt = tiny_gqa.tokenizer.encode("She was")
    params = SamplingParams(temperature=0.0, max_tokens=24)

    def text(**options):
        return LLM("tiny-gqa", backend="numpy", **options).generate(prompt, params)[0].outputs[0].token_ids

    exact = text(cache="contiguous")
    total = len(prompt) + 24
    assert text(cache=partial(WindowedKVCache, window=total, num_sinks=0)) == exact
    assert text(cache=partial(WindowedKVCache, window=2, num_sinks=0)) != exact
    # A prompt of two tokens is prefilled within the window, so the definition must say the same.
    assert text(cache=partial(WindowedKVCache, window=8, num_sinks=2)) == text(
        attention=partial(windowed_attention, window=8, num_sinks=2)
    )
