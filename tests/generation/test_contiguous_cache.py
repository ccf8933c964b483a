"""The contiguous cache, the uncached path, and the way a learner's own parts go in."""

from __future__ import annotations

import dataclasses
import re
from functools import partial

import numpy as np
import pytest
import torch

from mini_engine.attention import causal_attention
from mini_engine.backends.contiguous import (
    CacheFullError,
    ContiguousKVCache,
    NoCache,
    make_attend,
    torch_causal_attention,
)


def rows(count: int, start: int = 0, K: int = 2, D: int = 2) -> np.ndarray:
    return np.arange(start, start + count * K * D, dtype=float).reshape(count, K, D)


@pytest.fixture(params=["numpy", "torch"])
def flavour(request):
    """How to reserve memory, and how to make an array, in each library."""
    if request.param == "numpy":
        return np.empty, np.asarray
    return partial(torch.empty, dtype=torch.float64), torch.as_tensor


def test_append_returns_everything_so_far(history, flavour):
    empty, wrap = flavour
    cache = ContiguousKVCache(history.model().spec, 6, empty=empty)
    assert (cache.num_tokens, cache.capacity, cache.nbytes) == (0, 6, 2 * 2 * 6 * 2 * 2 * 8)
    seen = np.empty((0, 2, 2))
    for count in (3, 1, 0, 2):
        new = rows(count, start=10 * len(seen))
        seen = np.concatenate([seen, new])
        for layer in (0, 1):
            k, v = cache.append(layer, wrap(new + layer), wrap(-new))
            np.testing.assert_array_equal(np.asarray(k), seen + layer)
            np.testing.assert_array_equal(np.asarray(v), -seen)
    assert cache.num_tokens == 6


def test_a_token_counts_once_every_layer_has_it(history):
    cache = ContiguousKVCache(history.model().spec, 6)
    cache.append(0, rows(3), rows(3))
    assert cache.num_tokens == 0
    cache.append(1, rows(3), rows(3))
    assert cache.num_tokens == 3


def test_append_gives_views_not_copies(history):
    cache = ContiguousKVCache(history.model().spec, 6)
    first, _ = cache.append(0, rows(2), rows(2))
    second, _ = cache.append(0, rows(1), rows(1))
    assert np.shares_memory(first, second)
    tensors = ContiguousKVCache(history.model().spec, 6, empty=torch.empty)
    first, _ = tensors.append(0, torch.ones(2, 2, 2), torch.ones(2, 2, 2))
    second, _ = tensors.append(0, torch.ones(1, 2, 2), torch.ones(1, 2, 2))
    assert first.data_ptr() == second.data_ptr()


def test_a_full_cache_says_so_and_stays_as_it_was(history, flavour):
    empty, wrap = flavour
    cache = ContiguousKVCache(history.model().spec, 3, empty=empty)
    for layer in (0, 1):
        cache.append(layer, wrap(rows(2)), wrap(rows(2)))
    with pytest.raises(CacheFullError, match="holds 3 tokens, 2 of them in use: 2 more do not fit"):
        cache.append(0, wrap(rows(2)), wrap(rows(2)))
    assert cache.num_tokens == 2
    k, _ = cache.append(0, wrap(rows(1, start=90)), wrap(rows(1)))
    np.testing.assert_array_equal(np.asarray(k), np.concatenate([rows(2), rows(1, start=90)]))


def test_no_cache_keeps_nothing():
    cache = NoCache()
    k, v = rows(3), rows(3, start=50)
    assert cache.append(0, k, v) == (k, v)
    assert (cache.num_tokens, cache.nbytes) == (0, 0)


@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (9, 3), (8, 1)], ids=str)
@pytest.mark.parametrize(("T", "offset"), [(1, 0), (1, 1), (1, 37), (2, 0), (17, 0), (2, 1), (5, 32)])
def test_torch_attention_equals_numpys(heads, T, offset):
    H, K = heads
    rng = np.random.default_rng(T + offset)
    q, k, v = (rng.normal(size=(n, h, 8)) for n, h in ((T, H), (offset + T, K), (offset + T, K)))
    expected = causal_attention(q, k, v, 0.3, offset)
    wide = torch.as_tensor(np.concatenate([q, q], axis=1))[:, :H]  # q is a slice of a larger tensor in the model
    got = torch_causal_attention(wide, torch.as_tensor(k), torch.as_tensor(v), 0.3, offset)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_arrays_of_another_shape_are_refused_and_nothing_is_stored(history, flavour):
    """NumPy and torch would repeat a single token or head as often as needed."""
    empty, wrap = flavour
    cache = ContiguousKVCache(history.model().spec, 9, empty=empty)
    cache.append(0, wrap(rows(2)), wrap(rows(2)))
    for k, v in (
        (rows(3), rows(1)),
        (rows(3), rows(3, K=1)),
        (rows(3, K=1), rows(3)),
        (rows(3), rows(2)),
        (rows(3), rows(3, D=1)),
    ):
        with pytest.raises(ValueError, match=r"must have shape \(3, 2, 2\), found \(3, "):
            cache.append(0, wrap(k), wrap(v))
    keys, values = cache.append(0, wrap(rows(0)), wrap(rows(0)))
    assert np.array_equal(np.asarray(keys), rows(2))
    assert np.array_equal(np.asarray(values), rows(2))


# -- a learner's own parts ----------------------------------------------------------------------------------------------


class ListCache:
    """The simplest cache there is: a list per layer."""

    made: list[tuple[int, ...]]

    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        type(self).made = [*getattr(type(self), "made", []), (num_layers, capacity, num_kv_heads, head_dim)]
        self.k: list[list] = [[] for _ in range(num_layers)]
        self.v: list[list] = [[] for _ in range(num_layers)]

    def append(self, layer, k, v):
        assert isinstance(k, np.ndarray)
        self.k[layer] += list(k)
        self.v[layer] += list(v)
        return np.array(self.k[layer]), np.array(self.v[layer])


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_an_own_cache_class_goes_in(history, backend):
    class Mine(ListCache):
        pass

    attend = make_attend(history.model(backend), 9, Mine)
    assert Mine.made == [(2, 9, 2, 2)]
    wrap = history.model(backend).wrap
    q = wrap(np.zeros((2, 4, 2)))
    attend(0, q, wrap(rows(2)), wrap(rows(2)))
    out = attend(0, q[:1], wrap(rows(1, start=100)), wrap(rows(1, start=100)))
    assert type(out) is type(q)
    assert out.dtype == q.dtype
    np.testing.assert_allclose(np.asarray(out)[0, 0], np.concatenate([rows(2), rows(1, start=100)]).mean(axis=0)[0])


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_an_own_attention_function_goes_in(history, backend):
    calls = []

    def mine(q, k, v, scale, offset):
        calls.append((type(q), type(k), q.shape, k.shape, scale, offset))
        return causal_attention(q, k, v, scale, offset)

    wrap = history.model(backend).wrap
    attend = make_attend(history.model(backend), 9, attention=mine)
    for count in (3, 1):
        q = wrap(np.ones((count, 4, 2)))
        attend(0, q, wrap(rows(count)), wrap(rows(count)))
    shapes = [((3, 4, 2), (3, 2, 2), 0), ((1, 4, 2), (4, 2, 2), 3)]
    assert calls == [(np.ndarray, np.ndarray, q, k, pytest.approx(2**-0.5), offset) for q, k, offset in shapes]


def test_an_own_attention_of_the_wrong_shape_is_named(history):
    attend = make_attend(history.model(), 9, attention=lambda q, k, v, scale, offset: q[0])
    with pytest.raises(ValueError, match=r"attention gave shape \(4, 2\) in layer 0: must be \(1, 4, 2\)"):
        attend(0, np.zeros((1, 4, 2)), rows(1), rows(1))


BROKEN = {
    "nothing": (lambda k, v: None, lambda K: "NoneType"),
    "keys alone": (lambda k, v: k, lambda K: f"(3, {K}, 2)"),
    "three arrays": (lambda k, v: (k, v, v), lambda K: f"(3, {K}, 2), (3, {K}, 2), (3, {K}, 2)"),
    "lists": (lambda k, v: (k.tolist(), v.tolist()), lambda K: "list, list"),
    "a value short": (lambda k, v: (k, v[1:]), lambda K: f"(3, {K}, 2), (2, {K}, 2)"),
    "heads joined": (lambda k, v: (k.reshape(3, -1), v.reshape(3, -1)), lambda K: f"(3, {2 * K}), (3, {2 * K})"),
    "heads repeated": (lambda k, v: (k.repeat(2, 1), v.repeat(2, 1)), lambda K: f"(3, {2 * K}, 2), (3, {2 * K}, 2)"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("heads", [2, 1], ids=["grouped", "latent"])
def test_an_own_cache_that_returns_something_else_is_named(history, heads, name):
    give, found = BROKEN[name]

    class Broken(ListCache):
        def append(self, layer, k, v):
            return give(*super().append(layer, k, v))

    model = history.model()
    if heads == 1:  # a latent is one head, here of 1 + 1 numbers
        sizes = {"kv_lora_rank": 1, "qk_rope_head_dim": 1, "qk_nope_head_dim": 1, "v_head_dim": 2}
        model.spec = dataclasses.replace(model.spec, num_key_value_heads=4, **sizes)
    attend = make_attend(model, 9, Broken)
    message = f"append of Broken gave {found(heads)} in layer 1: must be two arrays, the keys and the values"
    with pytest.raises(ValueError, match=re.escape(message)):
        attend(1, np.zeros((3, 4, 2)), rows(3, K=heads), rows(3, K=heads))


def test_an_unknown_cache_names_the_known_ones(history):
    with pytest.raises(ValueError, match="cache='ring': must be one of contiguous, none"):
        make_attend(history.model(), 9, "ring")
