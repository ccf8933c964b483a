"""What is particular to the exercises of lesson 05: golden sizes, oracles, and what the first failing property says."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from mini_engine import LLM, SamplingParams
from mini_engine.attention import IntCodec, QuantizedKVCache, fp8_e4m3
from mini_engine.catalog import get_model
from mini_engine.course.check import run
from mini_engine.course.exercises.answers05_cache import Int8KVCache, JoinsPieces
from mini_engine.course.exercises.answers05_quantize import dequantize, quantize
from mini_engine.course.exercises.e05_bytes import BITS, FP8, NEIGHBOURS, REQUESTS, WINDOW, count_out, quantized_bytes
from mini_engine.course.exercises.e05_cache import held_bytes
from mini_engine.course.exercises.e05_check_quantizer import RIGHT, TEST_QUANTIZER, WRONG, check_quantizer
from mini_engine.geometry import kv_bytes_hybrid, kv_bytes_per_token, kv_bytes_quant, max_concurrency
from mini_engine.models import load_model
from tests.lessons.lesson_run import ROOT

LLAMA = get_model("llama-3-70b")


@pytest.mark.parametrize(
    ("layout", "size"),
    [((8, 128, 2), 166_400), ((8, 32, 2), 174_080), ((4, 32, 2, 2), 102_400), ((4, 32, 2), 92_160), ((2, 32, 2, 2), 61_440)],
)  # fmt: skip
def test_golden_sizes_of_llama_3_70b(layout, size):
    assert quantized_bytes(163_840, *layout) == count_out(163_840, *layout) == kv_bytes_quant(LLAMA, *layout) == size


def test_q8_0_and_q4_0_are_llama_cpps_blocks():
    assert quantized_bytes(32, 8, 32, 2) == 34
    assert quantized_bytes(32, 4, 32, 2) == 18


def test_one_byte():
    sizes = [Fraction(kv_bytes_per_token(LLAMA, dtype), 2**20) for dtype in ("fp32", "bf16", "fp8")]
    assert sizes == [Fraction("0.625"), Fraction("0.3125"), Fraction("0.15625")]
    halves = [kv_bytes_per_token(LLAMA, dtype) // 2 for dtype in ("fp32", "bf16", "fp8")]
    assert [max_concurrency(8 * 10**9, half, 8192) for half in halves] == [2, 5, 11]


def test_predictions_are_what_the_package_computes():
    assert BITS.answer == kv_bytes_quant(LLAMA, 4, 32, 2, 2) * 8 / 163_840
    x = np.concatenate([[14.0], np.linspace(-4.4, 4.4, 31)]).reshape(1, 1, 32)
    assert len(np.unique(quantize(x, -1, 4)[0][0, 0, 1:])) == NEIGHBOURS.answer
    assert fp8_e4m3(75) == FP8.answer
    assert max_concurrency(8 * 10**9, int(kv_bytes_quant(LLAMA, 2, 32, 2, 2)) // 2, 8192) == REQUESTS.answer == 31
    gemma = get_model("gemma-3-1b")
    windows = gemma.layer_windows
    assert (windows.count(None), windows.count(512)) == (4, 22)
    assert kv_bytes_hybrid(gemma, windows, 32_768) == 145_752_064
    assert pytest.approx(872_415_232 / 145_752_064, abs=0.005) == WINDOW.answer


@pytest.mark.parametrize("axis", [-1, 0, 2])
@pytest.mark.parametrize("bits", [8, 5, 2])
def test_half_a_scale_holds_for_any_numbers(axis, bits):
    rng = np.random.default_rng(bits)
    for _ in range(20):
        x = rng.normal(size=(17, 3, 8)) * 10.0 ** rng.uniform(-2, 3, size=(17, 3, 8))
        codes, scale = quantize(x, axis, bits)
        assert np.all(np.abs(dequantize(codes, scale) - x) <= 0.5 * scale.astype(np.float64) * (1 + 1e-6))


def test_the_quantizer_of_the_lesson_is_the_engines():
    """Same codes up to the rounding of a stored scale: the engine rounds it up, the lesson to the nearest."""
    x = np.random.default_rng(0).normal(size=(64, 2, 32))
    codec = IntCodec(8)
    step = np.abs(x).max(axis=-1, keepdims=True) / 127
    assert np.all(np.abs(codec.decode(codec.encode(x)) - dequantize(*quantize(x, -1))) <= 1.01 * step)
    assert codec.encode(x).nbytes == sum(array.nbytes for array in quantize(x, -1)) == 64 * 2 * 34


@pytest.mark.parametrize("name", RIGHT)
def test_right_quantizers_pass_the_lessons_own_test(name):
    check_quantizer(RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_wrong_quantizers_do_not(name):
    with np.errstate(all="ignore"), pytest.raises(AssertionError):
        check_quantizer(WRONG[name])


def test_a_refused_right_quantizer_names_the_group_that_float16_cannot_scale():
    def too_quiet(roundtrip):
        x = np.random.default_rng(0).normal(size=(8, 2, 4)) * 10.0 ** np.arange(-4, 4)[:, None, None]
        half = 0.5 * np.abs(x).max(axis=-1, keepdims=True) / 127
        assert np.all(np.abs(roundtrip(x, -1) - x) <= 1.02 * half)

    outcome = list(run(TEST_QUANTIZER, too_quiet))[-1]
    assert (outcome.status, outcome.property) == ("no", "right quantizers pass")
    assert "keep them between 0.01 and 1,000,000, or 0" in outcome.detail


def test_a_test_that_returns_its_verdict_is_told_to_raise():
    outcome = list(run(TEST_QUANTIZER, lambda roundtrip: False))[-1]
    assert "your test returned False. Raise AssertionError" in outcome.detail


def test_held_bytes_counts_every_array_once():
    cache = JoinsPieces(2, 8, 2, 4)
    k = np.ones((3, 2, 4))
    for layer in range(2):
        cache.append(layer, k, k)
    assert held_bytes(cache) == 2 * 2 * 3 * 2 * (4 + 2)
    cache.again = cache.kept
    assert held_bytes(cache) == 2 * 2 * 3 * 2 * (4 + 2)


@pytest.fixture(scope="module")
def tiny():
    return load_model("tiny-gqa", backend="numpy")


def test_the_lessons_cache_holds_what_the_formula_counts(tiny):
    spec = tiny.spec
    cache = Int8KVCache(spec.num_hidden_layers, 100, spec.num_key_value_heads, spec.head_dim)
    assert cache.nbytes == 100 * kv_bytes_quant(spec, 8, spec.head_dim, 2)


# Text that the lesson stores must come out the same everywhere.


def _crudely(x, bits):
    step = np.abs(x).max() / (2 ** (bits - 1) - 1)
    return np.rint(x / step) * step


def _rounded(bits):
    from mini_engine.attention import causal_attention

    return lambda q, k, v, scale, offset=0: causal_attention(q, _crudely(k, bits), _crudely(v, bits), scale, offset)


STORED = {
    "16 bits": (24, {"attention": _rounded(16)}), "8 bits": (24, {"attention": _rounded(8)}),
    "4 bits": (24, {"attention": _rounded(4)}), "3 bits": (24, {"attention": _rounded(3)}),
    "2 bits": (24, {"attention": _rounded(2)}),
    "exact": (40, {"cache": "contiguous"}), "int8": (40, {"cache": Int8KVCache}),
    "int4 per token": (40, {"cache": partial(QuantizedKVCache, keys=IntCodec(4), values=IntCodec(4))}),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["auto", "fp8", "int8"])
def test_the_paged_engine_writes_the_stored_words(tiny, kind):
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=2)
    llm = LLM("tiny-gqa", backend="torch", kv_cache_dtype=kind, kv_cache_bytes=2**20)
    output = llm.generate(["Emma was"], params, progress=False)[0].outputs[0]
    exact = LLM(tiny).generate(["Emma was"], params, progress=False)[0].outputs[0]
    assert output.token_ids == exact.token_ids
    tops = [sorted(top.values(), reverse=True)[:2] for top in output.logprobs]
    assert min(first - second for first, second in tops) > 1e-2


@pytest.mark.parametrize("name", STORED)
def test_stored_text_has_no_near_tie(tiny, name):
    source = (ROOT / "solutions/05_kv_quantization.py").read_text(encoding="utf-8")
    tokens, options = STORED[name]
    assert '"Emma was"' in source
    assert f"max_tokens={tokens}" in source
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, logprobs=2)
    output = LLM(tiny, **options).generate(["Emma was"], params, progress=False)[0].outputs[0]
    tops = [sorted(top.values(), reverse=True)[:2] for top in output.logprobs]
    assert min(first - second for first, second in tops) > 1e-2
