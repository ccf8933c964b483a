"""The stored figures of the ablation: where they come from, and what they may and may not say."""

from __future__ import annotations

import json
from pathlib import Path

import ablation
import pytest

from mini_engine.simulator.ablation import BASE, ORDER, OTHER_ORDER, Service, rungs, rungs_alone
from mini_engine.simulator.sweep import Point
from tests.benchmarks.ablation_checks import check_counts, check_origin

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


def stored(part: str) -> dict:
    return json.loads((RESULTS / f"ablation_{part}.json").read_text(encoding="utf-8"))


def test_where_the_simulated_figures_come_from():
    check_origin(stored("simulated"))
    for service in stored("simulated")["services"].values():
        assert service["trace"].startswith("synthetic_") or "attribution" in service


@pytest.mark.skipif(not (RESULTS / "ablation_engine.json").exists(), reason="the engine's part is not measured yet")
def test_the_engine_was_measured_on_the_real_model_and_counted_what_it_must():
    engine = stored("engine")
    check_origin(engine)
    assert (engine["model"], set(engine["workloads"])) == ("smollm2-135m", {"conversation", "one document"})
    assert engine["machine_was_shared"] is (engine["load_average_before"] > 0.5)
    check_counts(engine)


def test_stored_ladders_have_every_rung_and_agree_where_options_do():
    services = stored("simulated")["services"]
    assert set(ablation.SERVICES) <= set(services) <= {*ablation.SERVICES, *ablation.PUBLIC}
    expected = {"ladder": rungs(ORDER), "another order": rungs(OTHER_ORDER), "each alone": rungs_alone()}
    for service in services.values():
        for label, listed in expected.items():
            assert [row["name"] for row in service[label]] == [rung.name for rung in listed]
        assert service["ladder"][0] == service["another order"][0] == service["each alone"][0]
        last, other = (dict(service[label][-1]) for label in ("ladder", "another order"))
        assert {**last, "name": "", "changed": ""} == {**other, "name": "", "changed": ""}
        assert all(row["padding"] == 0 for row in service["ladder"][2:])


def test_stored_gains_do_not_multiply():
    """What pages, chunks (with iteration-level scheduling) and the prefix cache gain alone, multiplied, is not what they gain
    together."""
    rows = stored("simulated")["services"]["chats on one system prompt"]
    base, paging, _, chunking, prefix = (row["capacity"] for row in rows["each alone"])
    product = paging / base * chunking / base * prefix / base
    assert rows["ladder"][-1]["capacity"] / base > 2 * product


def test_the_stored_factor_depends_on_the_limits():
    """The same requests on the same machine, promised more or less."""
    services = stored("simulated")["services"]
    tight, wide = (services[name]["ladder"] for name in ("conversation", "conversation, wide limits"))
    assert tight[-1]["capacity"] / tight[0]["capacity"] > 1.5 * wide[-1]["capacity"] / wide[0]["capacity"]


def test_steps_that_do_nothing_are_stored_as_such():
    services = stored("simulated")["services"]
    for service in services.values():
        alone = {row["name"]: row for row in service["each alone"]}
        assert alone["prefix cache alone"]["capacity"] == service["ladder"][0]["capacity"]
    chats, conversation = services["chats on one system prompt"]["ladder"], services["conversation"]["ladder"]
    assert chats[4]["hits"] > 0.5
    assert chats[4]["capacity"] > 2 * chats[3]["capacity"]
    assert conversation[4]["hits"] == 0


def test_a_step_that_costs_capacity_is_stored_as_such():
    """Pages under static batches let more rows in, all padded to the longest prompt, and a batch of them ends later."""
    static, paging = stored("simulated")["services"]["long prompts"]["ladder"][:2]
    assert paging["capacity"] < static["capacity"]
    assert paging["padding"] > static["padding"]


@pytest.mark.parametrize("rung", [0, 2, 4])
def test_the_simulator_still_says_what_is_stored(rung):
    """The figures at the fixed rate, computed anew."""
    service, row = Service(), stored("simulated")["services"]["chats on one system prompt"]["ladder"][rung]
    options = {"model": service.model, "gpu": service.gpu, **rungs()[rung].options}
    limits = {"ttft": service.ttft, "tpot": service.tpot}
    s = Point(trace=service.trace, rate=service.rate, options=options, limits=limits).run()
    assert set(BASE) < set(options)
    assert s.goodput is not None
    assert s.goodput.share == pytest.approx(row["met"], abs=1e-4)
    assert s.output_tokens_per_s == pytest.approx(row["output_tokens_per_s"], abs=1e-3)
    assert s.itl is not None
    assert s.itl.p99 == pytest.approx(row["itl_p99"], abs=1e-4)
