"""The capacity panel of lesson 02: a model, a GPU and a load in; what fits, how fast it can be, and the arithmetic out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mini_engine.catalog import get_gpu, list_gpus, list_models
from mini_engine.course.figures import BLUE, GREEN, RED
from mini_engine.geometry import (
    kv_budget,
    kv_bytes_hybrid,
    kv_bytes_per_token,
    kv_bytes_per_token_per_gpu,
    max_concurrency,
)
from mini_engine.geometry.shards import one_shard
from mini_engine.sizing import CacheSizing, Sizing, size, size_cache
from mini_engine.sizing.command import find_model
from mini_engine.sizing.report import least_read
from mini_engine.sizing.sizing import uncounted
from mini_engine.units import DTYPE_BYTES, GB, format_bytes, format_seconds, significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIDDLE, LIGHT = "#9E9E9E", "#D6D6D6"
"""Greys that stand apart from blue and red on a black-and-white print too."""

SMALL = re.compile(r" = [\d.,e-]+ GB = [\d.,e-]+ GiB \(([\d.,]+ [KM]iB)\)")
"""Sizes below a GiB, as `format_bytes` writes them: the unit in parentheses is the one to read."""


def controls(model: str = "llama-3-70b", params: str = "") -> dict[str, Any]:
    """The panel's controls: `panel(capacity, **controls())`. The model is a name or the path of a `config.json`."""
    import ipywidgets as W

    wide = {"style": {"description_width": "9em"}, "layout": W.Layout(width="32em"), "continuous_update": False}
    contexts = [1024 * 2**power for power in range(8)]
    return {
        "model": W.Combobox(
            value=model, options=list_models(), ensure_option=False, placeholder="a name, or path/to/config.json", **wide
        ),
        "gpu": {"h100-sxm": list_gpus()},
        "tp": {2: [1, 2, 4, 8, 16]},
        "dtype": ["bf16", "fp8"],
        "kv_dtype": ["bf16", "fp8", "fp32"],
        "context": {8192: contexts},
        "batch": {4: [1, 2, 4, 8, 16, 32, 64, 128, 256]},
        "params": W.Text(value=params, placeholder="such as 80e9, or 80e9, 3e9 active", **wide),
    }  # fmt: skip


def capacity(
    figure: Figure,
    model: str,
    gpu: str,
    tp: int,
    context: int,
    batch: int,
    kv_dtype: str = "bf16",
    dtype: str = "bf16",
    params: str = "",
) -> str:
    """Bars of one GPU's memory and of one decode step; returns the figures and the worked arithmetic, line by line.

    The same functions size it as `mini-engine size` uses, with the command's defaults. params: of a model whose weights
    cannot be counted, all parameters, and the active ones behind a comma; without them the K/V is shown alone. A model
    that cannot be read or sized is not an error here: the readout says what is wrong.
    """
    deployment: dict[str, Any] = {"tp": tp, "context": context, "batch": batch, "kv_dtype": kv_dtype, "dtype": dtype}
    try:
        spec, card = find_model(model.strip()), get_gpu(gpu)
        total, _, active = (part.strip() or None for part in params.partition(","))
        reason = "" if total or active else uncounted(spec)
        s = (
            size_cache(spec, card, **deployment)
            if reason
            else size(spec, card, **deployment, num_params=total, num_active_params=active)
        )
    except (ValueError, OSError) as error:
        axes = figure.subplots()
        axes.set_axis_off()
        axes.text(0.5, 0.5, "Nothing to draw: see the text above.", ha="center", va="center")
        return _in_panel_words(str(error))
    if not isinstance(s, Sizing):
        _cache_bar(figure, s)
        missing = f"{reason}, so what fits and how fast is left out: write them into the field params, such as 80e9"
        only = "does not fit, whatever the weights" if s.too_large else "K/V only"
        return "\n".join([f"{_load(s)}: {only}", missing, *_cache_arithmetic(s), *map(_in_panel_words, s.notes)])
    figure.subplots_adjust(left=0.04, right=0.96, top=0.88, bottom=0.2, hspace=1.15)
    memory, time = figure.subplots(2, 1)
    _memory_bar(memory, s)
    _time_bar(time, s)
    _legend(figure, s.fits_windowed)
    return "\n".join([*_figures(s), *_arithmetic(s)])


def _memory_bar(axes: Axes, s: Sizing) -> None:
    parts: list[tuple[Any, str]] = [
        (s.weights_per_gpu, MIDDLE),
        (s.overhead, LIGHT),
        (s.need, BLUE if s.fits_windowed else RED),
    ]
    _stack(axes, [(float(amount / GB), colour) for amount, colour in parts])
    card = float(s.memory * s.util / GB)
    axes.axvline(card, color="black", linewidth=2.5)
    used = float((s.weights_per_gpu + s.overhead + s.need) / GB)
    axes.set_xlim(0, 1.05 * max(card, used))
    axes.set_title(f"GB of one GPU: the batch {s.verdict} (line: {card:g} GB)")


def _cache_bar(figure: Figure, s: CacheSizing) -> None:
    """The K/V of the batch on one card whose weights are not known."""
    axes = figure.subplots()
    figure.subplots_adjust(left=0.04, right=0.96, top=0.8, bottom=0.45)
    held, card = float(s.kv_per_gpu / GB), float(s.memory * s.util / GB)
    _stack(axes, [(held, RED if s.too_large else BLUE)])
    axes.axvline(card, color="black", linewidth=2.5)
    axes.set_xlim(0, 1.05 * max(card, held))
    axes.set_title(f"GB of one GPU: K/V of the batch, without the weights (line: {card:g} GB)")


def _time_bar(axes: Axes, s: Sizing) -> None:
    _stack(
        axes, [(float(s.step.weights) * 1e3, MIDDLE), (float(s.step.kv) * 1e3, BLUE if s.fits_windowed else RED)], 0.5
    )
    axes.barh(-0.5, float(s.step.compute) * 1e3, height=0.8, color=GREEN)
    axes.set_xlim(0, 1.05e3 * float(s.step.total))
    axes.set_ylim(-1, 1)
    axes.set_title(
        f"one decode step, ms at least: bound by {'compute' if s.step.bound == 'compute' else 'memory bandwidth'}"
    )


def _stack(axes: Axes, parts: list[tuple[float, str]], place: float = 0.0) -> None:
    start = 0.0
    for width, colour in parts:
        axes.barh(place, width, left=start, height=0.8, color=colour)
        start += width
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _legend(figure: Figure, fits: bool) -> None:
    from matplotlib.patches import Patch

    names = {"weights": MIDDLE, "overhead": LIGHT, "K/V of the batch": BLUE if fits else RED, "compute": GREEN}
    handles = [Patch(color=colour, label=name) for name, colour in names.items()]
    figure.legend(handles=handles, loc="lower center", ncols=4, fontsize=9, handlelength=1.2)


def _load(s: CacheSizing) -> str:
    cards = s.gpu.name if s.tp == 1 else f"{s.tp} x {s.gpu.name}"
    name = s.model.name or s.model.model_type
    weights = f", weights in {s.dtype}" if isinstance(s, Sizing) else ""
    return f"{name} on {cards}, {s.batch:,} x {s.context:,} tokens, K/V in {s.kv_dtype}{weights}"


def _figures(s: Sizing) -> list[str]:
    windows = f" ({s.concurrency_windowed:,} if windows are given back)" if s.num_windowed_layers else ""
    bound = "compute" if s.step.bound == "compute" else "memory bandwidth"
    expected = ""
    if s.reads.expected > s.reads.least:
        expected = f" (with experts drawn at random {format_seconds(s.expected_step.total)})"
    such = "such sequence" if s.concurrency == 1 else "such sequences"
    return [
        f"{_load(s)}: {s.verdict}; room for {s.concurrency:,} {such}{windows}",
        f"decode step at least {format_seconds(s.step.total)}{expected}, so at most {significant(s.tokens_per_s)} tokens/s; "
        f"bound by {bound}",
    ]


def _cache_arithmetic(s: CacheSizing) -> list[str]:
    """The working of the calculators, as `mini-engine size` prints it, without what does not fit a panel."""
    windows = []
    if s.num_windowed_layers:
        shard = one_shard(s.model, s.tp)
        steps = kv_bytes_hybrid.steps(shard, shard.layer_windows, s.context, s.kv_dtype)
        kinds = [line for line in steps if " layers, " in line]
        windows = [
            f"with windows, one sequence on one GPU: {'; '.join([*kinds, format_bytes(s.kv_per_sequence_per_gpu)])}"
        ]
    each = f"{s.kv_per_token_per_gpu:,} × {s.context:,} × {s.batch:,} = {format_bytes(s.kv_per_gpu)}"
    copies = ", copies included" if s.kv_held > s.kv_total else ""
    together = f"; on {s.tp} GPUs together {s.kv_held:,} B{copies}" if s.tp > 1 else ""
    return [
        f"K/V per token: {_short(kv_bytes_per_token.steps(s.model, s.kv_dtype))}",
        f"per GPU: {_short(kv_bytes_per_token_per_gpu.steps(s.model, s.tp, s.kv_dtype))}",
        f"of the batch, per GPU: {each}{together}",
        *windows,
    ]


def _arithmetic(s: Sizing) -> list[str]:
    shared = f" / {s.tp} GPUs" if s.tp > 1 else ""
    return [
        *_cache_arithmetic(s),
        f"weights per GPU: {s.num_params:,} parameters × {DTYPE_BYTES[s.dtype]} B{shared} = {format_bytes(s.weights_per_gpu)}",
        least_read(s),
        f"budget per GPU: {_short(kv_budget.steps(s.memory, s.weights_per_gpu, s.overhead, s.util))}",
        f"room: {_short(max_concurrency.steps(s.budget, s.kv_per_token_per_gpu, s.context, s.block)[1:])}",
        *map(_in_panel_words, s.notes),
    ]


PANEL_WORDS = {
    "mini-engine size --list": "list_models()",
    "--list": "list_models()",
    "num_active_params=": "params, behind the comma, ",
    "num_params=": "params=",
    "needs num_params too": "needs all of them before it",
    "(num_active_params, --active-params)": "(behind a comma)",
    "dtype (--dtype)": "dtype",
}
"""What the command calls its options, and what they are called here."""


def _in_panel_words(text: str) -> str:
    for command, here in PANEL_WORDS.items():
        text = text.replace(command, here)
    return text


def _short(steps: list[str]) -> str:
    """Lines of a working in one line: the formula in words is left out where its numbers follow."""
    kept = [line for line, after in zip(steps, [*steps[1:], ""]) if line.startswith("=") or not after.startswith("=")]
    return SMALL.sub(r" = \1", "; ".join(line.removeprefix("= ") for line in kept))
