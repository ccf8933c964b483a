"""Pictures of lesson 05: where keys are loud, who shares a scale, what rounding does to each channel and token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mini_engine.attention import IntCodec, fp8_e4m3
from mini_engine.course.figures import BLUE, ORANGE
from mini_engine.course.panels.drawing import DEEP, PALE, WARM, label, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = np.ndarray
SHADE = "#B9D6EA"


def who_shares_a_scale() -> tuple[str, str]:
    """SVG and its text: the same keys, cut into groups by token and by channel."""
    rows, columns, loud, size, top = 6, 8, 5, 24, 66
    width, height = size * columns, size * rows
    shapes = []
    for left, by in ((70, "token"), (390, "channel")):
        groups = [
            _rect(left, top + size * row, width, size, fill=PALE if row % 2 else SHADE) for row in range(rows)
        ] if by == "token" else [
            _rect(left + size * column, top, size, height, fill=PALE if column % 2 else SHADE) for column in range(columns)
        ]  # fmt: skip
        lines = [f"M{left} {top + size * row}h{width}" for row in range(1, rows)]
        lines += [f"M{left + size * column} {top}v{height}" for column in range(1, columns)]
        frame = (left, top + 2 * size, width, size) if by == "token" else (left + loud * size, top, size, height)
        shapes += [
            label(left + 96, 22, f"one scale per {by}", bold=True),
            label(left + 96, 50, "channels", size=12),
            label(left - 8, top + 76, "tokens", anchor="end", size=12),
            *groups,
            _rect(left + size * loud, top, size, height, fill=WARM),
            f'<path d="{"".join(lines)}" stroke="white" stroke-width="2"/>',
            _rect(*frame, fill=f'none" stroke="{DEEP}" stroke-width="3'),
        ]
    shapes += [
        label(166, 236, "The loud channel is in every group:", size=12),
        label(166, 252, "it sets the scale of all the quiet ones.", size=12),
        label(486, 236, "The loud channel has a scale of its own.", size=12),
        label(486, 252, "But the group must wait for its tokens.", size=12),
    ]
    words = (
        "Diagram: the same table of keys twice, 6 tokens by 8 channels, with one loud channel in orange. On the left a "
        "group is a row, so the loud channel is part of every group and sets its scale. On the right a group is a column, "
        "so the loud channel has a scale of its own, but a group is complete only when its last token has come."
    )
    return sheet(640, 268, *shapes), words


def _rect(x: int, y: int, width: int, height: int, *, fill: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"/>'


def loudness(figure: Figure, keys: Array, values: Array, each: int = 8) -> str:
    """|k| and |v| as two maps, tokens down and channels across, k[T, K, D] and v[T, K, D]; a row is the mean of `each` tokens.

    Returns the loudest channels in words.
    """
    figure.set_layout_engine("constrained", h_pad=0.1)
    both = figure.subplots(1, 2, sharey=True)
    words = []
    for axes, x, name in zip(both, (keys, values), ("keys", "values")):
        (T, heads, D), flat = x.shape, np.abs(x).reshape(len(x), -1)
        rows = flat[: T // each * each].reshape(-1, each, heads * D).mean(axis=1)
        image = axes.imshow(
            rows,
            aspect="auto",
            cmap="magma_r",
            vmin=0,
            vmax=15,
            interpolation="nearest",
            extent=(-0.5, heads * D - 0.5, T, 0),
        )
        axes.set(title=f"{name}: magnitude", xlabel=f"channel ({heads} heads of {D})")
        axes.grid(False)
        loud = flat.max(axis=0) / np.median(flat.max(axis=0))
        first, second = np.argsort(-loud)[:2]
        where = " and ".join(f"{c % D} of head {c // D}" for c in (first, second))
        words.append(
            f"{name}: loudest channels {where}, {loud[first]:.1f} and {loud[second]:.1f} times the median channel"
        )
    both[0].set_ylabel(f"token (mean of {each})")
    figure.colorbar(image, ax=both, shrink=0.9)
    return "; ".join(words)


def relative_error(x: Array, back: Array, axis: int) -> Array:
    """RMS error along the other axis over RMS of the numbers: one figure for each token (axis 0) or channel (axis 1)."""
    flat, error = (y.reshape(len(x), -1) for y in (x, back - x))
    other = 1 - axis
    return np.sqrt((error**2).mean(axis=other)) / np.sqrt((flat**2).mean(axis=other))


def errors(figure: Figure, keys: Array, values: Array, bits: int = 4, group: int = 32) -> str:
    """The error of each channel and of each token, for K and V, with scales per token and per channel. Returns the means."""
    figure.set_layout_engine("constrained")
    grid = figure.subplots(2, 2, sharey=True)
    words = []
    for row, x, name in zip(grid, (keys, values), ("keys", "values")):
        for by, colour in (("token", ORANGE), ("channel", BLUE)):
            codec = IntCodec(bits, by, group, symmetric=False)
            back = codec.decode(codec.encode(x))
            for axes, axis in zip(row, (1, 0)):
                error = relative_error(x, back, axis)
                shown = slice(None) if axis == 1 else slice(None, None, max(1, len(error) // 32))  # 32 tokens will do
                axes.plot(
                    np.arange(len(error))[shown], error[shown], color=colour, linewidth=1.3, label=f"scale per {by}"
                )
            total = float(np.linalg.norm(back - x) / np.linalg.norm(x))
            words.append(f"{name} per {by} {total:.3f}")
        row[0].set(ylabel=name, yscale="log", ylim=(0.009, 0.45))
        plain_ticks(row[0], [0.01, 0.03, 0.1, 0.3])
    grid[0, 0].set_title("error of each channel / its size")
    grid[0, 1].set_title("error of each token / its size")
    grid[1, 0].set_xlabel("channel")
    grid[1, 1].set_xlabel("token")
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper right", ncols=2, fontsize=9)
    return f"{bits} bits, groups of {group}, error over size: " + ", ".join(words)


def plain_ticks(axes: Axes, ticks: list[float]) -> None:
    """Write these numbers at a logarithmic y axis, and no others."""
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_yticks([], minor=True)


def number_lines(figure: Figure, largest: float = 16.0) -> str:
    """Which numbers from 0 to `largest` 8 bits can say: int8 with one scale, and fp8 e4m3. Returns the gaps in words."""
    figure.set_layout_engine("constrained", h_pad=0.1)
    axes = figure.subplots()
    even = np.arange(128) * largest / 127
    floats = np.unique(fp8_e4m3(np.linspace(0, largest, 20_001)))
    for height, points, colour in ((1.0, even, ORANGE), (0.0, floats, BLUE)):
        axes.vlines(points, height - 0.3, height + 0.3, color=colour, linewidth=1)
    axes.set(
        yticks=[1, 0], yticklabels=["int8, scale 16/127", "fp8 e4m3"], ylim=(-0.6, 1.6), xlim=(-0.2, largest + 0.2)
    )
    axes.set(title=f"the numbers from 0 to {largest:g} that one byte can say", xlabel="number")
    axes.grid(False)
    near, far = floats[(floats > 0)][:2], floats[-2:]
    return (
        f"int8: {len(even)} numbers, {even[1]:.3f} apart everywhere; fp8 e4m3: {len(floats)} numbers, "
        f"{near[1] - near[0]:.3f} apart near 0 and {far[1] - far[0]:g} apart near {largest:g}"
    )
