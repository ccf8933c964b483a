"""The widget behind `panel`. Readout and picture are one HTML value, so they can never disagree and never flicker."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

import ipywidgets as W

from mini_engine.course import figures

UNCUT = "<style>.course-panel .widget-readout { max-width: none; flex-shrink: 0 }</style>"
"""A slider's label keeps its end, such as the last letters of a GPU's name: widgets cut it at some 137 pixels."""


class Panel(W.VBox):
    """A column of controls and one `W.HTML`.

    controls: {name: widget}; set `.value` on one to redraw.
    view:     the HTML widget with the readout and the picture.
    readout:  the sentence shown now.
    """

    def __init__(self, draw: Callable[..., str], controls: dict[str, Any], *, width: float, height: float) -> None:
        self.draw = draw
        self.controls = {name: _control(name, given) for name, given in controls.items()}
        self.figure = figures.new_figure(width, height)
        self.readout, self.png = "", b""
        # The frame keeps its height while a picture is exchanged, so that the page does not jump.
        pixels = round(height * figures.DPI)
        self.view = W.HTML(layout=W.Layout(min_height=f"{pixels + 40}px"))
        self._redraw()
        for control in self.controls.values():
            control.observe(self._on_change, names="value")
        super().__init__([*self.controls.values(), self.view, W.HTML(UNCUT)])
        self.add_class("course-panel")

    @property
    def values(self) -> dict[str, Any]:
        """The value of every control."""
        return {name: control.value for name, control in self.controls.items()}

    def _redraw(self) -> None:
        with figures.style():
            self.figure.clear()
            self.readout = self.draw(self.figure, **self.values)
            self.png = figures.png(self.figure)
        words = html.escape(self.readout).replace("\n", "<br>\n")
        self.view.value = f'<p role="status">{words}</p>{figures.img(self.png, self.readout)}'

    def _on_change(self, change: Any) -> None:
        try:
            self._redraw()
        except Exception as error:  # an error in a callback would vanish in the log
            self.view.value = f'<p role="status">{html.escape(f"{type(error).__name__}: {error}")}</p>'

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """The live widget where there is a kernel; elsewhere words and picture as they are now, and the words as text."""
        live = super()._repr_mimebundle_(**kwargs) or {}
        return {**live, "text/html": self.view.value, "text/plain": self.readout}


def _control(name: str, given: Any) -> W.Widget:
    """The widget for one control, as described in `panel`."""
    look = {
        "description": name.replace("_", " "),
        "tooltip": name.replace("_", " "),
        "style": {"description_width": "9em"},
        "layout": W.Layout(width="32em"),
    }
    late = {"continuous_update": False, **look}
    if isinstance(given, W.Widget):
        if not given.description:
            given.description = look["description"]
        return given
    if isinstance(given, bool):
        return W.Checkbox(value=given, **look)
    if isinstance(given, dict) and len(given) == 1:
        (start, options), *_ = given.items()
        return _choice(list(options), start, late)
    if isinstance(given, list) and given:
        return _choice(given, given[0], late)
    if isinstance(given, tuple) and len(given) in (3, 4) and all(isinstance(n, (int, float)) for n in given):
        whole = all(isinstance(n, int) for n in given)
        start, low, high, step = given if len(given) == 4 else (*given, 1 if whole else (given[2] - given[1]) / 100)
        if not low <= start <= high:
            raise ValueError(f"panel: {name} starts at {start}, outside {low} to {high}")
        if whole:
            return W.IntSlider(value=start, min=low, max=high, step=step, readout_format=",d", **late)
        return W.FloatSlider(value=start, min=low, max=high, step=step, **late)
    raise ValueError(f"panel: cannot make a control of {name}={given!r}; see help(panel) for what it takes")


def _choice(options: list[Any], start: Any, late: dict[str, Any]) -> W.Widget:
    """A slider for words too: in a drop-down list JupyterLab takes the arrow keys for itself, and goes to another cell."""
    if start not in options:
        raise ValueError(f"panel: the start {start!r} is not one of the options {options}")
    labels = [option if isinstance(option, str) else f"{option:,}" for option in options]
    return W.SelectionSlider(options=list(zip(labels, options)), value=start, **late)
