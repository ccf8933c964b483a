"""A timeline as a Gantt picture: colours and hatches that differ in grey too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from mini_engine.course.figures import BLUE, ORANGE, PURPLE, SKY, YELLOW
from mini_engine.course.timeline.rows import WORDS, Row, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Look(NamedTuple):
    """How a state looks: colour, hatching, edge and height."""

    face: str
    hatch: str = ""
    edge: str = "white"
    height: float = 0.8


INK = "#4A4A4A"
MOST_CELLS = 80  # steps whose edges are drawn: of more, edges would be all that is seen
LOOKS = {
    "waiting": Look("#EDEDED", "", "#BDBDBD", 0.3),
    "chunk": Look(ORANGE),
    "prefill": Look(ORANGE),
    "again": Look(ORANGE, "////", INK),
    "decode": Look(BLUE),
    "idle": Look(YELLOW, "", "#BDBDBD", 0.3),
    "preempted": Look(PURPLE, "xxx", INK, 0.3),
    "swapped": Look(SKY, "\\\\\\", INK, 0.3),
    "padding": Look("white", "....", "#8A8A8A"),
}
NAMES = {**WORDS, "chunk": "", "prefill": "prompt", "padding": "padding: computed for nobody"}


def draw(
    figure: Figure,
    lines: Timeline | Mapping[str, Timeline],
    *,
    x: str = "steps",
    numbers: bool = False,
    legend: bool = True,
) -> str:
    """Draw one timeline, or several under each other by title with one axis of time; returns the message in words.

    x: "steps", or "seconds" where the timelines have them. numbers: how many tokens of a prompt each step computes.
    ValueError for another x, or for seconds that nobody measured.
    """
    titled = {"": lines} if isinstance(lines, Timeline) else dict(lines)
    if x not in ("steps", "seconds") or (x == "seconds" and not all(line.is_timed for line in titled.values())):
        raise ValueError(f'x="{x}": "steps", or "seconds" where every step has a time')
    if not titled:
        raise ValueError("there is nothing to draw: give at least one timeline")
    heights = [max(1, len(line.rows)) for line in titled.values()]
    every = figure.subplots(len(titled), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (title, line) in zip(every, titled.items()):
        draw_rows(axes, line, x=x, numbers=numbers)
        axes.set_title(title)
    every[-1].set_xlabel(x)
    last = max((max(line.ends, default=0) if x == "seconds" else line.num_steps) for line in titled.values()) or 1
    every[-1].set_xlim(0, 1.01 * last)  # the edge of the last bar is seen
    met = [state for state in LOOKS if any(_is_met(line, state, x) for line in titled.values())]
    if legend and met:
        _legend(figure, [state for state in met if state != "chunk" or "prefill" not in met])
    return "; ".join(f"{title}: {_told(line)}" if title else _told(line) for title, line in titled.items())


def draw_rows(axes: Axes, line: Timeline, *, x: str = "steps", numbers: bool = False) -> None:
    """The rows alone, on axes of your own; the first request on top."""
    steps = range(line.num_steps)
    begins, ends = line.begins, line.ends
    if x == "steps":
        begins, ends = [float(step) for step in steps], [step + 1.0 for step in steps]
    digit = max(ends, default=1) * 7 / axes.bbox.width  # 7 pixels
    for y, row in enumerate(line.rows.values()):
        for state, look in LOOKS.items():
            bars = [(begins[i], ends[i] - begins[i]) for i in steps if row.states[i] == state]
            if state == "waiting" and x == "seconds":
                bars = _waits(row, begins)
            if not bars:
                continue
            apart = look.height > 0.5 and line.num_steps <= MOST_CELLS
            axes.broken_barh(
                bars if apart else _joined(bars),
                (y - look.height / 2, look.height),
                facecolors=look.face,
                edgecolors=look.edge,
                hatch=look.hatch,
                linewidth=0.5,
            )
        if numbers:
            _number(axes, row, y, begins, ends, digit)
    axes.set_yticks(range(len(line.rows)), list(line.rows), fontsize=8)
    axes.set_ylim(len(line.rows) - 0.4, -0.6)
    axes.set_xlim(0, max(ends, default=1))
    axes.grid(axis="y", visible=False)


def _is_met(line: Timeline, state: str, x: str) -> bool:
    """Whether the picture has it; in seconds even a wait that is shorter than a step."""
    if state == "waiting" and x == "seconds":
        return any(_waits(row, line.begins) for row in line.rows.values())
    return line.count(state) > 0


def _waits(row: Row, begins: list[float]) -> list[tuple[float, float]]:
    """One bar from the arrival, which may lie within a step, to the start."""
    start = next((begins[i] for i, state in enumerate(row.states) if state not in ("", "waiting")), begins[-1])
    return [(row.arrival, start - row.arrival)] if start > row.arrival else []


def _joined(bars: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Neighbours as one bar."""
    joined = [bars[0]]
    for begin, width in bars[1:]:
        last, length = joined[-1]
        if abs(last + length - begin) < 1e-9 * max(1.0, begin):
            joined[-1] = (last, begin + width - last)
        else:
            joined.append((begin, width))
    return joined


def _number(axes: Axes, row: Row, y: int, begins: list[float], ends: list[float], digit: float) -> None:
    """The tokens of each piece of a prompt, where its cell has the room: `digit` is how wide one digit is."""
    for i, state in enumerate(row.states):
        if state in ("chunk", "prefill", "again") and len(f"{row.tokens[i]}") * digit < ends[i] - begins[i]:
            middle = (begins[i] + ends[i]) / 2
            axes.text(middle, y, f"{row.tokens[i]}", ha="center", va="center", fontsize=7, clip_on=True)


def _legend(figure: Figure, states: list[str]) -> None:
    from matplotlib.patches import Patch

    patches = [
        Patch(facecolor=LOOKS[s].face, hatch=LOOKS[s].hatch, edgecolor=LOOKS[s].edge, label=NAMES.get(s) or s)
        for s in states
    ]
    figure.legend(handles=patches, loc="lower center", ncols=min(5, len(patches)), fontsize=8, handlelength=1.6)
    inch = 1 / figure.get_figheight()
    figure.subplots_adjust(bottom=(0.8 if len(patches) <= 5 else 1) * inch, top=1 - 0.3 * inch, hspace=0.35)


def _told(line: Timeline) -> str:
    """The counts of the picture."""
    busy = line.count("chunk", "prefill", "again", "decode")
    padding = line.count("padding")
    told = f"{len(line.rows)} requests, {line.num_steps} steps, {busy} cells busy"
    if line.is_timed and line.ends:
        told += f", {line.ends[-1]:.3g} s"
    return told + (f", {padding} padding" if padding else "")
