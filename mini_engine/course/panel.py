"""`panel`: sliders over one picture and the numbers it shows. The widget itself is in `panel_widget`, which imports ipywidgets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mini_engine.course.panel_widget import Panel


def panel(draw: Callable[..., str], *, width: float = 6.4, height: float = 3.2, **controls: Any) -> Panel:
    """Controls above one readout with its picture, redrawn when a control changes.

    draw(figure, **values) draws on an empty matplotlib Figure and returns the readout: one sentence that says in numbers
    what the picture shows (it becomes the alternative text too). It must not depend on anything but its values.

    Each control is given by its values:
        batch=(8, 1, 64)            a slider: start, lowest, highest (and a step: (8, 1, 64, 1)); floats give a float slider
        seq_len=[128, 256, 512]     a slider over these values, starting at the first
        seq_len={256: [128, 256]}   the same, starting at the key
        dtype=["fp16", "int8"]      the same for words
        causal=True                 a box to tick
        anything=an ipywidget       as it is
    ValueError for a control that cannot be read. In viewers without a kernel the panel is a still picture; so is it in the
    page that `jupyter nbconvert` makes of a stored notebook. (With --execute that page asks the network for the widget.)
    """
    from mini_engine.course.panel_widget import Panel

    return Panel(draw, controls, width=width, height=height)
