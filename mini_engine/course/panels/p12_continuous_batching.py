"""Pictures of lesson 12: the loop of iteration-level scheduling, and timelines of batches under three policies."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from mini_engine.course.panels.drawing import PALE, arrow, box, label, sheet
from mini_engine.course.panels.p03_intensity import counted
from mini_engine.course.timeline import Timeline, draw, timeline
from mini_engine.simulator import SimulationResult, simulate, summarize
from mini_engine.workload import Trace, TraceRequest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROMPT, ANSWER = 1000, 16
POLICIES = {"request": "static", "iteration": "iteration", "iteration + chunks": "chunked"}


def lengths(requests: int, spread: int) -> list[int]:
    """Answers of 16 tokens on average; the shortest and the longest are `spread` away, and short and long ones mixed."""
    places = sorted(range(requests), key=lambda i: i * 5 % requests)
    step = 2 * spread / max(1, requests - 1)
    return [ANSWER if requests == 1 else round(ANSWER - spread + step * place) for place in places]


def batch_of(requests: int, spread: int) -> Trace:
    """All there at once."""
    return Trace("batch", tuple(TraceRequest(0.0, PROMPT, output) for output in lengths(requests, spread)))


@cache
def run(unit: str, requests: int, spread: int, seats: int) -> SimulationResult:
    """Llama-3-8B on one H100; with chunks, a step computes at most 256 tokens."""
    return simulate(
        batch_of(requests, spread),
        record=True,
        batching=POLICIES[unit],
        max_num_seqs=seats,
        max_num_batched_tokens=256 if unit == "iteration + chunks" else None,
        prefix_cache=False,
    )


def batching(figure: Figure, unit: str, requests: int, spread: int, seats: int) -> str:
    """The timeline of one batch of requests, scheduled in one of three units; the axis of steps is that of the longest of them."""
    results = {each: run(each, requests, spread, seats) for each in POLICIES}
    line, summary = timeline(results[unit]), summarize(results[unit])
    together(figure, line)
    (axes,) = figure.axes
    axes.set(title=f"scheduled by {unit}", xlim=(0, max(each.usage.num_steps for each in results.values()) + 1))
    axes.set_ylim(max(4, requests) - 0.4, -0.6)
    axes.locator_params(axis="x", integer=True)
    outputs = lengths(requests, spread)
    assert summary.e2e is not None
    longest = "" if summary.itl is None else f"; the longest gap between two tokens is {summary.itl.max * 1000:.0f} ms"
    padding = line.count("padding")
    share = padding / (padding + line.count("prefill", "chunk", "decode"))
    return (
        f"{unit}: {counted(requests, 'request')} of {PROMPT:,} tokens, answers of {ANSWER} give or take {spread} ({min(outputs)} to {max(outputs)}), "
        f"on {counted(seats, 'seat')}: "
        f"{line.num_steps} steps, {share:.0%} of the cells are padding, and a request has its answer after "
        f"{summary.e2e.mean * 1000:,.0f} ms on average{longest}"
    )


def together(figure: Figure, lines: Timeline | Mapping[str, Timeline], x: str = "steps") -> str:
    """One timeline, or several under each other: a row a request."""
    told = draw(figure, lines, x=x)
    for axes in figure.axes:
        axes.set_ylabel("request")
    return told


def loop() -> tuple[str, str]:
    """SVG and its text: the loop that decides anew at every step."""
    shapes = [
        box(20, 60, 110, 52, "waiting", "in order of arrival", fill=PALE),
        box(190, 60, 130, 52, "schedule", "who runs this step?", fill="#F3D9E8"),
        box(380, 60, 130, 52, "forward", "one step of all", fill="#FBE3B0"),
        box(570, 60, 124, 52, "commit", "a token for each", fill="#CFE6DA"),
        arrow((130, 86), (189, 86)),
        arrow((320, 86), (379, 86)),
        arrow((510, 86), (569, 86)),
        arrow((632, 112), (632, 160), (255, 160), (255, 113)),
        label(444, 152, "iteration level: back here after every step", bold=True),
        arrow((660, 60), (660, 26), (704, 26)),
        label(654, 30, "done: leaves at once", anchor="end"),
        arrow((600, 112), (600, 196), (75, 196), (75, 113), dashed=True),
        label(338, 190, "request level: back here when the whole batch is done"),
    ]
    words = (
        "Diagram: requests wait in order of arrival, then comes a loop of three boxes. Schedule asks who runs this step, forward computes one step of all, commit gives each a "
        "token. With iteration-level scheduling a line leads from commit back to schedule after every step, and who is done "
        "leaves at once. With request-level scheduling a dashed line leads back to the waiting ones when the whole batch is done."
    )
    return sheet(714, 212, *shapes), words
