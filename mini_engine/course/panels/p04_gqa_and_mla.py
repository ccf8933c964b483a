"""Pictures of lesson 04: four ways to share a cache, what each keeps and asks of the machine, and where expanding pays."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from mini_engine.catalog import get_gpu
from mini_engine.course.figures import BLUE, GREEN, GREY, ORANGE, SKY
from mini_engine.course.panels.drawing import DEEP, PALE, WARM, label, sheet
from mini_engine.roofline import attn_decode_intensity, mla_decode_intensity, ridge_point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

H100 = get_gpu("h100-sxm")
RIDGE = ridge_point(H100.bf16_flops, H100.memory_bandwidth)
HEAD_DIM, ROPE_DIM = 128, 64
"""Sizes of the panel's heads and rope key: those of DeepSeek-V2, and of most models with grouped heads."""


def four_caches() -> tuple[str, str]:
    """SVG and its text: eight query heads and what they read, in four architectures of tiny-gqa's size."""
    shapes = []
    for i, (name, what, groups) in enumerate(
        (
            ("MHA", "8 K/V heads: 2 x 8 x 32 = 512", 8),
            ("GQA", "2 K/V heads: 2 x 2 x 32 = 128", 2),
            ("MQA", "1 K/V head: 2 x 1 x 32 = 64", 1),
            ("MLA", "latent and rope key: 64 + 16 = 80", 0),
        )
    ):
        left, top = 20 + 270 * (i % 2), 14 + 142 * (i // 2)
        shapes.append(label(left, top + 14, name, bold=True, anchor="start"))
        shapes.append(label(left + 44, top + 14, what, anchor="start", size=12))
        for h in range(8):
            shapes.append(_block(left + 29 * h, top + 26, 26, 22, DEEP))
        if groups:
            span = 232 // groups
            for g in range(groups):
                x, middle = left + span * g, left + span * g + (span - 3) // 2
                shapes.append(_fan(x, span - 3, middle - 13, 26, top + 50))
                for part, text in enumerate(("K", "V")):
                    shapes.append(_block(middle - 13 + 13 * part, top + 76, 12, 24, WARM))
                    shapes.append(label(middle - 7 + 13 * part, top + 92, text, size=10))
        else:
            middle = left + 114
            shapes.append(_fan(left, 229, middle - 17, 33, top + 50))
            shapes.append(_block(middle - 17, top + 76, 25, 24, WARM))
            shapes.append(_block(middle + 9, top + 76, 7, 24, WARM))
            shapes.append(label(middle - 22, top + 92, "latent", anchor="end", size=11))
            shapes.append(label(middle + 21, top + 92, "rope key", anchor="start", size=11))
    shapes.append(_block(20, 290, 14, 14, DEEP))
    shapes.append(label(40, 302, "a query head", anchor="start", size=12))
    shapes.append(_block(150, 290, 14, 14, WARM))
    shapes.append(label(170, 302, "numbers in the cache, per token and layer, to scale", anchor="start", size=12))
    words = (
        "Diagram: eight query heads of size 32 in four architectures, and what one token leaves in the cache of a layer. MHA: "
        "each head has its own K and V, 512 numbers. GQA: four heads share a K and a V, 128 numbers. MQA: all eight share one "
        "K and V, 64 numbers. MLA: all eight read one latent of 64 numbers and one rope key of 16, 80 numbers."
    )
    return sheet(552, 318, *shapes), words


def _block(x: int, y: int, width: int, height: int, fill: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" fill="{fill}"/>'


def _fan(x: int, width: int, low_x: int, low_width: int, top: int) -> str:
    """The light shape that joins query heads with what they read."""
    points = f"{x},{top} {x + width},{top} {low_x + low_width},{top + 24} {low_x},{top + 24}"
    return f'<polygon points="{points}" fill="{PALE}"/>'


def kept_and_intensity(query_heads: int, kv_heads: int, latent: int, context: int) -> dict[str, tuple[int, Fraction]]:
    """Per architecture: numbers that a token leaves in a layer's cache, and FLOPs per byte of a decode step (2 bytes)."""
    found = {
        name: (2 * heads * HEAD_DIM, attn_decode_intensity(query_heads, heads, HEAD_DIM, context))
        for name, heads in (("MHA", query_heads), ("GQA", min(kv_heads, query_heads)), ("MQA", 1))
    }
    return found | {"MLA": (latent + ROPE_DIM, mla_decode_intensity(query_heads, latent, ROPE_DIM, context))}


def compare(figure: Figure, query_heads: int, kv_heads: int, latent: int, context: int) -> str:
    """Numbers kept and FLOPs per byte, side by side, for MHA, GQA, MQA and MLA. Returns them in words."""
    found = kept_and_intensity(query_heads, kv_heads, latent, context)
    heads = min(kv_heads, query_heads)
    figure.subplots_adjust(left=0.12, right=0.98, top=0.86, bottom=0.17, wspace=0.3)
    left, right = figure.subplots(1, 2)
    rows = range(len(found) - 1, -1, -1)  # MHA on top
    for axes, part, title, ends, form in (
        (left, 0, "numbers per token and layer", (40, 10**6), "{:,}"),
        (right, 1, "FLOPs per byte in decode", (0.3, 30_000), "{:.3g}"),
    ):
        for row, colour, pair in zip(rows, (GREY, BLUE, SKY, GREEN), found.values()):
            value = float(pair[part])
            axes.plot([ends[0], value], [row, row], color=colour, linewidth=1, alpha=0.5)
            axes.plot(value, row, "o", color=colour, markersize=10, zorder=3)
            before = axes is right and value > 30  # the ridge stands to the right
            axes.annotate(form.format(pair[part] if part == 0 else value), (value, row), textcoords="offset points",
                          xytext=(-9 if before else 9, 7 if before else 0), va="center", ha="right" if before else "left")  # fmt: skip
        axes.set(xscale="log", xlim=ends, ylim=(-0.6, 3.6), title=title, xlabel="log scale")
        axes.set_yticks(rows, [f"GQA, {heads}" if name == "GQA" else name for name in found])
        ticks = [10**n for n in range(7) if ends[0] < 10**n < ends[1] / 10]
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])  # plain text: quicker to draw than 10 with an exponent
        axes.grid(visible=False, axis="y")
        axes.minorticks_off()
    right.axvline(float(RIDGE), color=ORANGE, linestyle="--")
    right.annotate(f"H100 needs\n{float(RIDGE):.1f}", (float(RIDGE), 2.6), xytext=(6, 0), textcoords="offset points",
                   color="#8A5A00", va="center")  # fmt: skip
    if kv_heads > heads:
        figure.text(0.5, 0.96, f"{kv_heads} K/V heads for {query_heads} query heads do not exist: GQA is drawn with {heads}",
                    ha="center", fontsize=9, color="#8A5A00")  # fmt: skip
    words = ", ".join(f"{name} {kept:,} and {float(ratio):.1f}" for name, (kept, ratio) in found.items())
    asked = f" ({kv_heads} would be more than the query heads)" if kv_heads > heads else ""
    return (
        f"{query_heads} query heads, {heads} K/V {'head' if heads == 1 else 'heads'} in GQA{asked}, a latent of {latent:,} in MLA, "
        f"context {context:,}: numbers per token and layer, and FLOP/B: {words}; an H100 needs {float(RIDGE):.1f}"
    )


def expand_or_absorb(
    figure: Figure, tokens: np.ndarray, expanded: np.ndarray, absorbed: np.ndarray, cached: int
) -> str:
    """FLOPs of one layer's attention against the number of new tokens in the pass. Returns where the lines cross."""
    figure.set_layout_engine("constrained", h_pad=0.1)
    axes = figure.subplots()
    axes.plot(tokens, expanded, color=BLUE, label="expand: make keys and values, then attend")
    axes.plot(tokens, absorbed, color=ORANGE, label="absorb: attend to the latents")
    axes.set(xscale="log", yscale="log", xlabel=f"new tokens in the pass, after {cached:,} in the cache (log scale)")
    axes.set_title("FLOPs of one layer's attention (log scale)")
    axes.set_ylim(absorbed[0] / 2, 8 * absorbed[-1])
    ticks = [10**n for n in range(6) if tokens[0] <= 10**n <= tokens[-1]]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.tick_params(which="minor", length=0)
    axes.legend(loc="upper left")
    cross = int(tokens[np.argmax(absorbed > expanded)])
    axes.plot([cross, cross], [absorbed[0] / 2, expanded[tokens == cross][0]], color=GREY, linestyle=":")
    axes.annotate(f"from {cross} new tokens on,\nexpanding is cheaper", (cross, absorbed[0]), xytext=(6, 8),
                  textcoords="offset points", fontsize=9, va="bottom")  # fmt: skip
    return (
        f"one new token after {cached:,}: {expanded[0] / absorbed[0]:.0f} times fewer FLOPs absorbed; "
        f"from {cross} new tokens on, expanding takes fewer"
    )
