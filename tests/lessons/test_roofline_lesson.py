"""What is particular to lesson 03: its oracles against the calculators, its counts against the engine, its pictures."""

from __future__ import annotations

import dataclasses
import itertools
import re
import xml.etree.ElementTree as ET
from fractions import Fraction

import numpy as np
import pytest

from mini_engine import get_gpu, get_model
from mini_engine.course import picture
from mini_engine.course.check import run
from mini_engine.course.exercises.answers03_largest_batch import by_trying, largest_batch
from mini_engine.course.exercises.answers03_min_tokens import intensity
from mini_engine.course.exercises.e03_attention_cost import attention_cost, count_by_loops
from mini_engine.course.exercises.e03_largest_batch import LARGEST_BATCH, toy
from mini_engine.course.exercises.e03_least_time import LEAST_TIME
from mini_engine.course.exercises.e03_min_tokens import MIN_TOKENS
from mini_engine.course.gpu_share import gpu_share, half_70b
from mini_engine.course.measured_steps import measure_products, measure_steps, step_bytes, step_work
from mini_engine.course.panels import p03_decode, p03_intensity, p03_two_clocks
from mini_engine.models import random_model
from mini_engine.roofline import attn_decode_intensity, gemm_intensity, min_tokens_compute_bound
from mini_engine.roofline.measure import MachineRates, Measured
from mini_engine.sizing import size

SMALL = dataclasses.replace(
    get_model("smollm2-135m"), num_hidden_layers=2, vocab_size=1024, hidden_size=64, intermediate_size=96,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16,
)  # fmt: skip


# Oracles and answers.


def test_the_oracles_agree_with_the_calculators():
    for M, K, N in itertools.product((1, 2, 7), (1, 3, 8), (2, 8)):
        assert intensity(M, K, N) == gemm_intensity(M, K, N)
    for n_q, n_kv, S, B in ((4, 4, 1, 1), (4, 2, 3, 2), (6, 1, 5, 3)):
        for shared in (False, True):
            flops, moved = count_by_loops(n_q, n_kv, 4, S, B, shared)
            assert (flops, moved) == attention_cost(n_q, n_kv, 4, S, B, shared)
            calculated = attn_decode_intensity(n_q, n_kv, 4, S, sharers=B if shared else 1)
            assert Fraction(flops, moved) == calculated


def test_no_smaller_batch_of_tokens_reaches_the_ridge():
    for K, N, ridge in ((8, 8, 2), (12, 20, 3), (600, 600, Fraction(19780, 67))):
        M = min_tokens_compute_bound(K, N, ridge)
        assert intensity(M, K, N) >= ridge > intensity(M - 1, K, N)


def test_the_share_of_a_gpu_is_what_the_sizing_command_counts():
    share = half_70b()
    sizing = size(get_model("llama-3-70b"), get_gpu("h100-sxm"), tp=2, context=8192, batch=32, num_params=70 * 10**9)
    assert share.weight_bytes == sizing.weights_per_gpu
    assert share.kv_bytes_per_token == sizing.kv_per_token_per_gpu
    assert share.kv_budget == sizing.budget
    table = 128_256 * 8192  # the embedding, on one GPU of two: the command knows that it is only looked up
    read = dataclasses.replace(share, weight_bytes=share.weight_bytes - table)
    assert p03_decode.seconds(read, 8192, 32) == pytest.approx(float(sizing.step.total))


def test_a_model_that_does_not_fit_leaves_no_budget():
    assert gpu_share(get_model("llama-3-70b"), get_gpu("h100-sxm"), 1, 70 * 10**9).kv_budget == 0


@pytest.mark.parametrize("seed", range(20))
def test_the_largest_batch_is_found_by_formula_and_by_trying(seed):
    rng = np.random.default_rng(seed)
    budget, weights, peak = (int(n) for n in rng.integers(1, 3000, 3))
    gpu, S, seconds = toy(budget, peak, weights), int(rng.integers(1, 20)), int(rng.integers(1, 400)) / 8
    assert largest_batch(gpu, S, seconds) == by_trying(gpu, S, seconds)


def _by_floats(K, N, ridge):
    gain = K * N - float(ridge) * (K + N)
    return int(np.ceil(float(ridge) * K * N / gain - 1e-6)) if gain > 1e-6 else None


NATURAL = [
    (LEAST_TIME, lambda f, b, p, w: np.array([max(f / p, b / w), f / p / max(f / p, b / w)]).tolist()),
    (LEAST_TIME, lambda f, b, p, w: np.array([max(f / p, b / w), f / p / max(f / p, b / w)])),
    (LEAST_TIME, lambda f, b, p, w: (np.maximum(f / p, b / w), min(1, (f / p) / (b / w)) if b else 1)),
    (MIN_TOKENS, _by_floats),
    (MIN_TOKENS, lambda K, N, r: next((M for M in range(1, 20_000) if intensity(M, K, N) >= r), None)),
    (MIN_TOKENS, lambda K, N, r: None if r * (K + N) >= K * N else np.int64(-(-r * K * N // (K * N - r * (K + N))))),
    (LARGEST_BATCH, lambda g, S, t: np.int64(largest_batch(g, S, t))),
]


@pytest.mark.parametrize(("exercise", "answer"), NATURAL, ids=[f"{e.id} {i}" for i, (e, _) in enumerate(NATURAL)])
def test_right_answers_written_naturally_pass(exercise, answer):
    assert [(o.property, o.detail) for o in run(exercise, answer) if o.status != "ok"] == []


# Counts against the engine.


def test_step_counts_agree_with_the_model_that_runs():
    model = random_model(SMALL)
    matrices = SMALL.vocab_size * SMALL.hidden_size  # the head; the embedding is looked up
    H, K, D, d, ff = 4, 2, 16, 64, 96
    matrices += 2 * (d * (H + 2 * K) * D + H * D * d + 3 * d * ff)
    assert step_bytes(SMALL, [0], 2, 4) == 2 * matrices
    assert step_bytes(SMALL, [3, 5], 2, 4) == 2 * matrices + 4 * (3 + 5) * 2 * 2 * K * D
    # One token after n: two FLOPs a parameter of the matrices, and 4 H D for each of n + 1 scores in both layers.
    assert step_work(SMALL, [1], [6]) == 2 * matrices + 2 * 4 * H * D * 7
    assert step_work(SMALL, [1, 1], [6, 6]) == 2 * step_work(SMALL, [1], [6])
    prompt, decode = measure_steps(model, [8], [2], context=4, steps=2)
    assert (prompt.name, prompt.flops) == ("prefill 8", step_work(SMALL, [8], [0]))
    assert (decode.name, decode.flops) == ("decode 2", step_work(SMALL, [1, 1], [5, 5]))
    assert decode.bytes == step_bytes(SMALL, [6, 6], 2, 4)
    assert min(prompt.seconds, decode.seconds) > 0


def test_products_are_counted_as_the_lesson_counts_them():
    one, many = measure_products([1, 8], size=64, weight_bytes=1 << 14, repeats=1)
    assert (one.flops, many.flops) == (2 * 64 * 64, 8 * 2 * 64 * 64)
    assert many.bytes - one.bytes == 7 * 4 * 2 * 64
    assert one.bytes >= 2 * 64 * 64


# Pictures.

DIAGRAMS = [p03_two_clocks.two_clocks, p03_two_clocks.who_reads_what]


@pytest.mark.parametrize("diagram", DIAGRAMS, ids=lambda f: f.__name__)
def test_diagrams_are_small_well_formed_svg_with_words(diagram):
    source, words = diagram()
    root = ET.fromstring(source)
    assert len(source) < 6000
    assert len(words) > 60
    for shape in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert int(shape.get("x", 0)) + int(shape.get("width")) <= int(root.get("width"))
        assert int(shape.get("y", 0)) + int(shape.get("height")) <= int(root.get("height"))


@pytest.mark.parametrize(
    ("batch", "new_tokens", "d", "words"),
    [
        (1, 1000, 8192, "803.8 FLOP/B (limit M = 1,000, limit d / 2 = 4,096); H100 SXM needs 295.2: compute bound; compute bound from 319"),
        (1, 100, 8192, "97.6 FLOP/B (limit M = 100, limit d / 2 = 4,096); H100 SXM needs 295.2: memory bound"),
        (1, 1, 8192, "1 token in the step, 1.0 FLOP/B"),
        (512, 2048, 512, "never compute bound, since d / 2 = 256"),
    ],
)  # fmt: skip
def test_gemm_readout(batch, new_tokens, d, words):
    assert words in picture(p03_intensity.gemm, batch=batch, new_tokens=new_tokens, d=d).text


@pytest.mark.parametrize(
    ("context", "batch", "words"),
    [
        (8192, 32, ["step 33.7 ms", "949 tokens/s (+58%", "5 sequences fit", "no batch makes more than 2,496 tokens/s, by reading K/V", "no batch is compute bound"]),
        (1024, 32, ["step 22.5 ms", "1,422 tokens/s", "47 sequences fit", "from batch 948 on"]),
        (512, 1, ["+0% time", "from batch 451 on", "more than 13,994 tokens/s, by computing"]),
        (32768, 1, ["; 1 sequence fits;"]),
    ],
)  # fmt: skip
def test_batching_readout(context, batch, words):
    text = picture(p03_decode.batching, context=context, batch=batch).text
    for each in words:
        assert each in text


@pytest.mark.parametrize("gpu", ["a100-80gb-sxm", "h100-sxm", "h200-sxm", "b200-sxm"])
@pytest.mark.parametrize("context", [128, 1024, 32768])
def test_every_point_and_curve_of_the_batching_picture_is_inside_its_axes(gpu, context):
    figures = []
    picture(lambda f, **v: figures.append(f) or p03_decode.batching(f, **v), context=context, batch=948, gpu=gpu)
    for axes in figures[0].axes:
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        for line in axes.lines:
            x, y = (np.asarray(each, dtype=float) for each in line.get_data())
            inside = (x >= left) & (x <= right)
            assert (y[inside] > bottom).all()
            assert (y[inside] < top).all()
        share = half_70b(gpu)
        fits = share.kv_budget // (share.kv_bytes_per_token * context)
        shaded = axes.patches[0].get_extents().transformed(axes.transData.inverted()).x0
        assert min(fits, 2500) < shaded, "a batch that fits is not shaded"
        assert shaded <= max(fits, 2500) + 1 or fits > right


@pytest.mark.parametrize("context", [128, 512, 1024, 2048, 8192])
def test_no_batch_makes_more_tokens_than_the_limit(context):
    share = half_70b()
    limit, by = p03_decode.most(share, context)
    rates = [batch / float(p03_decode.seconds(share, context, batch)) for batch in (1, 64, 948, 10**7)]
    assert max(rates) <= limit * (1 + 1e-12)
    assert max(rates) == pytest.approx(limit, rel=0.01)
    assert by == ("computing" if context < 1488 else "reading K/V")


def test_attention_readout_finds_where_a_shared_context_passes_the_ridge():
    crossing = int(re.search(r"at B = (\d+)", picture(p03_intensity.attention, context=8192).text)[1])
    ridge = Fraction(19780, 67)
    at = [attn_decode_intensity(64, 8, 128, 8192, sharers=B) for B in (crossing - 1, crossing)]
    assert at[0] < ridge <= at[1]


def test_measured_readout_gives_the_share_of_the_roof():
    rates = MachineRates(flops=100e9, bandwidth=10e9)
    steps = [Measured("decode 1", 10, 10, 2e-9), Measured("prefill 64", 1000, 10, 2e-8)]
    text = picture(p03_decode.measured, rates=rates, products=[steps[0]], steps=steps).text
    assert text == "share of the roof reached: decode 1 50%, prefill 64 50%"
