"""The capacity panel of lesson 02: a model, a GPU and a load in; what fits, how fast it can be, and the arithmetic out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mini_engine.catalog import get_gpu, list_gpus, list_models
from mini_engine.course.figures import BLUE, GREEN, GREY, RED
from mini_engine.geometry import (
    kv_budget,
    kv_bytes_hybrid,
    kv_bytes_per_token,
    kv_bytes_per_token_per_gpu,
    kv_total_bytes,
    max_concurrency,
)
from mini_engine.sizing import Sizing, size
from mini_engine.sizing.command import find_model
from mini_engine.sizing.sizing import one_shard
from mini_engine.units import DTYPE_BYTES, GB, format_bytes, format_seconds, significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LIGHT = "#B8B8B8"
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
        "gpu": W.Dropdown(value="h100-sxm", options=list_gpus(), description="gpu", style=wide["style"], layout=wide["layout"]),
        "tp": {2: [1, 2, 4, 8, 16]},
        "dtype": ["bf16", "fp8"],
        "kv_dtype": ["bf16", "fp8", "fp32"],
        "context": {8192: contexts},
        "batch": {4: [1, 2, 4, 8, 16, 32, 64, 128, 256]},
        "params": W.Text(value=params, placeholder="only for models that cannot be counted: 80e9", **wide),
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

    The same function sizes it as `mini-engine size` uses, with the command's defaults. A model that cannot be read or
    sized is not an error here: the readout says what is wrong.
    """
    try:
        given = params.strip() or None
        s = size(
            find_model(model.strip()),
            get_gpu(gpu),
            tp=tp,
            context=context,
            batch=batch,
            kv_dtype=kv_dtype,
            dtype=dtype,
            num_params=given,
        )
    except (ValueError, OSError) as error:
        axes = figure.subplots()
        axes.set_axis_off()
        axes.text(0.5, 0.5, "Nothing to draw: see the text above.", ha="center", va="center")
        return str(error).replace("--list", "list_models()")
    figure.subplots_adjust(left=0.04, right=0.96, top=0.88, bottom=0.2, hspace=1.15)
    memory, time = figure.subplots(2, 1)
    _memory_bar(memory, s)
    _time_bar(time, s)
    _legend(figure, s.fits)
    return "\n".join([*_figures(s), *_arithmetic(s)])


def _memory_bar(axes: Axes, s: Sizing) -> None:
    need = s.reserved_per_sequence_per_gpu * s.batch
    parts: list[tuple[Any, str]] = [(s.weights_per_gpu, GREY), (s.overhead, LIGHT), (need, BLUE if s.fits else RED)]
    _stack(axes, [(float(amount / GB), colour) for amount, colour in parts])
    card = float(s.memory * s.util / GB)
    axes.axvline(card, color="black", linewidth=2.5)
    used = float((s.weights_per_gpu + s.overhead + need) / GB)
    axes.set_xlim(0, 1.05 * max(card, used))
    axes.set_title(f"GB of one GPU: the batch {'fits' if s.fits else 'does not fit'} (line: {card:g} GB)")


def _time_bar(axes: Axes, s: Sizing) -> None:
    _stack(axes, [(float(s.step.weights) * 1e3, GREY), (float(s.step.kv) * 1e3, BLUE if s.fits else RED)], 0.5)
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

    names = {"weights": GREY, "overhead": LIGHT, "K/V of the batch": BLUE if fits else RED, "compute": GREEN}
    handles = [Patch(color=colour, label=name) for name, colour in names.items()]
    figure.legend(handles=handles, loc="lower center", ncols=4, fontsize=9, handlelength=1.2)


def _figures(s: Sizing) -> list[str]:
    cards = s.gpu.name if s.tp == 1 else f"{s.tp} x {s.gpu.name}"
    name = s.model.name or s.model.model_type
    windows = f" ({s.concurrency_windowed:,} if windows are given back)" if s.model.num_windowed_layers else ""
    bound = "compute" if s.step.bound == "compute" else "memory bandwidth"
    return [
        f"{name} on {cards}, {s.batch:,} x {s.context:,} tokens, K/V in {s.kv_dtype}, weights in {s.dtype}: "
        f"{'fits' if s.fits else 'does not fit'}; room for {s.concurrency:,} such sequences{windows}",
        f"decode step at least {format_seconds(s.step.total)}, so at most {significant(s.tokens_per_s)} tokens/s; bound by {bound}",
    ]


def _arithmetic(s: Sizing) -> list[str]:
    """The working of the calculators, as `mini-engine size` prints it, without what does not fit a panel."""
    windows = []
    if s.model.num_windowed_layers:
        shard = one_shard(s.model, s.tp)
        steps = kv_bytes_hybrid.steps(shard, shard.layer_windows, s.context, s.kv_dtype)
        kinds = [line for line in steps if " layers, " in line]
        windows = [
            f"with windows, one sequence on one GPU: {'; '.join([*kinds, format_bytes(s.kv_per_sequence_per_gpu)])}"
        ]
    shared = f" / {s.tp} GPUs" if s.tp > 1 else ""
    return [
        f"K/V per token: {_short(kv_bytes_per_token.steps(s.model, s.kv_dtype))}",
        f"per GPU: {_short(kv_bytes_per_token_per_gpu.steps(s.model, s.tp, s.kv_dtype))}",
        f"of the batch, all GPUs: {kv_total_bytes.steps(s.model, s.context, s.batch, s.kv_dtype)[-1][2:]}",
        *windows,
        f"weights per GPU: {s.num_params:,} parameters × {DTYPE_BYTES[s.dtype]} B{shared} = {format_bytes(s.weights_per_gpu)}",
        f"budget per GPU: {_short(kv_budget.steps(s.memory, s.weights_per_gpu, s.overhead, s.util))}",
        f"room: {_short(max_concurrency.steps(s.budget, s.kv_per_token_per_gpu, s.context, s.block)[1:])}",
        *s.notes,
    ]


def _short(steps: list[str]) -> str:
    """Lines of a working in one line: the formula in words is left out where its numbers follow."""
    kept = [line for line, after in zip(steps, [*steps[1:], ""]) if line.startswith("=") or not after.startswith("=")]
    return SMALL.sub(r" = \1", "; ".join(line.removeprefix("= ") for line in kept))
