"""The quantised cache: what it hands back, what it holds, and what it refuses."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from mini_engine import LLM, SamplingParams
from mini_engine.attention import Fp8Codec, IntCodec, QuantizedKVCache, WindowedKVCache, causal_attention, kivi_cache
from mini_engine.attention.quantized_cache import num_encoded
from mini_engine.geometry import kv_bytes_quant


def random_kv(T: int, K: int = 2, D: int = 32, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=(T, K, D)).astype(np.float32) for _ in "kv")


def fed(cache: QuantizedKVCache, k: np.ndarray, v: np.ndarray, sizes: list[int]):
    """Append to layer 0 in pieces of these sizes; what the last append gave."""
    assert sum(sizes) == len(k)
    at = 0
    for size in sizes:
        found = cache.append(0, k[at : at + size], v[at : at + size])
        at += size
        assert found[0].shape == found[1].shape == (at, *k.shape[1:])
    return found


CODECS = [IntCodec(8), IntCodec(4, group=32), IntCodec(4, group=16, symmetric=False), Fp8Codec()]


@pytest.mark.parametrize("codec", CODECS, ids=["int8", "int4", "int4 asymmetric", "fp8"])
def test_per_token_nothing_depends_on_how_the_tokens_come(codec):
    k, v = random_kv(41)
    expected = [codec.decode(codec.encode(x)) for x in (k, v)]
    for sizes in ([41], [1] * 41, [40, 1], [1, 40], [7, 0, 20, 14]):
        found = fed(QuantizedKVCache(1, 41, 2, 32, keys=codec, values=codec), k, v, sizes)
        for ours, theirs in zip(found, expected):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("recent", [0, 1, 40])
@pytest.mark.parametrize("T", [0, 1, 31, 32, 33, 63, 64, 100])
def test_kivi_keeps_the_newest_incomplete_group_as_it_came(T, recent):
    k, v = random_kv(T)
    for sizes in ([T], [1] * T, [T // 2, T - T // 2]):
        cache = kivi_cache(2, group=32, recent=recent)(1, 100, 2, 32)
        keys, values = fed(cache, k, v, sizes) if T else cache.append(0, k, v)
        whole = max(0, T - recent) // 32 * 32  # tokens in complete groups, the newest ones spared
        tokens = max(0, T - recent)
        np.testing.assert_array_equal(keys[whole:], k[whole:])
        np.testing.assert_array_equal(values[tokens:], v[tokens:])
        for start in range(0, whole, 32):  # 4 levels a channel and group
            group = keys[start : start + 32]
            assert max(len(np.unique(group[:, h, c])) for h in range(2) for c in range(32)) <= 4
            assert not np.array_equal(group, k[start : start + 32])
        for t in range(tokens):
            assert max(len(np.unique(values[t, h])) for h in range(2)) <= 4


@pytest.mark.parametrize(
    ("tokens", "per_group", "recent", "expected"),
    [
        (0, 32, 0, 0),
        (31, 32, 0, 0),
        (32, 32, 0, 32),
        (33, 32, 0, 32),
        (33, 32, 2, 0),
        (34, 32, 2, 32),
        (5, 1, 2, 3),
        (1, 1, 2, 0),
    ],
)
def test_num_encoded(tokens, per_group, recent, expected):
    assert num_encoded(tokens, per_group, recent) == expected


def test_bytes_are_the_formulas_plus_the_tokens_that_wait(tiny_gqa):
    spec = tiny_gqa.spec
    shape = spec.num_hidden_layers, 200, spec.num_key_value_heads, spec.head_dim
    k, v = random_kv(130, *shape[2:])

    def stored(cache):
        for layer in range(spec.num_hidden_layers):
            cache.append(layer, k, v)
        assert cache.num_tokens == 130
        return cache.nbytes

    assert stored(QuantizedKVCache(*shape)) == 130 * kv_bytes_quant(spec, 8, spec.head_dim, 2)
    four = IntCodec(4, group=32, symmetric=False)
    assert stored(QuantizedKVCache(*shape, keys=four, values=four)) == 130 * kv_bytes_quant(spec, 4, 32, 2, 2)
    waiting = 2 * spec.num_hidden_layers * spec.num_key_value_heads * spec.head_dim * 4  # two keys in float32
    of_keys = of_values = kv_bytes_quant(spec, 2, 32, 2, 2) / 2
    assert stored(kivi_cache(2)(*shape)) == 128 * of_keys + 130 * of_values + waiting


def test_a_failed_append_changes_nothing():
    k, v = random_kv(6)
    cache = QuantizedKVCache(1, 6, 2, 32)
    first = cache.append(0, k[:4], v[:4])
    with pytest.raises(MemoryError, match="holds 6 tokens, 4 of them in use: 3 more do not fit"):
        cache.append(0, k[:3], v[:3])
    bad = v[4:].copy()
    bad[1, 0, 3] = np.nan
    with pytest.raises(ValueError, match=r"x\[1, 0, 3\] is nan"):
        cache.append(0, k[4:], bad)
    assert cache.num_tokens == 4
    np.testing.assert_array_equal(cache.append(0, k[4:], v[4:])[1][:4], first[1])


@pytest.mark.parametrize("codec", CODECS, ids=["int8", "int4", "int4 asymmetric", "fp8"])
def test_inside_the_engine_it_is_attention_over_rounded_keys_and_values(tiny_gqa, codec):
    prompt = tiny_gqa.tokenizer.encode("It is a truth universally acknowledged, that a single man")
    params = SamplingParams(temperature=0.0, max_tokens=16)

    def rounded(q, k, v, scale, offset):
        k, v = (codec.decode(codec.encode(x.astype(np.float32))) for x in (k, v))
        return causal_attention(q, k, v, scale, offset)

    def text(**options):
        return LLM("tiny-gqa", backend="numpy", **options).generate(prompt, params)[0].outputs[0].token_ids

    assert text(cache=partial(QuantizedKVCache, keys=codec, values=codec)) == text(attention=rounded)


def test_kivi_runs_inside_the_engine():
    llm = LLM("tiny-gqa", backend="numpy", cache=kivi_cache(4, group=8))
    (output,) = llm.generate("It is a truth", SamplingParams(temperature=0.0, max_tokens=20))
    assert len(output.outputs[0].token_ids) == 20


@pytest.mark.parametrize("make", [QuantizedKVCache, kivi_cache(8, group=4), WindowedKVCache])
def test_keys_and_values_of_different_shapes_are_refused_and_nothing_is_stored(make):
    cache = make(2, 50, 2, 32)
    k, v = random_kv(6)
    before = [x.copy() for x in cache.append(1, k, v)]
    for other in (v[:-1], np.concatenate([v, v]), v[:, :1], v[..., :16], v[0]):
        with pytest.raises(ValueError, match=r"k and v must have one shape \[T, K, D\], found \(6, 2, 32\) and"):
            cache.append(1, k, other)
    for found, expected in zip(cache.append(1, k[:0], v[:0]), before, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_negative_number_of_recent_tokens_is_refused():
    with pytest.raises(ValueError, match="recent=-1 must be at least 0"):
        QuantizedKVCache(1, 50, 2, 32, recent=-1)
