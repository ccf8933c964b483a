"""What lesson 05 says in words about the measurements on SmolLM2 holds in benchmarks/results/kv_quant.json."""

from __future__ import annotations

import json

import pytest

from tests.lessons.lesson_run import ROOT


@pytest.fixture(scope="module")
def stored():
    return json.loads((ROOT / "benchmarks/results/kv_quant.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def small(stored):
    return stored["models"]["tiny-gqa"]["schemes"]


@pytest.fixture(scope="module")
def rows(stored):
    measured = stored["models"]["smollm2-135m"]
    assert (stored["length"], measured["facts"]) == (512, 40), (
        "the lesson says: ten texts of 512 tokens, four facts in each"
    )
    return measured["schemes"]


@pytest.mark.parametrize("name", ["fp8", "int8 per token"])
def test_eight_bits_cost_nothing(rows, name):
    assert abs(rows[name]["worse_by"]) < 2 * rows[name]["standard_error"]
    assert rows[name]["found"] >= rows["fp32"]["found"]


def test_equal_bits_are_compared(rows):
    """4.5 bits without a zero, 5 with one: at each, KIVI's grouping loses about a fifth and finds more."""
    for zero, bits in (("no zero", 4.5), ("zero", 5)):
        token, kivi = rows[f"int4 per token, {zero}"], rows[f"int4 KIVI, {zero}"]
        assert token["bytes_per_token"] == kivi["bytes_per_token"] == bits / 32 * rows["fp32"]["bytes_per_token"]
        assert kivi["worse_by"] == pytest.approx(0.2 * token["worse_by"], rel=0.15)
        assert kivi["found"] > token["found"]
    for grouping in ("per token", "KIVI"):
        without, with_zero = rows[f"int4 {grouping}, no zero"], rows[f"int4 {grouping}, zero"]
        assert with_zero["worse_by"] < without["worse_by"], "a zero improves both"
        assert with_zero["found"] > without["found"]


def test_what_the_lesson_says_of_four_bits(rows):
    assert rows["int4 per token, no zero"]["worse_by"] == pytest.approx(0.1, abs=0.04)
    assert rows["int4 per token, no zero"]["found"] < 0.65 * rows["fp32"]["found"]
    assert rows["int4 KIVI, no zero"]["found"] == 28
    assert rows["int4 KIVI, zero"]["worse_by"] == pytest.approx(0.01, abs=0.005)
    assert rows["int4 KIVI, zero"]["found"] >= rows["fp32"]["found"]
    assert rows["int8 per token"]["bytes_per_token"] - rows["fp8"]["bytes_per_token"] == 360


def test_two_bits_break_it(rows):
    assert rows["int2 KIVI, zero"]["worse_by"] < 0.4 * rows["int2 per token, zero"]["worse_by"]
    assert rows["int2 KIVI, zero"]["found"] == rows["int2 per token, zero"]["found"] == 0


def test_below_eight_bits_the_small_model_loses_far_less(rows, small):
    for name, row in rows.items():
        if name.startswith(("int4", "int2", "window")):
            assert row["worse_by"] > 4 * small[name]["worse_by"], name


def test_sinks_mend_the_loss_and_not_the_memory(rows):
    sizes = [rows[name]["bytes_per_token"] for name in ("window 128", "fp8")]
    assert sizes == [rows["fp32"]["bytes_per_token"] / 4] * 2
    bare, sinks = rows["window 128"], rows["window 124 + 4 sinks"]
    assert bare["worse_by"] > 5 * sinks["worse_by"]
    assert sinks["worse_by"] == pytest.approx(rows["int4 per token, no zero"]["worse_by"], abs=0.04)
    assert sinks["found_by_quarter"][:3] == bare["found_by_quarter"][:3] == [0, 0, 0]
    assert (rows["int4 per token, no zero"]["found"], sinks["found"]) == (19, 8), "the lesson quotes both"
