"""Pictures of lesson 03: what a batch gives when K/V is read, and this machine's own roofline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mini_engine.course.figures import BLUE, GREEN, GREY, ORANGE, RED
from mini_engine.course.gpu_share import GPUShare, half_70b
from mini_engine.course.panels.p03_intensity import counted, logarithmic
from mini_engine.roofline import batch_for_ridge
from mini_engine.roofline.measure import MachineRates, Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def seconds(gpu: GPUShare, context: int, batch: np.ndarray | int, kv: bool = True) -> np.ndarray:
    """Least seconds of a decode step, with the K/V reads or without them."""
    B = np.asarray(batch, dtype=float)
    moved = gpu.weight_bytes + (gpu.kv_bytes_per_token * context * B if kv else 0)
    work = (gpu.flops_per_token + gpu.flops_per_score * context * kv) * B
    return np.maximum(moved / gpu.bandwidth, work / gpu.peak)


def most(gpu: GPUShare, context: int) -> tuple[float, str]:
    """Tokens per second that no batch exceeds, and what sets the limit: reading K/V or computing."""
    reading = gpu.bandwidth / (gpu.kv_bytes_per_token * context)
    computing = gpu.peak / (gpu.flops_per_token + gpu.flops_per_score * context)
    return min((reading, "reading K/V"), (computing, "computing"))


def batching(figure: Figure, context: int, batch: int, gpu: str = "h100-sxm") -> str:
    """Tokens per second and step time of half a 70B model against the batch. Returns the chosen point in words."""
    share = half_70b(gpu)
    fits = share.kv_budget // (share.kv_bytes_per_token * context)
    x = np.logspace(0, 3.4, 60)
    figure.subplots_adjust(left=0.1, bottom=0.19, wspace=0.28)
    rate, step = figure.subplots(1, 2)
    for kv, colour, label in ((False, GREY, "without K/V"), (True, BLUE, "with K/V")):
        t = seconds(share, context, x, kv)
        style = "-" if kv else "--"
        rate.plot(x, x / t, style, color=colour)
        step.plot(x, 1e3 * t, style, color=colour, label=label)
    now = float(seconds(share, context, batch))
    rate.plot(batch, batch / now, "o", color=ORANGE, zorder=5, clip_on=False)
    step.plot(batch, 1e3 * now, "o", color=ORANGE, zorder=5, clip_on=False)
    ceiling, by = most(share, context)
    rate.axhline(ceiling, color=RED, linewidth=1.2, linestyle=":")
    for axes, title, limits in ((rate, "tokens per second", (20, 1e5)), (step, "step time, ms", (5, 1e4))):
        logarithmic(axes)
        axes.axvspan(min(fits + 0.5, 3000), 3000, color=ORANGE, alpha=0.12, linewidth=0)
        axes.set(xlim=(1, 2500), ylim=limits, xlabel="sequences, B")
        axes.set_title(title)
    step.fill([], [], facecolor="#FBF0DB", edgecolor=ORANGE, linewidth=0.8, label="does not fit")
    step.plot([], [], ":", color=RED, label="no batch is above")
    step.legend(loc="upper left", fontsize=8)
    work = share.flops_per_token + share.flops_per_score * context
    free = batch_for_ridge(share.weight_bytes, share.kv_bytes_per_token, context, work, share.peak / share.bandwidth)
    ends = f"compute bound from batch {free:,} on" if free else "no batch is compute bound"
    slower = now / float(seconds(share, context, 1)) - 1
    return (
        f"2 x {gpu}, context {context:,}, batch {batch:,}: step {1e3 * now:,.1f} ms, {batch / now:,.0f} tokens/s ({slower:+,.0%} time against "
        f"batch 1; {batch / float(seconds(share, context, batch, False)):,.0f} tokens/s without K/V); "
        f"{counted(fits, 'sequence')} fit{'s' if fits == 1 else ''}; no batch makes more than {ceiling:,.0f} tokens/s, by {by}; {ends}"
    )


def measured(figure: Figure, rates: MachineRates, products: Sequence[Measured], steps: Sequence[Measured]) -> str:
    """A machine's measured roof with products and engine steps under it. Returns how near each comes."""
    everything = [*products, *steps]
    x = np.array([min(p.intensity for p in everything) / 2, rates.ridge, 2 * max(p.intensity for p in everything)])
    figure.subplots_adjust(left=0.13, bottom=0.19)
    axes = figure.subplots()
    logarithmic(axes)
    axes.plot(x, np.minimum(x * rates.bandwidth, rates.flops) / 1e9, color=GREY, label="this machine's roof")
    prefill = [s for s in steps if s.name.startswith("prefill")]
    decode = [s for s in steps if not s.name.startswith("prefill")]
    for points, colour, marker, label in (
        (products, GREEN, "x", "one product"),
        (decode, BLUE, "o", "engine: decode step"),
        (prefill, ORANGE, "s", "engine: prefill step"),
    ):
        axes.plot([p.intensity for p in points], [p.rate / 1e9 for p in points], marker, color=colour, label=label)
    for step in steps:
        axes.annotate(step.name.split()[-1], (step.intensity, step.rate / 1e9), textcoords="offset points",
                      xytext=(0, -14), ha="center", fontsize=8)  # fmt: skip
    axes.axvline(rates.ridge, color=RED, linewidth=1, linestyle=":")
    axes.set(xlim=x[[0, -1]], ylim=(min(p.rate for p in everything) / 3e9, rates.flops / 3e8))
    axes.set(xlabel="FLOP per byte", ylabel="GFLOP/s")
    axes.set_title(f"measured here, one thread: ridge {rates.ridge:.1f} FLOP/B")
    axes.legend(loc="lower right", fontsize=8)
    shares = [f"{s.name} {100 * s.rate / min(s.intensity * rates.bandwidth, rates.flops):.0f}%" for s in steps]
    return f"share of the roof reached: {', '.join(shares)}"
