"""What is particular to the exercises of lesson 02: their oracles, golden sizes, and what the first failing property says."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mini_engine.catalog import get_model, list_models
from mini_engine.course.check import run
from mini_engine.course.exercise import Prediction
from mini_engine.course.exercises import find
from mini_engine.course.exercises.answers02_per_gpu import kv_per_gpu
from mini_engine.course.exercises.e02_bytes_left import bytes_left
from mini_engine.course.exercises.e02_concurrency import (
    CONCURRENCY,
    PER_TOKEN,
    concurrency,
    count_by_adding,
    on_the_slide,
)
from mini_engine.course.exercises.e02_kv_bytes import KV_BYTES, LLAMA_3_70B, config_of, count_arrays, kv_bytes
from mini_engine.course.exercises.e02_per_gpu import deal_heads, toy
from mini_engine.course.exercises.whole_numbers import expect_whole
from mini_engine.geometry import kv_bytes_per_token, kv_bytes_per_token_per_gpu, max_concurrency, params
from mini_engine.units import DTYPE_BYTES


def test_golden_sizes():
    assert kv_bytes(LLAMA_3_70B, 1) == 327_680
    assert kv_bytes(LLAMA_3_70B, 8192, 16) == kv_bytes(LLAMA_3_70B, 4096, 32) == 42_949_672_960
    assert kv_bytes({**LLAMA_3_70B, "num_key_value_heads": 64}, 8192, 16) == 343_597_383_680
    assert [concurrency(8, PER_TOKEN, s) for s in (2048, 4096, 8192, 32768)] == [23, 11, 5, 1]
    assert [on_the_slide(8, PER_TOKEN, s) for s in (2048, 4096, 8192, 32768)] == [25, 12, 6, 1]
    assert [kv_per_gpu(get_model("llama-3-70b"), tp) for tp in (1, 2, 4, 8, 16)] == [
        327680,
        163840,
        81920,
        40960,
        40960,
    ]
    assert 8 * kv_per_gpu(get_model("deepseek-v3"), 8) == 562_176


def test_320_gib_fit_on_eight_cards_and_not_on_four():
    weights = 2 * params(get_model("llama-3-70b"))
    assert bytes_left(8, 80, weights, 320) == 155_295_203_328
    assert round(bytes_left(8, 80, weights, 0) / 2**30, 1) == 464.6
    assert bytes_left(4, 80, weights, 320) < 0 > bytes_left(8, 80, weights, 640)


@pytest.mark.parametrize("name", list_models())
def test_the_answers_agree_with_the_calculators_on_the_table(name):
    spec = get_model(name)
    for dtype in ("fp32", "bf16", "fp8"):
        width = DTYPE_BYTES[dtype]
        if not spec.layers_without_kv and not spec.layer_kv_shapes:
            assert kv_per_gpu(spec, 1, width) == kv_bytes_per_token(spec, dtype)
            for tp in (2, 3, 8, 16):
                assert kv_per_gpu(spec, tp, width) == kv_bytes_per_token_per_gpu(spec, tp, dtype)
            if not spec.is_mla:
                heads, kv_heads = spec.num_attention_heads, spec.num_key_value_heads
                config = config_of(spec.num_hidden_layers, heads, kv_heads, spec.hidden_size, spec.head_dim)
                assert kv_bytes(config, 3, 2, width) == 6 * kv_bytes_per_token(spec, dtype)


def test_oracles_by_hand():
    assert count_arrays(config_of(1, 4, None, 8), 1, 1, 2) == 2 * 4 * 2 * 2
    assert count_arrays(config_of(3, 4, 2, 8, 5), 7, 2, 4) == 2 * 3 * 2 * 5 * 7 * 2 * 4
    assert [count_by_adding(Fraction(b), 2, 5) for b in (0, 9, 10, 19, 20)] == [0, 0, 1, 1, 2]
    assert [deal_heads(toy(1, 3, 1), tp) for tp in (1, 2, 3, 4)] == [3, 2, 1, 1]


@pytest.mark.parametrize("budget", [0, 1, 10**9, 8 * 10**9, 60_500_000_000])
@pytest.mark.parametrize("context", [1, 16, 2000, 8192])
def test_concurrency_is_the_calculators(budget, context):
    assert concurrency(Fraction(budget, 10**9), PER_TOKEN, context) == max_concurrency(budget, PER_TOKEN, context)


@pytest.mark.parametrize("got", [5, np.int64(5), np.int32(5), Fraction(5)])
def test_any_exact_kind_of_whole_number_is_right(got):
    expect_whole(got, 5, "five")


@pytest.mark.parametrize("got", [5.0, np.float64(5), 4, 6, True, "5", None, Fraction(11, 2), np.array(5)])
def test_nothing_else_is(got):
    with pytest.raises(AssertionError, match="expected"):
        expect_whole(got, 5, "five")


def test_the_published_slip_is_refused_for_its_units():
    detail = list(run(CONCURRENCY, on_the_slide))[-1].detail
    assert "1 GB is exactly one request of 10^9 bytes" in detail


def test_numpy_answers_are_right_answers():
    def with_numpy(config, tokens, batch=1, bytes_per_number=2):
        heads = config.get("num_key_value_heads") or config["num_attention_heads"]
        size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        small = np.int64(2 * config["num_hidden_layers"] * heads * size)
        return int(small) * tokens * batch * bytes_per_number

    assert {outcome.status for outcome in run(KV_BYTES, with_numpy)} == {"ok"}


def test_the_slips_that_predictions_name_are_computed_right():
    mixtral, mistral = (params(get_model(name)) for name in ("mixtral-8x7b", "mistral-7b-v0.1"))
    assert round(mixtral / mistral, 2) == find(Prediction, "02.experts").mistakes[0][0]
    budget = Fraction(121, 2)
    assert {round(budget / Fraction(5, 16)), int(budget / Fraction(5, 16)), int(60 / Fraction(5, 16))} == {
        194,
        193,
        192,
    }
    assert find(Prediction, "02.tp8").answer == int(budget * 10**9 / (40_960 * 8192)) == 180
