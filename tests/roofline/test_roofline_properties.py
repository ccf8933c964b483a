"""What holds for all inputs."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from mini_engine.roofline import (
    attn_decode_intensity,
    batch_for_ridge,
    decode_step_time,
    decode_step_time_additive,
    gemm_intensity,
    min_tokens_compute_bound,
    mla_decode_intensity,
    prefill_flops,
    throughput_ceiling,
    tokens_per_s,
)

sizes = st.integers(1, 20_000)
heads = st.integers(1, 128)


@given(sizes, sizes, sizes, st.sampled_from([1, 2, 4, Fraction(1, 2)]))
def test_a_product_is_symmetric_and_bounded(M, K, N, b):
    intensity = gemm_intensity(M, K, N, b)
    assert intensity == gemm_intensity(K, N, M, b) == gemm_intensity(N, M, K, b)
    assert 0 < intensity < Fraction(2) / b * min(M, K, N)


@given(sizes, sizes, st.integers(1, 2000))
def test_the_threshold_is_the_smallest(K, N, ridge):
    tokens = min_tokens_compute_bound(K, N, ridge)
    if tokens is None:
        assert Fraction(K * N, K + N) <= ridge
    else:
        assert tokens == 1 or gemm_intensity(tokens - 1, K, N) < ridge
        if tokens <= 10**12:
            assert gemm_intensity(tokens, K, N) >= ridge


@given(heads, heads, st.integers(1, 256), st.integers(0, 10**6), st.integers(1, 50))
def test_decode_attention_never_falls_with_context_or_sharers(n_q, n_kv, d, S, more):
    here = attn_decode_intensity(n_q, n_kv, d, S)
    assert here <= attn_decode_intensity(n_q, n_kv, d, S + more)
    assert here <= attn_decode_intensity(n_q, n_kv, d, S, sharers=1 + more)
    assert here < Fraction(n_q, n_kv)  # the limit of long contexts


@given(heads, st.integers(1, 1024), st.integers(0, 128), st.integers(1, 10**6))
def test_mla_stays_below_its_limit(n_h, d_c, d_r, S):
    assert mla_decode_intensity(n_h, d_c, d_r, S) < mla_decode_intensity(n_h, d_c, d_r) <= 2 * n_h


step = {"weight_bytes": 7 * 10**10, "kv_per_token": 163_840, "bw": 335 * 10**10, "n_params": 7 * 10**10}
step |= {"flops": 989 * 10**12, "n_layers": 80, "n_q": 64, "head_dim": 128, "tp": 2}


@given(st.integers(0, 10**6), st.integers(1, 10**4), st.integers(1, 1000))
def test_a_step_never_gets_faster_with_more_work(S, B, more):
    here = decode_step_time(S=S, B=B, **step)
    assert here.total == max(here.weights + here.kv, here.compute)
    assert here.total <= decode_step_time(S=S + more, B=B, **step).total
    assert here.total <= decode_step_time(S=S, B=B + more, **step).total
    if S:
        assert tokens_per_s(B, here.total) < throughput_ceiling(step["bw"], step["kv_per_token"], S)


@given(sizes, sizes, sizes, sizes, sizes, sizes, st.integers(1, 64))
def test_the_additive_step_sums(B, kv, weights, bw, n_params, flops, chips):
    parts = decode_step_time_additive(B, kv, weights, bw, n_params, flops, chips)
    assert parts.total == parts.kv + parts.matmul
    assert parts.matmul == max(parts.weights, parts.compute)


@given(st.integers(0, 1480), st.integers(1, 1000))
def test_the_batch_for_the_ridge_is_the_smallest(S, ridge):
    f = 70 * 10**9 + 4 * 80 * 32 * 128 * S
    batch = batch_for_ridge(70 * 10**9, 163_840, S, f, ridge)
    if batch is not None:
        assert f * batch >= ridge * (70 * 10**9 + 163_840 * S * batch)
        assert f * (batch - 1) < ridge * (70 * 10**9 + 163_840 * S * (batch - 1))


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=8), st.integers(0, 10**10), heads, heads, heads)
def test_chunks_of_a_prefill_add_up(chunks, N, L, n_q, d):
    done, work = 0, 0
    for chunk in chunks:
        work += prefill_flops(N, chunk, L, n_q, d, done=done)
        done += chunk
    assert work == prefill_flops(N, done, L, n_q, d)
