"""Pictures of lesson 01: who looks at whom, what a cache saves and costs, and how one step grows with the context."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mini_engine.course.figures import BLUE, GREY, ORANGE
from mini_engine.course.panels.drawing import DEEP, PALE, WARM, arrow, cell, label, sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_ON_WHITE = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none"}


def causal_triangle() -> tuple[str, str]:
    """SVG and its text: the score table of six tokens, and what the seventh adds."""
    size, left, top = 26, 128, 44
    shapes = [
        label(left + 90, 22, "keys: tokens 0 to 6", bold=True),
        label(22, 150, "queries", bold=True, anchor="start"),
    ]
    for row in range(7):
        shapes.append(label(left - 12, top + size * row + 17, f"{row}", anchor="end"))
        for column in range(7):
            new = row == 6
            fill = (WARM if new else DEEP) if column <= row else PALE
            shapes.append(cell(left + size * column, top + size * row, size, fill))
    shapes += [
        label(350, 78, "Rows 0 to 5 are done.", anchor="start", bold=True),
        label(350, 98, "Nothing in them looks to the right,", anchor="start"),
        label(350, 115, "so token 6 cannot change them.", anchor="start"),
        arrow((470, 214), (318, 214)),
        label(476, 202, "Row 6 is new. It needs", anchor="start", bold=True),
        label(476, 219, "q of token 6,", anchor="start"),
        label(476, 236, "K and V of tokens 0 to 6.", anchor="start"),
    ]
    words = (
        "Diagram: a table of 7 queries by 7 keys. Row t is filled up to column t. Rows 0 to 5 are finished and do not look "
        "at token 6. Only row 6 is new: it needs the query of token 6 and the keys and values of tokens 0 to 6."
    )
    return sheet(670, 252, *shapes), words


def savings(figure: Figure, prompt: int, output: int, bytes_per_token: int = 4096) -> str:
    """Token-forwards up to each new token, without and with a cache, and the bytes the cache holds. Returns them in words."""
    figure.set_layout_engine("constrained")
    i = np.arange(1, output + 1)
    without = i * prompt + i * (i - 1) // 2
    cached = prompt + i - 1
    saved = f"{without[-1] / cached[-1]:,.1f} times fewer" if output > 1 else "nothing saved"
    work, memory = figure.subplots(1, 2)
    points = "o" if output == 1 else None  # a line of one point is invisible
    work.plot(i, without, color=ORANGE, marker=points, markersize=11, label="without a cache")
    work.plot(i, cached, color=BLUE, marker=points, label="with a cache")
    work.fill_between(i, cached, without, color=GREY, alpha=0.15, linewidth=0)
    work.set(yscale="log", xlabel="new tokens", title="token-forwards so far (log scale)")
    work.set_ylim(prompt / 2, 20 * without[-1])  # room for the legend above the lines
    work.legend(loc="upper left", fontsize=8)
    work.annotate(saved, (i[-1], (without[-1] * cached[-1]) ** 0.5),
                  xytext=(-6, 0), textcoords="offset points", ha="right", va="center", fontsize=9, bbox=_ON_WHITE)  # fmt: skip
    memory.plot(i, cached * bytes_per_token / 2**20, color=BLUE, marker=points)
    memory.set(xlabel="new tokens", title="cache in use (MiB)", ylim=(0, 1.1 * cached[-1] * bytes_per_token / 2**20))
    for axes in (work, memory):
        axes.set_xlim(0, output + 1)
        axes.xaxis.get_major_locator().set_params(integer=True)
    held = int(cached[-1]) * bytes_per_token
    return (
        f"prompt {prompt:,}, output {output:,}: {without[-1]:,} token-forwards without a cache, {cached[-1]:,} with one, "
        f"{saved}; the cache ends at {held:,} B = {held / 2**20:.2f} MiB = {held / 1e6:.2f} MB"
    )


def step_cost(figure: Figure, contexts: np.ndarray, without: np.ndarray, cached: np.ndarray) -> str:
    """FLOPs of one decode step against the context length, on two logarithmic axes. Returns the four slopes in words."""
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    axes.plot(contexts, without, color=ORANGE, label="without a cache")
    axes.plot(contexts, cached, color=BLUE, label="with a cache")
    axes.set(xscale="log", yscale="log", xlabel="context length t", title="FLOPs of one decode step, tiny-gqa")
    axes.legend()
    slopes = [
        f"{_slope(contexts[part], y[part]):.2f}" for y in (without, cached) for part in (slice(8), slice(-8, None))
    ]
    for y, end, text, place in (
        (without, 3, slopes[0], (-8, 18)),
        (without, -4, slopes[1], (-34, 16)),
        (cached, 3, slopes[2], (0, 13)),
        (cached, -4, slopes[3], (26, -16)),
    ):
        axes.annotate(f"slope {text}", (contexts[end], y[end]), textcoords="offset points", xytext=place,
                      ha="center", va="center", bbox=_ON_WHITE)  # fmt: skip
    return (
        f"slopes at short and long contexts: without a cache {slopes[0]} and {slopes[1]}, "
        f"with a cache {slopes[2]} and {slopes[3]}"
    )


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
