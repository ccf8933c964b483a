"""A picture of the simulator beside the engine that it imitates: each latency as simulated, over the same as measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mini_engine.course.figures import BLUE, GREY, ORANGE
from mini_engine.simulator.against_measured import Comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = ("o", "s", "^")


def errors(figure: Figure, comparison: Comparison, tolerance: float = 0.25) -> str:
    """Simulated over measured for every latency of every part, 1 where they agree. Returns the errors in words."""
    figure.subplots_adjust(left=0.12, bottom=0.14, right=0.72)
    axes = figure.subplots()
    axes.axhspan(1 - tolerance, 1 + tolerance, color=ORANGE, alpha=0.12, linewidth=0)
    axes.axhline(1, color=GREY, linewidth=1.2)
    for k, (name, part) in enumerate(comparison.parts.items()):
        ratios = [1 + each.error for each in part.latencies.values()]
        places = [x + 0.18 * (k - 1) for x in range(len(ratios))]
        axes.plot(
            places, ratios, MARKS[k], color=GREY if k == 0 else BLUE, label=name, fillstyle="none" if k == 2 else "full"
        )
    figures = [
        name.replace("_p", " p").upper().replace(" P", " p") for name in next(iter(comparison.parts.values())).latencies
    ]
    axes.set_xticks(range(len(figures)), figures)
    axes.grid(axis="x", visible=False)
    ratios = [1 + each.error for part in comparison.parts.values() for each in part.latencies.values()]
    axes.set_ylim(min(0.5, *ratios) - 0.05, max(1.5, *ratios) + 0.05)
    axes.set_ylabel("simulated / measured")
    axes.set_title(f"{comparison.model} on a CPU, one thread")
    axes.legend(
        loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=8, title=f"band: ±{tolerance:.0%}", title_fontsize=8
    )
    told = [
        f"{name}: "
        + ", ".join(
            f"{figure.split('_')[0].upper()} {each.error:+.0%}"
            for figure, each in part.latencies.items()
            if figure.endswith("p50")
        )
        for name, part in comparison.parts.items()
    ]
    return f"simulated against measured medians, {'; '.join(told)}"
