"""Pictures of lesson 15: the life of a request with the lesson of each part, a machine under load, simulated beside measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mini_engine.course.capacity_plan import DAYS, SHARE, TPOT, TTFT, one_gpu
from mini_engine.course.figures import BLUE, GREEN, GREY, ORANGE
from mini_engine.course.panels.drawing import DEEP, PALE, PAPER, WARM, arrow, box, label, sheet
from mini_engine.data_files import data_dir
from mini_engine.simulator import SimulationSummary
from mini_engine.simulator.against_measured import Comparison, Latency, Part

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GPU, BLOCKS = "l40s", 14_000
RATES, BUDGETS = (2, 3, 4, 5, 6, 7, 8, 9), (512, 2048)


def life_of_a_step() -> tuple[str, str]:
    """SVG and its text: what a request meets in each step, and which lesson each part is from."""
    parts = [
        ("add_request", "or refuse it", "15"),
        ("schedule", "who, how much", "12 13 14"),
        ("match, allocate", "blocks for it", "07 08 09"),
        ("execute", "one forward pass", "01 04 05 10 11"),
        ("sample", "token, or none", "01"),
        ("commit", "now it counts", "12 15"),
    ]
    shapes, words = [], []
    for i, (name, what, lessons) in enumerate(parts):
        x = 14 + 122 * i
        inside = 0 < i < 5
        shapes.append(
            box(x, 60, 112, 62, name, what, fill=DEEP if inside else PALE, ink=PAPER if inside else "#1F2933")
        )
        shapes.append(label(x + 56, 142, f"lesson {lessons}" if " " not in lessons else f"lessons {lessons}", size=11))
        words.append(f"{name} ({what}; lesson {lessons})")
        if i:
            shapes.append(arrow((x - 10, 91), (x - 1, 91)))
    shapes += [
        arrow((692, 60), (692, 26), (192, 26), (192, 58)),
        label(442, 18, "not done yet: the next step", size=11),
        box(258, 176, 234, 44, "rollback", "as if the step had not been planned", fill=WARM),
        arrow((436, 148), (436, 174), dashed=True),
        label(446, 166, "an error", anchor="start", size=11),
        arrow((258, 198), (192, 198), (192, 150), dashed=True),
    ]
    return sheet(746, 236, *shapes), (
        f"Diagram: one step, from left to right: {', '.join(words)}. A request that is not done meets schedule again in the next "
        "step. An error while executing leads to rollback, and from there to the next schedule."
    )


def grid() -> dict[tuple[int, int], SimulationSummary]:
    """Every machine of the panel, simulated once: (budget, requests per second)."""
    return {(budget, rate): at(rate, budget) for budget in BUDGETS for rate in RATES}


def at(rate: int, budget: int) -> SimulationSummary:
    """The first day's trace on one GPU, at this rate and token budget."""
    return one_gpu(DAYS[0], float(rate), GPU, BLOCKS, budget)


def kept(rate: int, budget: int) -> float:
    """Requests per second for which the promise is kept."""
    goodput = at(rate, budget).goodput
    assert goodput is not None
    return rate * goodput.share


def load(figure: Figure, rate: int, budget: int) -> str:
    """Goodput and the latencies of one GPU against the rate that is offered."""
    left, right = figure.subplots(1, 2, gridspec_kw={"wspace": 0.34, "bottom": 0.2})
    left.plot(RATES, RATES, color=GREY, linewidth=1, linestyle=":", label="all in time")
    left.plot(RATES, [SHARE * r for r in RATES], color=GREY, linewidth=1, linestyle="--", label=f"{SHARE:.0%} in time")
    left.plot(RATES, [kept(r, budget) for r in RATES], color=BLUE)
    left.plot([rate], [kept(rate, budget)], "o", color=ORANGE)
    left.set(xlabel="requests/s that come", ylabel="requests/s in time", ylim=(0, 9.5), title=f"budget {budget:,}")
    left.legend(fontsize=8, loc="upper left")
    for name, limit, colour, line in (("ttft", TTFT, BLUE, "-"), ("tpot", TPOT, GREEN, "-.")):
        values = [getattr(at(r, budget), name).p90 / limit for r in RATES]
        right.plot(RATES, values, line, color=colour, label=f"{name.upper()} p90 / {limit:g} s")
    right.axhline(1, color=GREY, linewidth=1, linestyle="--")
    right.axvline(rate, ymax=0.78, color=ORANGE, linewidth=1)
    right.set(xlabel="requests/s that come", ylabel="times the limit", ylim=(0, 4.5), title="latency over its limit")
    right.legend(fontsize=8, loc="upper left")
    now = at(rate, budget)
    assert now.ttft is not None
    assert now.tpot is not None
    assert now.compute_utilization is not None
    return (
        f"{rate} requests/s come, a budget of {budget:,} tokens: {kept(rate, budget):.2f} of them in time; TTFT p90 {now.ttft.p90:.2f} s, "
        f"TPOT p90 {1000 * now.tpot.p90:.0f} ms; {now.mean_in_system:.1f} there on average, {now.peak_block_utilization:.0%} of the "
        f"blocks at most, {now.compute_utilization:.0%} of the peak FLOP/s"
    )


def stored(name: str) -> dict[str, Any]:
    """A stored benchmark report."""
    path = data_dir().parent / f"benchmarks/results/{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def ladders() -> dict[str, list[float]]:
    """The loads, requests per second, that the base and each step above it carry, by service."""
    services = stored("ablation_simulated")["services"]
    return {name: [row["capacity"] for row in found["ladder"]] for name, found in services.items()}


def measured() -> tuple[Comparison, dict[str, Any]]:
    """The stored comparison of simulator and engine, and where and when it was made."""
    found = stored("simulated_against_measured")
    parts = {
        name: Part(
            **{k: part[k] for k in ("steps_measured", "steps_simulated", "median_step_error")},
            latencies={figure: Latency(**each) for figure, each in part["latencies"].items()},
        )
        for name, part in found["parts"].items()
    }
    return Comparison(found["model"], found["rate"], found["constants"], parts), found
