"""Pictures of lesson 09: what a cached prefix saves of a prefill, hits against the size of the cache, chain and tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from mini_engine.catalog import get_gpu, get_model
from mini_engine.course.figures import BLUE, GREY, ORANGE, SKY, YELLOW
from mini_engine.course.panels.drawing import PALE, arrow, box, label, sheet
from mini_engine.geometry import active_params, prefix_hit_tokens, weight_bytes
from mini_engine.roofline import prefill_flops, prefill_time

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLOCK = 16


def reading() -> float:
    """Seconds that two H100 need to read the weights of Llama-3-70B once."""
    return float(
        Fraction(weight_bytes(get_model("llama-3-70b"))) / (2 * Fraction(get_gpu("h100-sxm").memory_bandwidth))
    )


def seconds(tokens: int, done: int, mfu: int) -> float:
    """Least seconds of two H100 for `tokens` of Llama-3-70B after `done` others: computing at `mfu` percent of the peak, or reading."""
    return max(computing(tokens, done, mfu), reading())


def computing(tokens: int, done: int, mfu: int) -> float:
    """Seconds of arithmetic alone."""
    spec, gpu = get_model("llama-3-70b"), get_gpu("h100-sxm")
    flops = prefill_flops(
        active_params(spec), tokens, spec.num_hidden_layers, spec.num_attention_heads, spec.head_dim, done=done
    )
    return float(prefill_time(flops, gpu.bf16_flops, 2, Fraction(mfu, 100)))


def ttft(figure: Figure, prefix: int, prompt: int, mfu: int) -> str:
    """The least time to the first token with and without a cached prefix, for this prompt and for all lengths."""
    cached = min(prefix, prompt)
    told = (
        f"prefix {prefix:,}"
        + (f", cut to {cached:,}," if cached < prefix else "")
        + f" of a prompt of {prompt:,} tokens"
    )
    hit = prefix_hit_tokens(cached, prompt, BLOCK)
    cold, warm, floor = seconds(prompt, 0, mfu), seconds(prompt - hit, hit, mfu), reading()
    bars, axes = figure.subplots(1, 2, width_ratios=[1, 1.6], gridspec_kw={"wspace": 0.34, "bottom": 0.2})
    bars.bar(["cold", "cached"], [cold * 1000, warm * 1000], color=[ORANGE, BLUE], width=0.6)
    for x, value in enumerate((cold, warm)):
        bars.text(x, value * 1000, _ms(value), ha="center", va="bottom", fontsize=8)
    bars.axhline(floor * 1000, color=GREY, linewidth=1, linestyle=":")
    top = next(top for top in (200, 500, 1000, 2000, 5000, 10000, 20000) if cold * 1100 < top)
    bars.set(ylabel="ms at least; dotted: weights read", ylim=(0, top), title=f"a prompt of {prompt:,} tokens")
    end = max(prefix + 8000, prompt)
    lengths = sorted(
        {*range(max(prefix, 100), end + 1, 100), prompt} if prompt >= prefix else {*range(100, end + 1, 100)}
    )
    shares = [saved(min(prefix, length), length, mfu) for length in lengths]
    axes.plot(lengths, shares, color=BLUE)
    axes.axhline(90, color=GREY, linewidth=1, linestyle="--")
    axes.text(end, 91, "90%", ha="right", va="bottom", fontsize=8, color=GREY)
    axes.plot([prompt], [100 * (1 - warm / cold)], "o", color=ORANGE)
    axes.set(xlabel="tokens of the whole prompt", ylabel="% of the time saved", ylim=(-4, 105), title="other lengths")
    return (
        f"{told}, at {mfu}% of the peak of two H100: {hit:,} tokens hit, {prompt - hit:,} computed; "
        f"{_ms(cold)} cold, {_ms(warm)} cached, {1 - warm / cold:.1%} saved; the weights alone take {_ms(floor)} to read"
    )


def saved(prefix: int, prompt: int, mfu: int) -> float:
    """Percent of the least time to the first token."""
    hit = prefix_hit_tokens(prefix, prompt, BLOCK)
    return 100 * (1 - seconds(prompt - hit, hit, mfu) / seconds(prompt, 0, mfu))


def _ms(value: float) -> str:
    """1,234 ms, 291 ms, 21.1 ms."""
    return f"{value * 1000:,.0f} ms" if value >= 0.1 else f"{value * 1000:.1f} ms"


def hits(figure: Figure, curve: Mapping[int, float], limit: float, system: float) -> str:
    """The share of prompt tokens found, against the blocks of the cache; limit: of an endless one; system: the shared beginning's share."""
    axes = figure.subplots(gridspec_kw={"bottom": 0.2})
    axes.plot(list(curve), [100 * share for share in curve.values()], "o-", color=BLUE, markersize=4)
    for share, words, up, side in (
        (limit, "endless cache", 1, "bottom"),
        (system, "the system prompt alone", -1, "top"),
    ):
        axes.axhline(100 * share, color=GREY, linewidth=1, linestyle=":")
        axes.text(min(curve), 100 * share + up, words, fontsize=8, color=GREY, va=side)
    axes.set(
        xscale="log", xlabel="blocks of 16 in the cache (logarithmic)", ylabel="% of prompt tokens hit", ylim=(40, 90)
    )
    sizes = list(curve)[::2]
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    return ", ".join(f"{size:,} blocks {share:.1%}" for size, share in curve.items())


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
