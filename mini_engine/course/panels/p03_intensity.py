"""Pictures of lesson 03: how intense a product is, how intense attention is, and where both stand under the roof."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mini_engine.catalog import get_gpu
from mini_engine.course.figures import BLUE, GREEN, GREY, ORANGE, RED
from mini_engine.roofline import attn_decode_intensity, gemm_intensity, min_tokens_compute_bound, ridge_point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ON_WHITE = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}


def logarithmic(axes: Axes, which: str = "both") -> None:
    """Logarithmic axes with plain numbers and few ticks: minor ticks cost more time to draw than all the rest."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    for name in ("x", "y"):
        if which in ("both", name):
            getattr(axes, f"set_{name}scale")("log")
            axis = getattr(axes, f"{name}axis")
            axis.set_major_locator(LogLocator(10, numticks=8))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def short(value: float) -> str:
    """0.1, 100, 1k, 10k, 1M: labels that leave room for one another."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def counted(number: int, noun: str) -> str:
    """1 token, 1,000 tokens."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def title_of(gpu: str) -> str:
    """A GPU's name as a title: h100-sxm becomes H100 SXM."""
    return gpu.replace("-", " ").upper()


def gemm(figure: Figure, batch: int, new_tokens: int, d: int, gpu: str = "h100-sxm") -> str:
    """FLOP per byte of a d x d weight against the tokens of a step: exact, its two limits, and the ridge. Returns it in words."""
    card = get_gpu(gpu)
    ridge = ridge_point(card.bf16_flops, card.memory_bandwidth)
    M = batch * new_tokens
    exact, threshold = gemm_intensity(M, d, d), min_tokens_compute_bound(d, d, ridge)
    x = np.logspace(0, 6, 61)
    figure.subplots_adjust(left=0.13, bottom=0.19)
    axes = figure.subplots()
    logarithmic(axes)
    axes.plot(x, x, "--", color=GREY, linewidth=1.2, label="limit for a large weight: M")
    axes.axhline(d / 2, color=GREEN, linestyle=":", label="limit for many tokens: d / 2")
    axes.axhline(float(ridge), color=RED, linewidth=1.2, label=f"ridge of {title_of(gpu)}")
    axes.plot(x, x * d / (2 * x + d), color=BLUE, label="exact")
    axes.plot(M, float(exact), "o", color=ORANGE, markersize=9, zorder=5, clip_on=False)
    axes.set(xlim=(1, 1e6), ylim=(0.5, 2e4), xlabel="tokens in the step, M = B T", ylabel="FLOP per byte")
    axes.set_title(f"[M, d] x [d, d], d = {d:,}, 2-byte numbers")
    axes.legend(loc="lower right", fontsize=8)
    start = (
        f"never compute bound, since d / 2 = {d / 2:,g}"
        if threshold is None
        else f"compute bound from {threshold:,} on"
    )
    return (
        f"B = {batch:,}, T = {new_tokens:,}, d = {d:,}: {counted(M, 'token')} in the step, {float(exact):,.1f} FLOP/B (limit M = {M:,}, "
        f"limit d / 2 = {d / 2:,g}); {title_of(gpu)} needs {float(ridge):.1f}: {_bound(exact, ridge)} bound; {start}"
    )


def _bound(intensity: Any, ridge: Any) -> str:
    return "compute" if intensity >= ridge else "memory"


KINDS = {"MQA 64/1": (1, GREEN, ":"), "GQA 64/8": (8, BLUE, "-"), "MHA 64/64": (64, GREY, "--")}


def attention(figure: Figure, context: int = 8192, head_dim: int = 128) -> str:
    """Intensity of decode attention against the context, and against the batch with and without a shared context."""
    figure.subplots_adjust(left=0.13, bottom=0.19)
    over_context, over_batch = figure.subplots(1, 2, sharey=True)
    contexts, batches = [2**i for i in range(17)], [2**i for i in range(11)]
    for name, (kv_heads, colour, line) in KINDS.items():
        y = [float(attn_decode_intensity(64, kv_heads, head_dim, S)) for S in contexts]
        over_context.plot(contexts, y, line, color=colour, label=name)
    alone = float(attn_decode_intensity(64, 8, head_dim, context))
    shared = [float(attn_decode_intensity(64, 8, head_dim, context, sharers=B)) for B in batches]
    over_batch.plot(batches, [alone] * len(batches), color=BLUE, label="own contexts")
    over_batch.plot(batches, shared, "--", color=ORANGE, label="one shared context")
    ridge = 989 / 3.35
    for axes, label, title in (
        (over_context, "tokens of context, S", "one sequence"),
        (over_batch, "sequences, B", f"GQA 64/8, {context:,} tokens"),
    ):
        logarithmic(axes)
        axes.axhline(ridge, color=RED, linewidth=1.2)
        axes.set(xlabel=label, ylim=(0.3, 2e4))
        axes.set_title(title)
        axes.legend(loc="upper left", fontsize=8)
    over_context.text(contexts[-1], ridge * 1.3, "ridge of an H100", ha="right", fontsize=8, color=RED)
    over_context.set_ylabel("FLOP per byte")
    crossing = next(B for B in range(1, 10**5) if attn_decode_intensity(64, 8, head_dim, context, sharers=B) >= ridge)
    ends = [
        f"{name} {float(attn_decode_intensity(64, k, head_dim, context)):.3g}"
        for name, (k, *_) in reversed(KINDS.items())
    ]
    return (
        f"at {context:,} tokens: {', '.join(ends)} FLOP/B; own contexts stay at {alone:.3g} for any batch; one context "
        f"shared by B sequences rises and passes the ridge at B = {crossing}"
    )


def roofline(figure: Figure, points: Sequence[tuple[str, float]], gpu: str = "h100-sxm") -> str:
    """Named intensities under a GPU's roof: the rate that each can reach at best. Returns them in words."""
    card = get_gpu(gpu)
    ridge = card.bf16_flops / card.memory_bandwidth
    x = np.array([0.5, ridge, 4000])
    figure.subplots_adjust(left=0.13, bottom=0.17)
    axes = figure.subplots()
    logarithmic(axes)
    axes.plot(x, np.minimum(x * card.memory_bandwidth, card.bf16_flops) / 1e12, color=GREY)
    axes.axvline(ridge, ymin=0.55, color=RED, linewidth=1, linestyle=":")
    said = []
    for number, (name, intensity) in enumerate(points, 1):
        rate = min(intensity * card.memory_bandwidth, card.bf16_flops) / 1e12
        colour = BLUE if intensity < ridge else ORANGE
        axes.plot(intensity, rate, "o", color=colour, markersize=13, zorder=4)
        axes.text(
            intensity,
            rate,
            f"{number}",
            color="white" if colour == BLUE else "black",
            fontsize=8,
            ha="center",
            va="center",
            zorder=5,
            weight="bold",
        )
        axes.text(0.5, 0.06 + 0.085 * (len(points) - number), f"{number}  {name}: {intensity:,.3g}",
                  transform=axes.transAxes, ha="left", va="center", fontsize=8.5, bbox=ON_WHITE)  # fmt: skip
        said.append(f"{name} {intensity:,.1f} FLOP/B, {rate / card.bf16_flops * 1e14:.3g}% of the peak")
    axes.text(ridge * 0.9, 1700, f"ridge {ridge:.0f}", color=RED, fontsize=8.5, ha="right", bbox=ON_WHITE)
    axes.set(xlim=(0.5, 4000), ylim=(1, 3000), xlabel="FLOP per byte", ylabel="TFLOP/s at best")
    axes.set_title(f"under the roof of an {title_of(gpu)}")
    return "; ".join(said)
