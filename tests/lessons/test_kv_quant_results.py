"""What lesson 05 says in words about the measurements on SmolLM2 holds in benchmarks/results/kv_quant.json."""

from __future__ import annotations

import json

import pytest

from tests.lessons.lesson_run import ROOT


@pytest.fixture(scope="module")
def rows():
    stored = json.loads((ROOT / "benchmarks/results/kv_quant.json").read_text(encoding="utf-8"))
    measured = stored["models"]["smollm2-135m"]
    assert (stored["length"], measured["facts"]) == (512, 40), (
        "the lesson says: ten texts of 512 tokens, four facts in each"
    )
    return measured["schemes"]


@pytest.mark.parametrize("name", ["fp8", "int8 per token"])
def test_eight_bits_cost_nothing(rows, name):
    assert abs(rows[name]["worse_by"]) < 2 * rows[name]["standard_error"]
    assert rows[name]["found"] >= rows["fp32"]["found"]


def test_four_bits_depend_on_who_shares_a_scale(rows):
    assert rows["int4 per token"]["worse_by"] == pytest.approx(0.1, abs=0.04)
    assert rows["int4 per token"]["found"] < 0.65 * rows["fp32"]["found"]
    assert rows["int4 KIVI"]["worse_by"] == pytest.approx(0.01, abs=0.005)
    assert rows["int4 KIVI"]["found"] >= rows["fp32"]["found"]


def test_two_bits_break_it(rows):
    assert rows["int2 KIVI"]["worse_by"] < 0.4 * rows["int2 per token"]["worse_by"]
    assert rows["int2 KIVI"]["found"] == rows["int2 per token"]["found"] == 0


def test_sinks_mend_the_loss_and_not_the_memory(rows):
    bare, sinks = rows["window 128"], rows["window 124 + 4 sinks"]
    assert bare["worse_by"] > 5 * sinks["worse_by"]
    assert sinks["worse_by"] == pytest.approx(rows["int4 per token"]["worse_by"], abs=0.04)
    assert sinks["found_by_quarter"][:3] == bare["found_by_quarter"][:3] == [0, 0, 0]
    assert (rows["int4 per token"]["found"], sinks["found"]) == (19, 8), "the lesson quotes both"
