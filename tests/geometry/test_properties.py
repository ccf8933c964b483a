"""What holds for all inputs."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mini_engine.catalog import get_model, list_models
from mini_engine.geometry import (
    frag_breakdown,
    kv_bytes_hybrid,
    kv_bytes_per_token,
    kv_bytes_per_token_per_gpu,
    kv_bytes_quant,
    kv_elems_per_token,
    kv_total_bytes,
    max_concurrency,
    max_context,
    paged_utilization,
    param_breakdown,
    params,
    prefix_hit_tokens,
    sharing_saving,
    weight_bytes,
)

sizes = st.integers(1, 5000)
models = st.sampled_from([get_model(name) for name in list_models()])


@given(models, st.integers(0, 10**6), sizes, st.sampled_from(["fp32", "bf16", "fp8"]))
def test_the_total_is_a_product(cfg, S, B, dtype):
    assert kv_total_bytes(cfg, S, B, dtype) == kv_bytes_per_token(cfg, dtype) * S * B


@given(models, st.integers(0, 10**6))
def test_windows_never_cost_more_than_full_layers(cfg, S):
    windowed = kv_bytes_hybrid(cfg, cfg.layer_windows, S)
    assert windowed <= kv_total_bytes(cfg, S, 1) == kv_bytes_hybrid(cfg, [None] * cfg.num_attention_layers, S)


@given(models, st.integers(1, 64))
def test_shards_hold_at_least_the_whole(cfg, tp):
    per_gpu, whole = kv_bytes_per_token_per_gpu(cfg, tp), kv_bytes_per_token(cfg)
    assert per_gpu * tp >= whole
    assert per_gpu <= whole
    if not cfg.is_mla and cfg.num_key_value_heads % tp == 0:
        assert per_gpu * tp == whole


@given(models, st.integers(1, 16), sizes)
def test_quantization_overhead_is_never_free(cfg, bits, group):
    plain = Fraction(kv_elems_per_token(cfg) * bits, 8)
    assert kv_bytes_quant(cfg, bits, group, 0) == plain < kv_bytes_quant(cfg, bits, group, 2)


@given(st.integers(0, 10**12), st.integers(1, 10**6), sizes, sizes, st.none() | st.integers(1, 128))
def test_concurrency_never_grows_with_the_context(budget, per_token, S, more, block):
    assert max_concurrency(budget, per_token, S + more, block) <= max_concurrency(budget, per_token, S, block)


@given(st.integers(0, 10**12), st.integers(1, 10**6), sizes)
def test_what_is_promised_fits_and_one_more_would_not(budget, per_token, S):
    requests = max_concurrency(budget, per_token, S)
    assert requests * per_token * S <= budget < (requests + 1) * per_token * S
    tokens = max_context(budget, per_token, S)
    assert tokens * per_token * S <= budget < (tokens + 1) * per_token * S


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=20), st.integers(1, 256))
def test_paged_utilization_is_a_share(lengths, block):
    share = paged_utilization(lengths, block)
    assert 0 < share <= 1
    assert paged_utilization(lengths, 1) == 1
    if all(length % block == 0 for length in lengths):
        assert share == 1


@given(st.tuples(*[st.integers(0, 10**6)] * 4).filter(any))
def test_shares_of_memory_sum_to_one(parts):
    shares = frag_breakdown(*parts)
    assert shares.token + shares.reserved + shares.internal + shares.external == shares.total == 1


@given(st.integers(0, 5000), sizes, st.integers(1, 256))
def test_a_hit_is_whole_blocks_and_leaves_a_token(P, L, B):
    hit = prefix_hit_tokens(P, L, B)
    assert hit % B == 0
    assert 0 <= hit <= min(P, L - 1)
    assert hit + B > min(P, L - 1)  # no further block would fit


@given(st.integers(0, 2000), st.integers(1, 2000), st.integers(1, 64), st.integers(1, 64))
def test_sharing_saves_between_nothing_and_everything(prefix, out, n, block):
    assert 1 <= sharing_saving(prefix, out, n, block) <= n
    assert sharing_saving(prefix, out, 1, block) == 1


@pytest.mark.parametrize("name", [n for n in list_models() if not get_model(n).layers_without_kv])
def test_parameters_sum_and_are_near_the_published_number(name):
    spec = get_model(name)
    parts = param_breakdown(spec)
    assert sum(dataclasses.astuple(parts)) == parts.total == params(spec)
    assert weight_bytes(spec, "fp32") == 4 * params(spec)
    published = _billions(name)
    assert params(spec) / 10**9 == pytest.approx(published, rel=0.04)


def _billions(name: str) -> float:
    from mini_engine.catalog import model_row

    text = model_row(name)["published_parameters"].split("/")[0]
    unit = {"M": 1e-3, "B": 1, "T": 1e3}[text[-1]]
    return float(text[:-1]) * unit
