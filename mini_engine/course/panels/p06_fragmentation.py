"""Pictures of lesson 06: what a reservation holds, three kinds of waste in a memory, and shares beside the published ones."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from mini_engine.course.figures import GREEN, GREY, SKY
from mini_engine.course.panels.drawing import PAPER, label, sheet
from mini_engine.geometry import FragBreakdown, reservation_waste

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# As in the film: a colour says whose slot it is, a pattern what is in it. What is used is solid.
FILLS = {"used": SKY, "reserved": "#D3EAF8", "internal": "#D3EAF8", "external": PAPER, "free": PAPER}
HATCHES = {"used": "", "reserved": "//", "internal": "xxx", "external": ".."}
INK, LINES = "#1F2933", "#55606B"
LOOKS: dict[str, dict[str, Any]] = {
    state: {"facecolor": FILLS[state], "hatch": HATCHES[state], "edgecolor": LINES, "linewidth": 0.6}
    for state in HATCHES
}


def reservation(figure: Figure, reserved: int, prompt: int, answer: int, made: int) -> str:
    """One request in its run, `made` percent of its answer stored; and how the parts move while it runs."""
    strip, axes = figure.subplots(
        2,
        1,
        height_ratios=[1, 3],
        gridspec_kw={"hspace": 0.75, "bottom": 0.25, "top": 0.92, "left": 0.11, "right": 0.97},
    )
    told = f"{answer:,} tokens"
    if answer > reserved - prompt:
        answer = reserved - prompt
        told += f", cut to {answer:,}, where the run ends"
    done, final = answer * made // 100, prompt + answer
    left = 0
    for state, size in {"used": prompt + done, "reserved": answer - done, "internal": reserved - final}.items():
        strip.barh([0], [size], left=left, label=state, **LOOKS[state])
        left += size
    strip.set(xlim=(0, reserved), yticks=[], title=f"the run: {reserved:,} slots")
    borders = {
        "used": ([0, 0], [prompt, final]),
        "reserved": ([prompt, final], [final, final]),
        "internal": ([final, final], [reserved, reserved]),
    }
    for state, (low, high) in borders.items():
        axes.fill_between([0, answer], low, high, **LOOKS[state])
    axes.axvline(done, color="black", linewidth=2, clip_on=False)
    top = min(reserved, 2 * final)
    whole = "" if top == reserved else f", the first {top:,}"
    axes.set(
        xlim=(0, answer), ylim=(0, top), xlabel="tokens of the answer stored so far", title=f"while it runs{whole}"
    )
    axes.set_ylabel("slots of the run")
    for each in (strip, axes):
        each.tick_params(labelsize=8)
        each.grid(False)
    figure.legend(*strip.get_legend_handles_labels(), loc="lower center", ncols=3, fontsize=8)
    waste = reservation_waste(final, reserved)
    return (
        f"{reserved:,} slots for a prompt of {prompt:,} and an answer of {told}, {made}% of it stored: {prompt + done:,} slots used, "
        f"{answer - done:,} reserved for later, {reserved - final:,} internal, which is {float(waste):.2%}"
    )


_PATTERNS = (
    '<defs><pattern id="reserved" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    f'<path d="M0 0V5" stroke="{LINES}" stroke-width="1.2"/></pattern>'
    '<pattern id="internal" width="4" height="4" patternUnits="userSpaceOnUse">'
    f'<path d="M0 0L4 4M4 0L0 4" stroke="{LINES}" stroke-width=".9"/></pattern>'
    '<pattern id="external" width="6" height="6" patternUnits="userSpaceOnUse">'
    f'<circle cx="3" cy="3" r=".9" fill="{LINES}"/></pattern></defs>'
)


def _slot(x: int, y: int, state: str, colour: str, height: int) -> str:
    """One slot: the colour of its request, solid where it is used, else pale under the pattern of its state."""
    box = f'<rect x="{x}" y="{y}" width="18" height="{height}" rx="2"'
    pale = "" if state == "used" or colour == PAPER else ' fill-opacity=".26"'
    pattern = f'{box} fill="url(#{state})"/>' if state in ("reserved", "internal", "external") else ""
    return f'{box} fill="{PAPER}"/>{box} fill="{colour}"{pale} stroke="{GREY}" stroke-width="0.8"/>{pattern}'


def three_wastes() -> tuple[str, str]:
    """SVG and its text: one memory of 32 slots with two runs and two holes, each slot in one of five states."""
    run_a = ["used"] * 5 + ["reserved"] * 2 + ["internal"] * 5
    run_b = ["used"] * 3 + ["reserved"] * 4 + ["internal"] * 1
    slots = [(state, SKY) for state in run_a] + [("external", PAPER)] * 4
    slots += [(state, GREEN) for state in run_b] + [("free", PAPER)] * 8
    shapes = [
        _PATTERNS,
        label(24, 28, "32 slots. The next request needs 6 in a row.", bold=True, anchor="start", size=15),
    ]
    shapes += [_slot(24 + 20 * i, 70, state, colour, 34) for i, (state, colour) in enumerate(slots)]
    for start, size, text in ((0, 12, "run of A"), (16, 8, "run of B")):
        shapes += [
            f'<path d="M{24 + 20 * start} 64v-8h{20 * size - 2}v8" fill="none" stroke="{GREY}"/>',
            label(24 + 20 * start + 10 * size, 50, text, size=12),
        ]
    told = (
        ("used", "holds the K and V of a token", 8),
        ("reserved", "will hold one of this request later", 6),
        ("internal", "the run is longer than the request will ever be", 6),
        ("external", "free, in a hole too small for the next request", 4),
        ("free", "a hole in which it fits", 8),
    )
    for i, (state, words, count) in enumerate(told):
        y = 128 + 24 * i
        shapes += [
            _slot(24, y, state, PAPER if state in ("external", "free") else SKY, 18),
            label(54, y + 14, f"{state}, {count} slots:", bold=True, anchor="start"),
            label(200, y + 14, words, anchor="start"),
        ]
    words = (
        "Diagram: a memory of 32 slots. A has a run of 12: 5 used, 2 reserved, 5 internal. Then a hole of 4, which is external "
        "waste, since the next request needs 6 in a row. B has a run of 8: 3 used, 4 reserved, 1 internal. Then a hole of 8, "
        "in which the next request fits. In all 8 used, 6 reserved, 6 internal, 4 external and 8 free: 32."
    )
    return sheet(690, 256, *shapes), words


def shares(figure: Figure, groups: Mapping[str, Mapping[str, FragBreakdown | Fraction]]) -> str:
    """Stacked bars of the four shares; one panel for each group, one bar for each way to hand out memory.

    A Fraction is a used share of which the rest is not told apart: it stays white.
    """
    axes = figure.subplots(
        1,
        len(groups),
        sharey=True,
        squeeze=False,
        gridspec_kw={"wspace": 0.06, "bottom": 0.2, "top": 0.9, "left": 0.09, "right": 0.99},
    )[0]
    used = {title: {name: _used(one) for name, one in bars.items()} for title, bars in groups.items()}
    for axis, (title, bars) in zip(axes, groups.items()):
        bottoms = [0.0] * len(bars)
        for part, state in (
            ("token", "used"),
            ("reserved", "reserved"),
            ("internal", "internal"),
            ("external", "external"),
        ):
            heights = [
                100 * float(getattr(one, part))
                if isinstance(one, FragBreakdown)
                else 100 * float(one) * (part == "token")
                for one in bars.values()
            ]
            axis.bar(list(bars), heights, bottom=bottoms, label=state, **LOOKS[state])
            bottoms = [low + height for low, height in zip(bottoms, heights)]
        for x, share in enumerate(used[title].values()):
            axis.text(x, 2, f"{share:.1%}", ha="center", color=INK, fontsize=8, fontweight="bold")
        axis.set_title(title, fontsize=10)
        axis.tick_params(labelsize=8)
        axis.set(ylim=(0, 100))
        axis.grid(False)
    axes[0].set_ylabel("% of the memory")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=4, fontsize=8)
    return "; ".join(
        f"{title}: " + ", ".join(f"{name} {share:.1%}" for name, share in bars.items()) for title, bars in used.items()
    )


def _used(one: FragBreakdown | Fraction) -> float:
    return float(one.token if isinstance(one, FragBreakdown) else one)
