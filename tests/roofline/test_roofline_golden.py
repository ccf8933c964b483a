"""Published and hand-computed values; fractions exact, times to the printed digits."""

from __future__ import annotations

from fractions import Fraction

import pytest

from mini_engine.catalog import get_gpu, get_model
from mini_engine.geometry import params
from mini_engine.roofline import (
    RecomputeOrSwap,
    attn_decode_intensity,
    batch_for_ridge,
    batch_kv_equals_weights,
    block_copy_bytes,
    breakeven_pcie,
    decode_step_time,
    decode_step_time_additive,
    effective_pcie,
    gemm_intensity,
    min_tokens_compute_bound,
    mla_decode_intensity,
    prefill_attn_intensity,
    prefill_flops,
    prefill_saving,
    prefill_time,
    recompute_vs_swap,
    ridge_point,
    throughput_ceiling,
    tokens_per_s,
)

H100 = ridge_point(989e12, 3.35e12)
LLAMA_8B, LLAMA_70B = get_model("llama-3-8b"), get_model("llama-3-70b")
TP2_70B = {"weight_bytes": 70e9, "kv_per_token": 163_840, "bw": 3.35e12, "n_params": 70e9, "flops": 989e12, "n_layers": 80, "n_q": 64, "head_dim": 128, "tp": 2}  # fmt: skip


def near(value, printed, digits):
    return float(value) == pytest.approx(printed, abs=0.5 * 10**-digits)


def test_ridges():
    assert Fraction(19780, 67) == H100
    assert near(H100, 295.2239, 4)
    for name, printed, digits in (("a100-80gb-sxm", 153.02, 2), ("h200-sxm", 206.04, 2), ("l4", 403.3, 1)):
        gpu = get_gpu(name)
        assert near(ridge_point(gpu.bf16_flops, gpu.memory_bandwidth), printed, digits)


def test_gemm():
    assert gemm_intensity(1, 8192, 8192) == Fraction(4096, 4097)
    assert gemm_intensity(2048, 8192, 8192) == Fraction(4096, 3)
    assert near(gemm_intensity(295, 8192, 8192), 275.2, 1)
    assert near(gemm_intensity(1000, 8192, 8192), 803.8, 1)
    assert near(gemm_intensity(100, 8192, 8192), 97.6, 1)


@pytest.mark.parametrize(
    ("K", "N", "tokens"),
    [
        (8192, 8192, 319),
        (4096, 4096, 345),
        (8192, 10240, 316),  # Llama-70B: q, k and v together
        (8192, 57344, 308),  # gate and up
        (28672, 8192, 310),  # down
        (8192, 128256, 307),  # output head
        (590, 590, None),  # d / 2 is below the ridge
        (512, 512, None),
    ],
)
def test_tokens_that_make_a_product_compute_bound(K, N, tokens):
    assert min_tokens_compute_bound(K, N, H100) == tokens
    if tokens:
        assert gemm_intensity(tokens, K, N) >= H100 > gemm_intensity(tokens - 1, K, N)


def test_a_ridge_at_the_limit_is_never_reached():
    assert min_tokens_compute_bound(590, 590, 295) is None  # the limit is 295 exactly
    assert min_tokens_compute_bound(590, 590, Fraction(2949, 10)) > 10**5


def test_decode_attention():
    assert attn_decode_intensity(64, 64, 128, 8192) == Fraction(8192, 8193)
    assert attn_decode_intensity(64, 8, 128, 8192) == Fraction(8192, 1025)
    assert near(attn_decode_intensity(8, 1, 128, 16), 5.333, 3)  # q and o are half as much as K and V here
    assert attn_decode_intensity(64, 8, 128, 0) == 0


def test_mla_decode():
    assert mla_decode_intensity(128, 512, 64) == Fraction(2176, 9)
    assert mla_decode_intensity(16, 512, 64) == Fraction(272, 9)
    assert near(mla_decode_intensity(128, 512, 64, 4096), 228.3, 1)
    assert near(mla_decode_intensity(128, 512, 64, s_q=2), 483.6, 1)
    assert mla_decode_intensity(128, 512, 64, s_q=2) > H100 > mla_decode_intensity(128, 512, 64)


def test_prefill_attention():
    assert prefill_attn_intensity(2048, 2048) == 1024
    assert prefill_attn_intensity(1, 4096) == Fraction(4096, 4097)


@pytest.mark.parametrize(("B", "S", "ms"), [(1, 0, 20.8955), (1, 8192, 21.2962), (32, 1024, 22.4981), (32, 8192, 33.7)])
def test_step_times(B, S, ms):
    step = decode_step_time(S=S, B=B, **TP2_70B)
    assert near(step.total * 1000, ms, 4 if ms != 33.7 else 1)
    assert step.bound == "memory"
    assert step.total == step.weights + step.kv > step.compute


def test_a_step_that_is_bound_by_compute():
    step = decode_step_time(S=0, B=1000, **TP2_70B)
    assert step.bound == "compute"
    assert step.total == step.compute == Fraction(2 * 70 * 10**9 * 1000, 2 * 989 * 10**12)


def test_the_bound_is_memory_while_reading_takes_as_long_as_computing():
    step = {"kv_per_token": 1, "S": 1, "B": 1, "bw": 1, "n_params": 0, "n_layers": 1, "n_q": 1, "head_dim": 1}
    tie = decode_step_time(weight_bytes=3, flops=1, **step)  # 3 + 1 bytes, 4 FLOPs
    assert (tie.weights, tie.kv, tie.compute, tie.bound) == (3, 1, 4, "memory")
    assert decode_step_time(weight_bytes=2, flops=1, **step).bound == "compute"
    assert decode_step_time(weight_bytes=3, flops=Fraction(9, 8), **step).bound == "memory"


def test_step_time_that_adds_attention():
    step = decode_step_time_additive(4, 10**6, 10**9, 10**9, 10**6, 10**9, 2)
    assert (step.kv, step.weights, step.compute) == (Fraction(1, 500), Fraction(1, 2), Fraction(1, 250))
    assert step.total == step.kv + step.matmul == Fraction(1, 500) + Fraction(1, 2)


def test_tokens_per_second():
    assert near(tokens_per_s(1, decode_step_time(S=0, B=1, **TP2_70B).total), 47.857, 3)
    assert near(tokens_per_s(32, decode_step_time(S=1024, B=32, **TP2_70B).total), 1422, 0)
    assert near(tokens_per_s(32, decode_step_time(S=8192, B=32, **TP2_70B).total), 949, 0)
    assert near(throughput_ceiling(3.35e12, 163_840, 8192), 2495.94, 2)


def test_batches_at_which_kv_weighs_as_much_as_the_weights():
    assert [batch_kv_equals_weights(70e9, 163_840, S) for S in (1024, 2048, 4096)] == [418, 209, 105]


@pytest.mark.parametrize(("S", "batch"), [(512, 451), (1024, 948), (1487, 0), (1488, None), (2048, None), (8192, None)])
def test_batches_that_reach_the_ridge(S, batch):
    """K/V reads push the threshold far above 295, and beyond 1,487 tokens no batch is large enough."""
    found = batch_for_ridge(70e9, 163_840, S, 70e9 + 4 * 80 * 32 * 128 * S, H100)
    assert found == batch if batch != 0 else found > 10_000


def test_prefill_work():
    N = params(LLAMA_70B)
    assert prefill_flops(N, 2000, 80, 64, 128) == 287_460_327_424_000
    assert prefill_flops(N, 8192, 80, 64, 128) == 1_243_923_594_870_784
    assert prefill_flops(10, 3, 1, 1, 1, causal=False) == 2 * 10 * 3 + 4 * 9
    with pytest.raises(ValueError, match="done=1 needs causal=True"):
        prefill_flops(10, 3, 1, 1, 1, causal=False, done=1)


def test_prefill_times():
    N = params(LLAMA_70B)
    assert prefill_time(10, 5) == prefill_time(10, 5, gpus=1, mfu=1) == 2
    assert near(prefill_time(prefill_flops(N, 2000, 80, 64, 128), 989e12, 2), 0.14533, 5)
    assert near(prefill_time(prefill_flops(params(LLAMA_8B), 32_768, 32, 32, 128), 989e12, 1, "0.5"), 1.63, 2)
    assert near(prefill_time(prefill_flops(N, 32_768, 80, 64, 128), 989e12, 8, "0.5"), 1.52, 2)


def test_what_a_cached_prefix_saves():
    saving = prefill_saving(2000, 2100, 16, LLAMA_70B)
    assert saving.token_share == Fraction(20, 21)
    whole = prefill_flops(params(LLAMA_70B), 2100, 80, 64, 128)
    rest = prefill_flops(params(LLAMA_70B), 100, 80, 64, 128, done=2000)
    assert saving.flop_share == 1 - Fraction(rest, whole) < saving.token_share
    assert prefill_saving(15, 100, 16, LLAMA_70B).flop_share == 0


def test_swap_against_recompute():
    times = recompute_vs_swap(131_072, 8192, 32e9, 989e12, "0.5", params(LLAMA_8B), 32, 32, 128)
    assert near(times.swap * 1000, 67.109, 3)
    assert near(times.recompute * 1000, 301.642, 3)
    assert times.faster == "swap"
    slow = recompute_vs_swap(131_072, 8192, 5e9, 989e12, "0.5", params(LLAMA_8B), 32, 32, 128)
    assert slow.faster == "recompute"
    assert RecomputeOrSwap(swap=times.swap, recompute=times.swap).faster == "recompute"  # a tie
    two = recompute_vs_swap(131_072, 8192, 32e9, 989e12, "0.5", params(LLAMA_8B), 32, 32, 128, links=2)
    assert two.swap * 2 == times.swap


def test_break_even():
    assert near(breakeven_pcie(131_072, 989e12, "0.5", params(LLAMA_8B)) / 10**9, 8.0714, 4)
    tp8 = breakeven_pcie(327_680, 8 * 989e12, "0.5", params(LLAMA_70B), links=8)
    assert near(tp8 / 10**9, 2.2967, 4)
    assert tp8 == breakeven_pcie(40_960, 989e12, "0.5", Fraction(params(LLAMA_70B), 8))
    assert near(breakeven_pcie(819_200, 312e12, "0.5", params(get_model("llama-2-13b"))) / 10**9, 9.82, 2)


def test_break_even_is_where_short_sequences_tie():
    pcie = breakeven_pcie(131_072, 989e12, 1, 8e9)
    times = recompute_vs_swap(131_072, 1, pcie, 989e12, 1, 8e9, 1, 1, 1)
    assert float(times.swap / times.recompute) == pytest.approx(1, rel=1e-9)


def test_small_copies_ruin_the_link():
    assert block_copy_bytes(LLAMA_8B, 16) == 32 * 2**10
    assert block_copy_bytes(get_model("deepseek-v3"), 16) == 16 * 576 * 2
    assert effective_pcie(32e9, 32_768, 0) == 32 * 10**9
    assert effective_pcie(32e9, 32_000, "1e-6") == 16 * 10**9
