"""What is particular to lesson 04: its oracles and golden numbers, the memory meter, its pictures, its stored text."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ET
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from mini_engine import LLM, SamplingParams
from mini_engine.course import picture
from mini_engine.course.exercises.answers04_gqa import repeats
from mini_engine.course.exercises.answers04_mla import absorbed, expands, head_by_head, one_wide_head
from mini_engine.course.exercises.e04_absorb import absorbed_scores, slow_scores
from mini_engine.course.exercises.e04_flops import DEEPSEEK, count_by_loops, mla_flops
from mini_engine.course.exercises.e04_gqa import GQA_ATTENTION
from mini_engine.course.exercises.e04_mla import random_inputs, slow_mla
from mini_engine.course.exercises.memory04 import expect_frugal, peak_bytes
from mini_engine.course.panels import p04_gqa_and_mla as pictures

ROOT = Path(__file__).resolve().parents[2]


def test_absorption_by_hand():
    q, latent, w_uk = np.array([[2.0, 3.0]]), np.array([[3.0, 1.0]]), np.array([[[5.0, 7.0], [1.0, 0.0]]])
    assert slow_scores(q, latent, w_uk).tolist() == absorbed_scores(q, latent, w_uk).tolist() == [[53.0]]


def test_latent_attention_by_hand():
    """One head, sizes 1: keys are 2 c, values 3 c; scores 0.5 (q 2 c + r)."""
    latent, k_rope = np.array([[1.0], [2.0]]), np.array([[0.0], [4.0]])
    ones = np.ones((1, 1, 1))
    got = slow_mla(ones, ones, latent, k_rope, 2 * ones, 3 * ones, 0.5, offset=1)
    weight = 1 / (1 + np.exp(0.5 * (2 * 2 + 4) - 0.5 * 2))
    assert got.ravel() == pytest.approx([3 * (weight * 1 + (1 - weight) * 2)])


@pytest.mark.parametrize(
    "shape", [{}, {"T": 4, "S": 4, "H": 3}, {"T": 2, "S": 9, "H": 4, "N": 8, "R": 6, "C": 7, "V": 5}]
)
def test_right_answers_agree_with_the_loops_beyond_the_cases_of_the_exercise(shape):
    inputs = random_inputs(**shape)
    offset = len(inputs[2]) - len(inputs[0])
    want = slow_mla(*inputs, 0.3, offset)
    for attention in (absorbed, head_by_head, one_wide_head, expands):
        assert np.abs(attention(*inputs, 0.3, offset) - want).max() < 1e-12


def test_flops_agree_with_a_walk_over_every_product():
    for S, shape, form in itertools.product((1, 4, 9), ((1, 2, 3, 5, 7), (3, 1, 1, 2, 2)), (False, True)):
        for T in range(1, S + 1):
            assert mla_flops(T, S, *shape, form) == count_by_loops(T, S, *shape, form)


def test_golden_numbers_of_the_lesson():
    assert mla_flops(1, 4096, *DEEPSEEK, False) / mla_flops(1, 4096, *DEEPSEEK, True) == pytest.approx(117.31, abs=0.01)
    assert mla_flops(4096, 4096, *DEEPSEEK, True) / mla_flops(4096, 4096, *DEEPSEEK, False) == pytest.approx(
        3.0, abs=0.005
    )
    border = next(
        T for T in range(1, 400) if mla_flops(T, 10**9, *DEEPSEEK, True) > mla_flops(T, 10**9, *DEEPSEEK, False)
    )
    assert border == 171
    found = pictures.kept_and_intensity(128, 8, 512, 4096)
    assert [kept for kept, _ in found.values()] == [32_768, 2_048, 256, 576]
    assert float(found["MLA"][1]) == pytest.approx(228.3, abs=0.05)
    assert float(pictures.RIDGE) == pytest.approx(295.2, abs=0.05)
    assert Fraction(576, 2 * 128) == Fraction(9, 4)


@pytest.mark.parametrize("tokens", [128, 2000])
def test_the_step_times_that_the_lesson_quotes_are_those_that_are_stored(tokens):
    facts = json.loads((ROOT / "data/facts.json").read_text(encoding="utf-8"))
    measured = json.loads((ROOT / "benchmarks/results/mla_decode.json").read_text(encoding="utf-8"))
    assert facts[f"mla_decode_step_{tokens}"]["value"] == measured["steps"][str(tokens)]["expanded_over_absorbed"]


def test_the_meter_sees_what_a_call_allocates():
    given = np.ones(1000)
    frozen = given.nbytes  # what the checker's own copy would take
    assert 800_000 - frozen <= peak_bytes(lambda x: np.zeros(100_000).sum(), given) < 801_000
    assert peak_bytes(lambda x: x.sum(), given) < 2_000
    q, k, v = np.ones((1, 16, 32)), np.ones((512, 2, 32)), np.ones((512, 2, 32))
    assert peak_bytes(repeats, q, k, v, 0.2, 511) > 2 * peak_bytes(GQA_ATTENTION.reference, q, k, v, 0.2, 511)
    with pytest.raises(AssertionError, match="at most 10 bytes at once: a few"):
        expect_frugal(lambda x: np.zeros(1000), (given,), 10, "a case", "a few")


def test_the_diagram_is_a_small_well_formed_svg_with_words():
    source, words = pictures.four_caches()
    root = ET.fromstring(source)
    assert len(source) < 8000
    for name, numbers in (("MHA", "512"), ("GQA", "128"), ("MQA", "64"), ("MLA", "80")):
        assert name in words
        assert f"{numbers} numbers" in words
    for shape in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert int(shape.get("x", 0)) + int(shape.get("width")) <= int(root.get("width"))
        assert int(shape.get("y", 0)) + int(shape.get("height")) <= int(root.get("height"))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "latent", "context"), [(128, 8, 512, 4096), (8, 128, 64, 16), (8, 1, 1024, 131072)]
)
def test_the_panel_says_what_it_shows(heads, kv_heads, latent, context):
    figures = []
    shown = picture(
        lambda figure, **v: figures.append(figure) or pictures.compare(figure, **v),
        query_heads=heads, kv_heads=kv_heads, latent=latent, context=context,
    )  # fmt: skip
    found = pictures.kept_and_intensity(heads, kv_heads, latent, context)
    assert found["MHA"][0] >= found["GQA"][0] >= found["MQA"][0] == 256
    for part, axes in enumerate(figures[0].axes):
        points = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
        assert points == pytest.approx([float(pair[part]) for pair in found.values()])
        low, high = axes.get_xlim()
        assert all(low < point < high for point in points)
        assert "log" in axes.get_xlabel()
    clipped = kv_heads > heads
    assert (f"({kv_heads} would be more than the query heads)" in shown.text) == clipped
    assert bool(figures[0].texts) == clipped
    for kept, intensity in found.values():
        assert f"{kept:,} and {float(intensity):.1f}" in shown.text


def test_the_lines_cross_where_the_picture_says():
    tokens = np.array([1, 10, 100, 1000])
    expanded, absorbed_ = np.full(4, 50.0), np.array([1.0, 10.0, 100.0, 1000.0])
    text = picture(pictures.expand_or_absorb, tokens=tokens, expanded=expanded, absorbed=absorbed_, cached=4096).text
    assert "50 times fewer FLOPs absorbed" in text
    assert "from 100 new tokens on" in text


@pytest.mark.parametrize("name", ["tiny-gqa", "tiny-mla"])
def test_stored_text_has_no_near_tie(name):
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=2)
    output = LLM(name, backend="numpy").generate(["The young lady"], params, progress=False)[0].outputs[0]
    tops = [sorted(top.values(), reverse=True)[:2] for top in output.logprobs]
    assert len(tops) == 24
    assert min(first - second for first, second in tops) > 1e-2
