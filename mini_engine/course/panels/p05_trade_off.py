"""The two panels of lesson 05: bits, groups and grouping against error, and what a window with sinks keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mini_engine.attention import IntCodec, causal_attention
from mini_engine.attention.windowed import window_mask
from mini_engine.course.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, YELLOW
from mini_engine.course.panels.p05_quantization import Array, plain_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BITS = (8, 4, 2)
GROUPS = (8, 16, 32)
LAYOUTS = {
    "K per channel, V per token": ("channel", "token"),
    "K and V per token": ("token", "token"),
    "K per token, V per channel": ("token", "channel"),
    "K and V per channel": ("channel", "channel"),
}


def _margins(wspace: float) -> dict[str, float]:
    """Places fixed by hand: a layout engine takes longer than all the rest of a redraw."""
    return {"left": 0.08, "right": 0.97, "bottom": 0.18, "top": 0.89, "wspace": wspace}


class TradeOff:
    """A panel over bits, group and layout: bits a number with scale and zero, against the error of attention.

    Made with one layer's q[T, H, D], k[T, K, D], v[T, K, D]; `draw(figure, bits, group, layout)` then draws all settings
    in grey and the chosen one on top.
    """

    def __init__(self, q: Array, k: Array, v: Array) -> None:
        self.q, self.k, self.v = q, k, v
        self.exact = self._attention(k, v)
        each = {
            (which, bits, group, by): self._through(x, bits, group, by)
            for which, x in (("k", k), ("v", v))
            for bits in BITS
            for group in GROUPS
            for by in ("token", "channel")
        }
        self.points = {
            (bits, group, layout): (
                bits + 32 / group,
                self._error(each["k", bits, group, a], each["v", bits, group, b]),
            )
            for bits in BITS
            for group in GROUPS
            for layout, (a, b) in LAYOUTS.items()
        }

    def _through(self, x: Array, bits: int, group: int, by: str) -> Array:
        codec = IntCodec(bits, by, group, symmetric=False)
        return codec.decode(codec.encode(x)).astype(x.dtype)

    def _attention(self, k: Array, v: Array) -> Array:
        return causal_attention(self.q, k, v, self.q.shape[-1] ** -0.5)

    def _error(self, k: Array, v: Array) -> float:
        return float(np.linalg.norm(self._attention(k, v) - self.exact) / np.linalg.norm(self.exact))

    def draw(self, figure: Figure, bits: int, group: int, layout: str) -> str:
        """Draw bits a number and the error against them; returns the words."""
        bars, axes = figure.subplots(1, 2, width_ratios=[1, 2.3], gridspec_kw=_margins(0.32))
        parts = {"codes": bits, "scales": 16 / group, "zeros": 16 / group}
        bottom = 0.0
        for (name, height), colour in zip(parts.items(), (PURPLE, YELLOW, GREEN)):
            bars.bar([0], [height], bottom=bottom, color=colour, width=0.6, label=name)
            bottom += height
        bars.axhline(16, color=GREY, linewidth=1, linestyle="--")
        bars.set(title="bits a number", ylim=(0, 26), xlim=(-0.6, 0.6), xticks=[], yticks=[0, 4, 8, 12, 16])
        bars.annotate(
            "bf16", (0.58, 16), xytext=(0, -12), textcoords="offset points", ha="right", color=GREY, fontsize=9
        )
        bars.legend(loc="upper left", fontsize=8)
        for by, colour, marker, shift in (("token", ORANGE, "o", -0.08), ("channel", BLUE, "s", 0.08)):
            chosen = [point for (_, _, name), point in self.points.items() if LAYOUTS[name][0] == by]
            sizes, wrong = np.array(chosen).T
            axes.scatter(sizes + shift, wrong, s=20, color=colour, marker=marker, label=f"keys per {by}")
        size, error = self.points[bits, group, layout]
        shift = -0.08 if LAYOUTS[layout][0] == "token" else 0.08
        axes.scatter([size + shift], [error], s=170, facecolor="none", edgecolor=RED, linewidth=2.2, zorder=3)
        axes.set(
            yscale="log",
            xlim=(2, 13),
            ylim=(0.002, 2),
            xlabel="bits a number",
            title="error of attention / its size (log)",
        )
        plain_ticks(axes, [0.003, 0.01, 0.03, 0.1, 0.3, 1])
        axes.legend(loc="upper right", fontsize=9, frameon=True, framealpha=1, edgecolor="none")
        numbers = 2 * self.k[0].size
        return (
            f"{bits} bits, groups of {group}, {layout}: {size:g} bits a number with scales and zeros, "
            f"{size / 16:.4f} of bf16, {numbers * size / 8:g} B a token in this layer; "
            f"attention is off by {error:.4f} of its size"
        )


def kept(figure: Figure, tokens: int, window: int, sinks: int) -> str:
    """Who sees whom with a window of `window` tokens and the first `sinks` kept. Returns the counts in words."""
    from matplotlib.colors import ListedColormap
    from matplotlib.ticker import MaxNLocator

    table, sizes = figure.subplots(1, 2, width_ratios=[1, 1.3], gridspec_kw=_margins(0.25))
    mask = window_mask(tokens, tokens, window, sinks)
    shade = np.where(mask, 2, np.tri(tokens, dtype=int))
    table.imshow(shade, cmap=ListedColormap(["white", "#DCDCDC", BLUE]), vmin=0, vmax=2, interpolation="nearest")
    table.set(title="query (down) sees key", xlabel="key", ylabel="query")
    table.grid(False)
    lengths = np.arange(1, tokens + 1)
    sizes.plot(lengths, lengths, color=GREY, linestyle="--", label="full")
    dot = "o" if tokens == 1 else None  # a line needs two points
    sizes.plot(lengths, mask.sum(axis=1), color=BLUE, marker=dot, label="window and sinks")
    sizes.set(title="tokens in the cache", xlabel="tokens so far", xlim=(0, tokens + 1), ylim=(0, 1.1 * tokens))
    sizes.legend(loc="upper left", fontsize=9)
    for axis in (table.xaxis, table.yaxis, sizes.xaxis, sizes.yaxis):
        axis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    held, lost = int(mask[-1].sum()), tokens - int(mask[-1].sum())
    gone = "nothing is gone yet"
    if lost:
        gone = f"token {sinks} is gone" if lost == 1 else f"tokens {sinks} to {tokens - window - 1} are gone"
    return f"{tokens} token{'s' * (tokens != 1)}, window {window}, {sinks} sink{'s' * (sinks != 1)}: the newest token sees {held}; {gone}"
