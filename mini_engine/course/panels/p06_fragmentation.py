"""Pictures of lesson 06: what a reservation holds, three kinds of waste in a memory, and shares beside the published ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mini_engine.course.figures import BLUE, GREY, ORANGE, RED, YELLOW
from mini_engine.course.panels.drawing import PAPER, label, sheet
from mini_engine.geometry import FragBreakdown, reservation_waste

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STATES = {"used": BLUE, "reserved": YELLOW, "internal": ORANGE, "external": RED}
HATCHES = {"used": "", "reserved": "//", "internal": "xx", "external": ".."}


def reservation(figure: Figure, reserved: int, prompt: int, answer: int, made: int) -> str:
    """One request in its run, `made` percent of its answer done; and how the three shares move while it runs."""
    strip, axes = figure.subplots(
        2, 1, height_ratios=[1, 3.2], gridspec_kw={"hspace": 0.5, "bottom": 0.13, "top": 0.93}
    )
    told = f"{answer:,} tokens"
    if answer > reserved - prompt:
        answer = reserved - prompt
        told += f", cut to {answer:,}"
    done, final = answer * made // 100, prompt + answer
    parts = {"used": prompt + done, "reserved": answer - done, "internal": reserved - final}
    left = 0
    for state, size in parts.items():
        strip.barh([0], [size], left=left, color=STATES[state], hatch=HATCHES[state], edgecolor="white", label=state)
        left += size
    strip.set(xlim=(0, reserved), yticks=[], title="the run, slot by slot", xlabel="")
    strip.tick_params(labelsize=8)
    strip.grid(False)
    steps = range(answer + 1)
    shares = {
        "used": [(prompt + step) / reserved * 100 for step in steps],
        "reserved": [(answer - step) / reserved * 100 for step in steps],
        "internal": [(reserved - final) / reserved * 100 for _ in steps],
    }
    layers = axes.stackplot(
        list(steps), shares.values(), labels=list(shares), colors=[STATES[state] for state in shares]
    )
    for layer, state in zip(layers, shares):
        layer.set(hatch=HATCHES[state], edgecolor="white")
    axes.axvline(done, color="black", linewidth=1.2)
    axes.set(xlim=(0, max(1, answer)), ylim=(0, 100), xlabel="tokens of the answer made so far", ylabel="% of the run")
    axes.legend(loc="upper right", fontsize=8, frameon=True)
    waste = reservation_waste(final, reserved)
    return (
        f"{reserved:,} slots for a prompt of {prompt:,} and an answer of {told}, {made}% of it made: {prompt + done:,} slots used, "
        f"{answer - done:,} reserved for later, {reserved - final:,} internal, which is {float(waste):.2%}"
    )


def three_wastes() -> tuple[str, str]:
    """SVG and its text: one memory of 32 slots with two runs and two holes, each slot in one of five states."""
    run_a = ["used"] * 5 + ["reserved"] * 2 + ["internal"] * 5
    run_b = ["used"] * 3 + ["reserved"] * 4 + ["internal"] * 1
    slots = [*run_a, *["external"] * 4, *run_b, *["free"] * 8]
    fills = {**STATES, "free": PAPER}
    shapes = [label(24, 28, "32 slots. The next request needs 6 in a row.", bold=True, anchor="start", size=15)]
    for i, state in enumerate(slots):
        shapes.append(
            f'<rect x="{24 + 20 * i}" y="70" width="18" height="34" rx="2" fill="{fills[state]}" stroke="{GREY}" stroke-width="0.8"/>'
        )
        mark = {"used": "t", "reserved": "r", "internal": "i", "external": "e", "free": ""}[state]
        ink = PAPER if state in ("used", "external") else "#1F2933"
        shapes.append(label(33 + 20 * i, 92, mark, ink=ink, size=12))
    for start, size, text in ((0, 12, "run of A"), (16, 8, "run of B")):
        shapes += [
            f'<path d="M{24 + 20 * start} 64v-8h{20 * size - 2}v8" fill="none" stroke="{GREY}"/>',
            label(24 + 20 * start + 10 * size, 50, text, size=12),
        ]
    told = (
        ("t", "used", "holds the K and V of a token", 8),
        ("r", "reserved", "will hold one of this request later", 6),
        ("i", "internal", "the run is longer than the request will ever be", 6),
        ("e", "external", "free, in a hole too small for the next request", 4),
        ("", "free", "a hole in which it fits", 8),
    )
    for i, (mark, state, words, count) in enumerate(told):
        y = 128 + 24 * i
        ink = PAPER if state in ("used", "external") else "#1F2933"
        shapes += [
            f'<rect x="24" y="{y}" width="18" height="18" rx="2" fill="{fills[state]}" stroke="{GREY}" stroke-width="0.8"/>',
            label(33, y + 14, mark, ink=ink, size=12),
            label(54, y + 14, f"{state}, {count} slots:", bold=True, anchor="start"),
            label(200, y + 14, words, anchor="start"),
        ]
    words = (
        "Diagram: a memory of 32 slots. A has a run of 12: 5 used, 2 reserved, 5 internal. Then a hole of 4, which is external "
        "waste, since the next request needs 6 in a row. B has a run of 8: 3 used, 4 reserved, 1 internal. Then a hole of 8, "
        "in which the next request fits. In all 8 used, 6 reserved, 6 internal, 4 external and 8 free: 32."
    )
    return sheet(690, 256, *shapes), words


def shares(figure: Figure, groups: Mapping[str, Mapping[str, FragBreakdown]]) -> str:
    """Stacked bars of the four shares; one panel for each group, one bar for each way to hand out memory."""
    axes = figure.subplots(1, len(groups), sharey=True, gridspec_kw={"wspace": 0.08, "bottom": 0.24, "top": 0.8})
    names = {"token": "used", "reserved": "reserved", "internal": "internal", "external": "external"}
    for axis, (title, bars) in zip(list(axes) if len(groups) > 1 else [axes], groups.items()):
        bottoms = [0.0] * len(bars)
        for part, state in names.items():
            heights = [100 * float(getattr(one, part)) for one in bars.values()]
            axis.bar(
                list(bars),
                heights,
                bottom=bottoms,
                color=STATES[state],
                hatch=HATCHES[state],
                edgecolor="white",
                label=state,
            )
            bottoms = [low + height for low, height in zip(bottoms, heights)]
        for x, one in enumerate(bars.values()):
            axis.text(x, 2, f"{float(one.token):.1%}", ha="center", color="white", fontsize=8, fontweight="bold")
        axis.set_title(title, fontsize=9)
        axis.tick_params(labelsize=8)
        axis.set(ylim=(0, 100))
        axis.grid(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, fontsize=8)
    return "; ".join(
        f"{title}: " + ", ".join(f"{name} {float(one.token):.1%}" for name, one in bars.items())
        for title, bars in groups.items()
    )
