"""Pictures of lesson 02: the formula with what each factor is, the cache over lengths and batches, the levers in a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mini_engine.course.figures import BLUE, GREY, ORANGE
from mini_engine.course.panels.drawing import PALE, WARM, arrow, box, label, sheet
from mini_engine.units import GB, GIB, significant

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

OFFSET = "offset points"
_ON_WHITE = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}


def formula_card() -> tuple[str, str]:
    """SVG and its text: one token's K and V in one layer, and the factors that repeat it."""
    shapes = [label(20, 26, "One token in one layer: K and V of every K/V head", bold=True, anchor="start")]
    for row, name in enumerate(("key", "value")):
        shapes.append(label(44, 65 + 34 * row, name, anchor="end"))
        shapes += [box(50 + 66 * head, 46 + 34 * row, 60, 28, "D", fill=PALE) for head in range(3)]
        shapes.append(label(258, 66 + 34 * row, "..."))
    shapes += [
        label(148, 136, "one per K/V head: D numbers of b bytes"),
        arrow((282, 78), (330, 78)),
        box(336, 50, 92, 58, "x L", "layers", fill=WARM),
        arrow((432, 78), (456, 78)),
        box(462, 50, 92, 58, "x S", "tokens", fill=PALE),
        arrow((558, 78), (582, 78)),
        box(588, 50, 92, 58, "x B", "sequences", fill=PALE),
        label(382, 136, "fixed by the model"),
        label(571, 136, "change while it runs"),
    ]
    words = (
        "Diagram: one token in one layer keeps a key and a value for each K/V head, D numbers of b bytes each. That repeats "
        "for L layers, which the model fixes, and for S tokens and B sequences, which change while it runs."
    )
    return sheet(700, 154, *shapes), words


def grid(figure: Figure, bytes_per_token: int, contexts: Sequence[int], batches: Sequence[int], weights: int) -> str:
    """Heat map of the cache over context and batch, in GiB. `weights` are bytes; cells above them get a frame."""
    figure.set_layout_engine("constrained", h_pad=0.1)
    axes = figure.subplots()
    sizes = np.array([[bytes_per_token * context * batch for context in contexts] for batch in batches], dtype=object)
    shades = np.log(sizes.astype(float))
    axes.imshow(shades, cmap="Blues", aspect="auto", origin="lower", vmin=shades.min() - 1, vmax=shades.max() + 0.5)
    axes.grid(False)
    for (row, column), size in np.ndenumerate(sizes):
        dark = shades[row, column] > (shades.min() + shades.max()) / 2
        axes.text(
            column, row, f"{_plain(size / GIB)} GiB", ha="center", va="center", color="white" if dark else "black"
        )
        if size > weights:
            axes.add_patch(_frame(column, row))
    axes.set_xticks(range(len(contexts)), [f"{context:,}" for context in contexts])
    axes.set_yticks(range(len(batches)), [str(batch) for batch in batches])
    axes.set(
        xlabel="tokens per sequence",
        ylabel="sequences",
        title=f"KV cache of Llama-3-70B (orange: more than the weights, {significant(weights / GIB)} GiB)",
    )
    rows = "; ".join(
        f"batch {batch}: " + ", ".join(_plain(size / GIB) for size in row) for batch, row in zip(batches, sizes)
    )
    heavier = ", ".join(f"{contexts[c]:,} x {batches[r]}" for (r, c), size in np.ndenumerate(sizes) if size > weights)
    return (
        f"GiB for {', '.join(f'{context:,}' for context in contexts)} tokens: {rows}; "
        f"more than the weights, {significant(weights / GB)} GB = {significant(weights / GIB)} GiB: {heavier or 'none'}"
    )


def levers(figure: Figure, steps: Sequence[tuple[str, float]], context: int) -> str:
    """Waterfall of (lever, requests that fit once it is pulled) on a logarithmic axis. Returns the steps in words."""
    figure.set_layout_engine("constrained", h_pad=0.1)
    axes = figure.subplots()
    before, words = None, []
    for place, (name, requests) in enumerate(steps):
        low = 0.4 if before is None else min(before, requests)
        axes.bar(place, abs(requests - (before or low)), bottom=low, width=0.66, color=GREY if before is None else BLUE)
        factor = "" if before is None else f"x {requests / before:.2f}"
        fits = math.floor(requests)
        above = f"{fits:,}" if not factor else f"{fits:,}\n{factor}"
        axes.annotate(above, (place, max(requests, before or 0)), xytext=(0, 3), textcoords=OFFSET, ha="center", va="bottom", fontsize=9, bbox=_ON_WHITE)  # fmt: skip
        if before is not None:
            axes.plot([place - 0.67, place - 0.33], [before, before], color=GREY, linewidth=1)
        words.append(f"{name.replace(chr(10), ' ')} {fits:,}{f' ({factor})' if factor else ''}")
        before = requests
    axes.axhline(1, color=ORANGE, linewidth=1.5, linestyle="--", zorder=0)
    axes.annotate("one request", (len(steps) - 0.6, 1), xytext=(0, 3), textcoords=OFFSET, ha="right", fontsize=9)
    axes.set(yscale="log", title=f"requests of {context:,} tokens that fit (log scale)")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_ylim(0.4, 6 * max(requests for _, requests in steps))
    axes.set_xticks(range(len(steps)), [name for name, _ in steps], fontsize=9)
    axes.grid(False, axis="x")
    return f"requests of {context:,} tokens: " + ", then ".join(words)


def _plain(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _frame(column: int, row: int) -> Rectangle:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.48, row - 0.48), 0.96, 0.96, fill=False, edgecolor=ORANGE, linewidth=3)
