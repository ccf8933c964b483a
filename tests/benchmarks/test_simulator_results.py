"""The stored figures of the simulator: what a whole trace costs, and how far it is off from the real engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


def stored(name: str) -> dict:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def test_the_whole_trace_is_simulated_in_two_minutes_of_one_core():
    trace = stored("simulate_trace.json")["trace"]
    assert (trace["summary"]["num_requests"], trace["tokens"]) == (19_366, 26_450_535)
    assert trace["summary"]["num_served"] + trace["summary"]["num_rejected"] == 19_366
    assert trace["cpu_seconds"] < 120


@pytest.mark.parametrize("part", ["trace", "repeated"])
def test_memory_does_not_grow_with_what_has_finished(part):
    assert stored("simulate_trace.json")[part]["bytes_per_request"] < 4096


@pytest.mark.parametrize("per", ["us_per_step", "us_per_sequence_and_step"])
def test_steps_cost_as_much_at_the_end_of_the_trace_as_at_its_beginning(per):
    assert stored("simulate_trace.json")["trace"][per]["last_to_first"] <= 1.2


def test_steps_of_the_same_work_cost_the_same_once_the_pool_has_been_used():
    """In the first tenth of the repeated trace some blocks still are blank: none has to be forgotten to be used again."""
    tenths = stored("simulate_trace.json")["repeated"]["us_per_step"]["tenths"]
    assert tenths[-1] / tenths[1] <= 1.2
    assert max(tenths[1:]) / min(tenths[1:]) <= 1.2


def test_simulated_and_measured_medians_agree_on_parts_that_were_not_calibrated_on():
    report = stored("simulated_against_measured.json")
    assert set(report["parts"]) == {"calibration", "second part", "third part"}
    for part in report["parts"].values():
        for figure, of in part["latencies"].items():
            assert of["error"] == pytest.approx(of["simulated"] / of["measured"] - 1, abs=1e-3)
            if figure.endswith("p50"):
                assert abs(of["error"]) <= 0.25


@pytest.mark.parametrize("name", ["simulate_trace.json", "simulated_against_measured.json"])
def test_a_figure_says_where_it_comes_from(name):
    report = stored(name)
    assert report["command"].startswith("python benchmarks/")
    assert "/" not in report["command"].removeprefix("python benchmarks/")
    assert report["machine"]["cores"] >= 1
    assert report["date"]
