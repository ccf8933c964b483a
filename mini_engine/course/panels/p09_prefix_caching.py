"""Pictures of lesson 09: what a cached prefix saves of a prefill, hits against the size of the cache, chain and tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from mini_engine.catalog import get_gpu, get_model
from mini_engine.course.figures import BLUE, GREY, ORANGE, SKY, YELLOW
from mini_engine.course.panels.drawing import PALE, arrow, box, label, sheet
from mini_engine.geometry import active_params, prefix_hit_tokens
from mini_engine.roofline import prefill_flops, prefill_time

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLOCK = 16


def seconds(tokens: int, done: int, mfu: int) -> float:
    """Seconds that two H100 need to compute `tokens` of Llama-3-70B after `done` others, at `mfu` percent of the peak."""
    spec, gpu = get_model("llama-3-70b"), get_gpu("h100-sxm")
    flops = prefill_flops(
        active_params(spec), tokens, spec.num_hidden_layers, spec.num_attention_heads, spec.head_dim, done=done
    )
    return float(prefill_time(flops, gpu.bf16_flops, 2, Fraction(mfu, 100)))


def ttft(figure: Figure, prefix: int, prompt: int, mfu: int) -> str:
    """The least time to the first token with and without a cached prefix, for this prompt and for all lengths."""
    told = f"prefix {prefix:,}"
    if prefix > prompt:
        prefix = prompt
        told += f", cut to {prefix:,},"
    told += f" of a prompt of {prompt:,} tokens"
    hit = prefix_hit_tokens(prefix, prompt, BLOCK)
    cold, warm = seconds(prompt, 0, mfu), seconds(prompt - hit, hit, mfu)
    bars, axes = figure.subplots(1, 2, width_ratios=[1, 1.6], gridspec_kw={"wspace": 0.34, "bottom": 0.2})
    bars.bar(["cold", "cached"], [cold * 1000, warm * 1000], color=[ORANGE, BLUE], width=0.6)
    for x, value in enumerate((cold, warm)):
        bars.text(x, value * 1000, f"{value * 1000:.0f} ms", ha="center", va="bottom", fontsize=8)
    bars.set(ylabel="ms, computing alone", ylim=(0, cold * 1150), title="this prompt")
    lengths = [max(prefix, 1) + step for step in range(0, 8001, 100)]
    saved = []
    for length in lengths:
        found = prefix_hit_tokens(prefix, length, BLOCK)
        saved.append(100 * (1 - seconds(length - found, found, mfu) / seconds(length, 0, mfu)))
    axes.plot(lengths, saved, color=BLUE)
    axes.axhline(90, color=GREY, linewidth=1, linestyle="--")
    axes.text(lengths[-1], 91, "90%", ha="right", va="bottom", fontsize=8, color=GREY)
    if prompt <= lengths[-1]:
        axes.plot([prompt], [100 * (1 - warm / cold)], "o", color=ORANGE)
    axes.set(xlabel="tokens of the whole prompt", ylabel="% of the time saved", ylim=(0, 105), title="other lengths")
    return (
        f"{told}, at {mfu}% of the peak of two H100: {hit:,} tokens hit, {prompt - hit:,} computed; "
        f"{cold * 1000:.1f} ms cold, {warm * 1000:.1f} ms cached, {1 - warm / cold:.1%} saved"
    )


def hits(figure: Figure, curves: Mapping[str, Mapping[int, float]], limit: float) -> str:
    """The share of prompt tokens found, against the blocks of the cache; limit: what an endless cache finds."""
    axes = figure.subplots(gridspec_kw={"bottom": 0.2})
    for (name, curve), colour, style in zip(curves.items(), (BLUE, ORANGE), ("o-", "s--")):
        axes.plot(list(curve), [100 * share for share in curve.values()], style, color=colour, markersize=4, label=name)
    axes.axhline(100 * limit, color=GREY, linewidth=1, linestyle=":")
    first = next(iter(next(iter(curves.values()))))
    axes.text(first, 100 * limit + 1, "endless cache", fontsize=8, color=GREY)
    axes.set(
        xscale="log", xlabel="blocks of 16 in the cache (logarithmic)", ylabel="% of prompt tokens hit", ylim=(40, 90)
    )
    sizes = list(next(iter(curves.values())))[::2]
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.legend(loc="lower right", fontsize=9)
    return "\n".join(
        f"{name}: " + ", ".join(f"{size:,} blocks {share:.1%}" for size, share in curve.items())
        for name, curve in curves.items()
    )


def chain_and_tree() -> tuple[str, str]:
    """SVG and its text: three prompts in blocks, as a chain of names and as a radix tree."""
    prompts: Sequence[tuple[str, Sequence[str]]] = (
        ("Ann", ("S1", "S2", "A1", "A2")),
        ("Bob", ("S1", "S2", "B1")),
        ("Cy", ("X1", "S2")),
    )
    fills = {"S": SKY, "A": YELLOW, "B": "#BFE3D5", "X": "#F3D9E8"}
    names = {"S1": "h1", "S2": "h2", "A1": "h3", "A2": "h4", "B1": "h5", "X1": "h6"}
    shapes = [
        label(20, 26, "prompts in blocks, and the name of each", bold=True, anchor="start"),
        label(408, 26, "as a radix tree", bold=True, anchor="start"),
    ]
    for row, (who, blocks) in enumerate(prompts):
        y = 46 + 64 * row
        shapes.append(label(20, y + 27, who, anchor="start"))
        for i, block in enumerate(blocks):
            name = "h7" if (who, i) == ("Cy", 1) else names[block]
            shapes.append(box(62 + 80 * i, y, 64, 46, block, name, fill=fills[block[0]]))
            if i:
                shapes.append(arrow((62 + 80 * i - 15, y + 23), (62 + 80 * i - 2, y + 23)))
    shapes += [
        box(408, 110, 54, 32, "root", fill=PALE),
        box(494, 62, 84, 40, "S1 S2", fill=fills["S"]),
        box(494, 170, 84, 40, "X1 S2", fill=fills["X"]),
        box(610, 40, 84, 40, "A1 A2", fill=fills["A"]),
        box(610, 100, 84, 40, "B1", fill=fills["B"]),
        arrow((462, 120), (493, 92)),
        arrow((462, 134), (493, 180)),
        arrow((578, 78), (609, 64)),
        arrow((578, 88), (609, 112)),
    ]
    shapes.append(label(20, 254, "h2 = hash(h1, S2), h7 = hash(h6, S2): the same tokens, another name", anchor="start"))
    words = (
        "Diagram: three prompts in blocks. Ann has S1, S2, A1, A2 with the names h1 to h4; Bob has S1, S2, B1 with the names h1, "
        "h2, h5; Cy has X1, S2 with the names h6, h7. S2 after S1 is h2, and after X1 it is h7. Beside it the same as a radix tree: "
        "the root has two edges, S1 S2 and X1 S2; the first goes on to A1 A2 and to B1."
    )
    return sheet(714, 272, *shapes), words
