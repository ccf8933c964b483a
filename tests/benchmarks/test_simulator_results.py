"""The stored figures of the simulator: what a whole trace costs, and how far it is off from the real engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


def stored(name: str) -> dict:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def test_simulated_and_measured_medians_agree_on_parts_that_were_not_calibrated_on():
    report = stored("simulated_against_measured.json")
    assert set(report["parts"]) == {"calibration", "second part", "third part"}
    for part in report["parts"].values():
        for figure, of in part["latencies"].items():
            assert of["error"] == pytest.approx(of["simulated"] / of["measured"] - 1, abs=1e-3)
            if figure.endswith("p50"):
                assert abs(of["error"]) <= 0.25


@pytest.mark.parametrize("name", ["simulated_against_measured.json"])
def test_a_figure_says_where_it_comes_from(name):
    report = stored(name)
    assert report["command"].startswith("python benchmarks/")
    assert "/" not in report["command"].removeprefix("python benchmarks/")
    assert report["machine"]["cores"] >= 1
    assert report["date"]
