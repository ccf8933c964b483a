"""The comparison runs on the small model; how well it comes out is a benchmark's business, not a test's."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from mini_engine.course.figures import new_figure, style
from mini_engine.course.panels.simulated_against_measured import errors
from mini_engine.roofline.measure import MachineRates
from mini_engine.simulator.against_measured import PARTS, Comparison, Latency, Part, simulated_against_measured
from mini_engine.workload import load_trace

STORED = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "simulated_against_measured.json"


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    from mini_engine.models import load_model

    model = load_model("tiny-gqa", backend="torch").model
    rates = MachineRates(flops=2e11, bandwidth=3e10)
    return simulated_against_measured(
        model, load_trace("synthetic_azure_conv.csv"), name="tiny-gqa", requests=6, lengths_divided_by=32, rates=rates
    )


def test_every_part_is_served_by_both(comparison):
    assert tuple(comparison.parts) == PARTS
    for part in comparison.parts.values():
        assert part.steps_measured > 10
        assert part.steps_simulated > 10
        assert set(part.latencies) == {"ttft_p50", "ttft_p90", "itl_p50", "itl_p90"}
        for of in part.latencies.values():
            assert 0 < of.measured < 60
            assert 0 < of.simulated < 60
            assert of.error == pytest.approx(of.simulated / of.measured - 1, abs=0.01)
    assert comparison.rate > 0
    assert all(value >= 0 for value in comparison.constants.values())


def test_it_says_so_in_words_and_json(comparison):
    lines = str(comparison).splitlines()
    assert len(lines) == 1 + 3 * 5
    assert lines[0].startswith("tiny-gqa, ")
    assert (
        json.loads(json.dumps(comparison.to_json()))["parts"]["second part"]["latencies"]["itl_p50"]["error"]
        is not None
    )


def test_the_picture_tells_the_errors():
    """Drawn of the stored comparison, and of one that is off by more than the picture's band."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    parts = {
        name: Part(**(of | {"latencies": {figure: Latency(**each) for figure, each in of["latencies"].items()}}))
        for name, of in stored["parts"].items()
    }
    comparison = Comparison(stored["model"], stored["rate"], stored["constants"], parts)
    off = {
        name: dataclasses.replace(part, latencies={k: Latency(1.0, 4.0, 3.0) for k in part.latencies})
        for name, part in parts.items()
    }
    for each, told in (
        (comparison, f"{parts['second part'].latencies['itl_p50'].error:+.0%}"),
        (dataclasses.replace(comparison, parts=off), "+300%"),
    ):
        with style():
            figure = new_figure()
            words = errors(figure, each)
        assert told in words
        axes = figure.axes[0]
        low, high = axes.get_ylim()
        drawn = [y for line in axes.lines[1:] for y in line.get_ydata()]
        assert len(drawn) == 12
        assert all(low < y < high for y in drawn)


@pytest.mark.parametrize("options", [{"requests": 0}, {"load": -1}, {"load": float("nan")}])
def test_what_makes_no_sense_is_refused(options, tiny_gqa):
    with pytest.raises(ValueError, match=next(iter(options))):
        simulated_against_measured(tiny_gqa.model, load_trace("synthetic_azure_conv.csv"), **options)
