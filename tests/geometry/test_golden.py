"""Published and hand-computed values, exact. Long because it is a list: one place to look a number up."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest

from mini_engine.catalog import get_model
from mini_engine.geometry import (
    active_params,
    attn_pairs,
    concurrency_ratio,
    forwards_with_cache,
    forwards_without_cache,
    frag_breakdown,
    kv_budget,
    kv_bytes_hybrid,
    kv_bytes_per_token,
    kv_bytes_per_token_per_gpu,
    kv_bytes_quant,
    kv_elems_expanded,
    kv_elems_per_token,
    kv_total_bytes,
    max_concurrency,
    max_context,
    mla_reduction,
    paged_utilization,
    params,
    prefix_hit_tokens,
    reservation_utilization,
    reservation_waste,
    sharing_saving,
    weight_bytes,
)

LLAMA_70B = get_model("llama-3-70b")
MHA_70B = dataclasses.replace(LLAMA_70B, num_key_value_heads=64)
MQA_70B = dataclasses.replace(LLAMA_70B, num_key_value_heads=1)


def test_elements_per_token():
    assert kv_elems_per_token(LLAMA_70B) == 163_840
    assert kv_elems_per_token(get_model("deepseek-v2")) == 34_560


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("llama-3-70b", 327_680),
        ("qwen2.5-72b", 327_680),
        ("llama-2-13b", 819_200),
        ("opt-13b", 819_200),  # the vLLM paper's 800 KB
        ("llama-3-8b", 131_072),
        ("mistral-7b-v0.1", 131_072),
        ("llama-2-7b", 524_288),
        ("llama-3.1-405b", 516_096),
        ("deepseek-v3", 70_272),
        ("qwen3-next-80b-a3b", 24_576),  # 12 of 48 layers
    ],
)
def test_bytes_per_token(model, size):
    assert kv_bytes_per_token(get_model(model)) == size


def test_bytes_per_token_with_all_heads_or_one():
    assert kv_bytes_per_token(MHA_70B) == 2_621_440
    assert kv_bytes_per_token(MQA_70B) == 40_960


@pytest.mark.parametrize(
    ("dtype", "size"), [("fp32", 655_360), ("bf16", 327_680), ("float16", 327_680), ("fp8", 163_840), ("int8", 163_840)]
)
def test_bytes_per_token_by_dtype(dtype, size):
    assert kv_bytes_per_token(LLAMA_70B, dtype) == size


def test_mla_as_expanded_heads():
    """What an engine would hold that decompresses before caching."""
    assert 2 * kv_elems_expanded(get_model("deepseek-v3")) == 4_997_120
    assert 2 * kv_elems_expanded(get_model("deepseek-v2-lite")) == 276_480
    assert kv_elems_expanded(LLAMA_70B) == kv_elems_per_token(LLAMA_70B)


def test_quantized():
    assert kv_bytes_quant(LLAMA_70B, 8, 128, 2) == 166_400
    assert kv_bytes_quant(LLAMA_70B, 4, 32, 2, 2) == 102_400
    assert kv_bytes_quant(LLAMA_70B, 2, 32, 2, 2) == 61_440
    one = dataclasses.replace(LLAMA_70B, num_hidden_layers=1, num_key_value_heads=1, head_dim=16)  # 32 elements a token
    assert kv_bytes_quant(one, 8, 32, 2) == 34  # llama.cpp's q8_0
    assert kv_bytes_quant(one, 4, 32, 2) == 18  # and q4_0
    assert kv_bytes_quant(one, 8, 64, 1) == Fraction(65, 2)


def test_windows():
    gemma = get_model("gemma-3-1b")
    assert kv_bytes_hybrid(gemma, gemma.layer_windows, 32_768) == 145_752_064 == 139 * 2**20
    assert kv_bytes_hybrid(gemma, [None] * 26, 32_768) == 872_415_232 == 832 * 2**20
    assert kv_bytes_hybrid(gemma, gemma.layer_windows, 512) == kv_total_bytes(gemma, 512, 1)
    assert kv_bytes_hybrid(gemma, gemma.layer_windows, 513) == kv_total_bytes(gemma, 513, 1) - 22 * 2 * 256 * 2
    assert kv_bytes_hybrid(gemma, gemma.layer_windows, 0) == 0


def test_windows_must_match_the_attention_layers():
    gemma = get_model("gemma-3-1b")
    with pytest.raises(ValueError, match="windows has 25 entries, gemma-3-1b has 26 attention layers"):
        kv_bytes_hybrid(gemma, [None] * 25, 1)
    with pytest.raises(ValueError, match=r"windows\[1\]=0"):
        kv_bytes_hybrid(gemma, [None, 0] * 13, 1)
    with pytest.raises(ValueError, match="windows=512"):
        kv_bytes_hybrid(gemma, 512, 1)


def test_totals():
    assert kv_total_bytes(LLAMA_70B, 4096, 32) == kv_total_bytes(LLAMA_70B, 8192, 16) == 42_949_672_960 == 40 * 2**30
    assert kv_total_bytes(MHA_70B, 8192, 16) == 343_597_383_680 == 320 * 2**30
    assert kv_total_bytes(get_model("llama-2-13b"), 2048, 1) == 1_677_721_600
    assert kv_total_bytes(get_model("llama-2-7b"), 4096, 1) == 2_147_483_648


def test_the_grid_of_contexts_and_batches():
    """0.625 GiB at 2K and one request, to 160 GiB at 32K and sixteen."""
    grid = [[kv_total_bytes(LLAMA_70B, S, B) / 2**30 for B in (1, 4, 16)] for S in (2048, 4096, 8192, 32768)]
    assert grid == [[0.625, 2.5, 10], [1.25, 5, 20], [2.5, 10, 40], [10, 40, 160]]


def test_sharded_over_gpus():
    sizes = [kv_bytes_per_token_per_gpu(LLAMA_70B, tp) for tp in (1, 2, 4, 8)]
    assert sizes == [327_680, 163_840, 81_920, 40_960]
    assert kv_bytes_per_token_per_gpu(LLAMA_70B, 16) == 40_960  # a head cannot be split: it is copied
    assert kv_bytes_per_token_per_gpu(LLAMA_70B, 3) == 3 * 40_960  # ceil(8 / 3) heads
    assert kv_bytes_per_token_per_gpu(LLAMA_70B, 2, "fp8") == 81_920
    v3 = get_model("deepseek-v3")
    assert [kv_bytes_per_token_per_gpu(v3, tp) for tp in (1, 8)] == [70_272, 70_272]
    assert 8 * kv_bytes_per_token_per_gpu(v3, 8) == 562_176


@pytest.mark.parametrize(
    ("model", "number"),
    [
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-13b", 13_015_864_320),
        ("llama-2-70b", 68_976_648_192),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("deepseek-v3", 671_026_404_352),
        ("smollm2-135m", 134_515_008),
    ],
)
def test_parameters(model, number):
    assert params(get_model(model)) == number


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        ("mixtral-8x7b", 12.88),
        ("qwen3-30b-a3b", 3.35),
        ("deepseek-v2", 21.38),
        ("deepseek-v3", 37.55),
        ("kimi-k2", 32.86),
        ("gpt-oss-120b", 5.71),
        ("glm-4.5", 33.63),
    ],
)
def test_active_parameters(model, billions):
    assert active_params(get_model(model)) / 10**9 == pytest.approx(billions, abs=0.005)


def test_more_tokens_read_more_experts_until_all_are_read():
    mixtral = get_model("mixtral-8x7b")
    read = [active_params(mixtral, tokens) for tokens in (1, 2, 3, 4, 5)]
    assert read[0] < read[1] < read[2] < read[3] == read[4] == params(mixtral)
    assert active_params(LLAMA_70B) == params(LLAMA_70B)


def test_weight_bytes():
    assert weight_bytes(get_model("llama-3-8b"), "bf16") == 16_060_522_496
    assert weight_bytes(get_model("llama-3-8b"), "fp8", 2) == 4_015_130_624
    assert weight_bytes(get_model("llama-3-8b"), "int8", 3) == Fraction(8_030_261_248, 3)


def test_layers_that_cannot_be_counted_are_refused():
    with pytest.raises(ValueError, match="layers_without_kv: the weights of linear_attention"):
        params(get_model("qwen3-next-80b-a3b"))


def test_budget():
    assert kv_budget(80e9, 70e9, 2e9) == 8_000_000_000
    assert kv_budget(80e9, 140e9, 2e9) == 0
    assert kv_budget(85_520_809_984, 0, 0, "0.9") == 76_968_728_985  # floor of ....6
    assert kv_budget(80e9, Fraction(10, 3), 0) == 79_999_999_996
    assert kv_budget(0, 0, 0) == 0


def test_a_binary_float_is_no_utilization():
    with pytest.raises(ValueError, match=r"util=0\.9 is not exact .* Fraction\(9, 10\)"):
        kv_budget(80e9, 70e9, 2e9, 0.9)
    assert kv_budget(80e9, 0, 0, 0.5) == 40_000_000_000  # a half is exact
    with pytest.raises(ValueError, match=r"util='1\.1'"):
        kv_budget(80e9, 70e9, 2e9, "1.1")


CONTEXTS = (2048, 4096, 8192, 32768)


@pytest.mark.parametrize(
    ("budget", "per_token", "expected"),
    [
        (8e9, 163_840, [23, 11, 5, 1]),  # not 25, 12, 6, 1: 8 GB are 7.45 GiB
        (60.5e9, 40_960, [721, 360, 180, 45]),
        (5e9, 163_840, [14, 7, 3, 0]),
    ],
)
def test_concurrency(budget, per_token, expected):
    assert [max_concurrency(budget, per_token, S) for S in CONTEXTS] == expected


def test_concurrency_on_real_cards_and_exact_weights():
    """The same question, with the assumptions changed one at a time: at 8K the answer is anything from 3 to 10."""

    def contexts(hbm, weights, overhead=2e9, util=1):
        budget = kv_budget(hbm, weights, overhead, util)
        return [max_concurrency(budget, 163_840, S) for S in CONTEXTS]

    card, exact = 81_559 * 2**20, weight_bytes(LLAMA_70B, "bf16", 2)
    assert contexts(80e9, 70e9) == [23, 11, 5, 1]
    assert contexts(card, 70e9) == [40, 20, 10, 2]
    assert contexts(80e9, weight_bytes(get_model("llama-2-70b"), "bf16", 2)) == [26, 13, 6, 1]
    assert contexts(80e9, exact) == [22, 11, 5, 1]
    assert contexts(card, exact, util="0.9") == [13, 6, 3, 0]
    assert max_concurrency(kv_budget(card, 17.5e9, 2e9), 40_960, 8192) == 196


def test_concurrency_in_fp8_and_in_blocks():
    assert max_concurrency(8e9, 81_920, 8192) == 11
    assert max_concurrency(8e9, 163_840, 8192, 16) == 5
    assert max_concurrency(16 * 10, 1, 17, 16) == 5  # ten blocks, two a request
    assert max_concurrency(16 * 10 - 1, 1, 17, 16) == 4
    assert max_concurrency(166_400 * 100, kv_bytes_quant(LLAMA_70B, 8, 128, 2), 10) == 10
    assert max_concurrency(0, 1, 1) == 0


def test_longest_context():
    assert max_context(8e9, 163_840, 1) == max_context(8e9, 163_840) == 48_828
    assert max_context(8e9, 163_840, 32) == 1_525
    assert max_context(8e9, 163_840, 295) == 165


def test_the_ratio_vllm_prints():
    ratio = concurrency_ratio(1952, 16, 20_000)
    assert (ratio, f"{float(ratio):.2f}") == (Fraction(15_616, 10_000), "1.56")


def test_utilization():
    assert paged_utilization([7, 100, 330], 16) == Fraction(437, 464)
    assert paged_utilization([17], 16) == Fraction(17, 32)
    assert paged_utilization([0, 17], 16) == Fraction(17, 32)  # a request that has no token yet has no block
    assert reservation_utilization(1024, 8192) == Fraction(1, 8)
    assert reservation_utilization(8192, 8192) == 1
    assert reservation_waste(1024, 8192) == Fraction(7, 8)
    assert reservation_waste(200, 2048) == Fraction(1848, 2048)
    with pytest.raises(ValueError, match="used=9 is more than reserved=8"):
        reservation_utilization(9, 8)


@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
def test_no_tokens_have_no_utilization(lengths):
    with pytest.raises(ValueError, match="lengths"):
        paged_utilization(lengths, 16)


def test_fragmentation_of_the_vllm_papers_baseline():
    shares = frag_breakdown(20.4, 13.3, 57.3, 8.9)  # Orca (Max), Figure 2; the printed figures sum to 99.9
    assert shares.total == 1
    assert shares.token == Fraction(204, 999)
    with pytest.raises(ValueError, match="all 0"):
        frag_breakdown(0, 0, 0, 0)


def test_prefix_hits():
    assert prefix_hit_tokens(2000, 2100, 16) == 2000
    assert prefix_hit_tokens(2000, 2000, 16) == 1984  # one token must be computed
    assert prefix_hit_tokens(15, 100, 16) == 0
    assert prefix_hit_tokens(0, 1, 1) == 0


def test_forwards():
    assert (forwards_without_cache(1000, 1000), forwards_with_cache(1000, 1000)) == (1_499_500, 1_999)
    assert (forwards_without_cache(1, 10), forwards_with_cache(1, 10)) == (55, 10)
    assert forwards_without_cache(7, 1) == forwards_with_cache(7, 1) == 7


def test_attention_scores():
    assert attn_pairs(1000, 1000, False) == 1_166_666_500
    assert attn_pairs(1000, 1000, True) == 1_999_000
    for n, m in ((1, 1), (1, 5), (4, 1), (7, 6)):  # against the sums themselves
        assert attn_pairs(n, m, False) == sum(s * (s + 1) // 2 for s in range(n, n + m))
        assert attn_pairs(n, m, True) == n * (n + 1) // 2 + sum(range(n + 1, n + m))


@pytest.mark.parametrize(
    ("out", "saving"), [(16, Fraction(11, 3)), (128, Fraction(5, 2)), (256, 2), (512, Fraction(8, 5))]
)
def test_sharing(out, saving):
    assert sharing_saving(512, out, 4, 16) == saving


def test_a_partly_filled_prompt_block_is_not_shared():
    assert sharing_saving(513, 15, 4, 16) == Fraction(4 * 33, 32 + 4)
    assert sharing_saving(15, 1, 4, 16) == 1
    assert sharing_saving(16, 0, 4, 16) == 4


def test_mla_against_three_baselines():
    assert float(mla_reduction("mha")) == 0.982421875
    assert mla_reduction("deepseek-67b") == Fraction(125, 152)
    assert float(mla_reduction("deepseek-67b-6bit")) == pytest.approx(0.9334, abs=5e-5)
    with pytest.raises(ValueError, match="baseline='gqa' must be one of mha, deepseek-67b"):
        mla_reduction("gqa")
