"""The film in a notebook: a slider over its frames, words and picture in one HTML value. It imports ipywidgets."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import ipywidgets as W

from mini_engine.course.film.still import Still

# JupyterLab's theme decides which of its two looks a picture takes; other pages follow the reader's system.
THEMED = (
    "<style>[data-jp-theme-light=true] .film-frame{color-scheme:light}"
    "[data-jp-theme-light=false] .film-frame{color-scheme:dark}</style>"
)
TEXT = "margin:0 0 8px;line-height:1.45;font-size:14px;max-width:62em"


class Player(W.VBox):
    """A slider and one `W.HTML`. Arrow keys step, Home and End jump, once the slider has the focus.

    slider:   set `.index` to step.
    view:     the HTML widget with the words and the picture.
    readout:  the words shown now, the same as the alternative text.
    """

    def __init__(self, stills: Sequence[Still]) -> None:
        self.stills = stills
        self.slider = W.SelectionSlider(
            options=[(still.label, number) for number, still in enumerate(stills)],
            description="film",
            tooltip="film",
            continuous_update=False,
            layout=W.Layout(width="36em"),
        )
        self.view = W.HTML(layout=W.Layout(min_height=f"{stills[0].height + 60}px"))
        self._show(0)
        self.slider.observe(lambda change: self._show(change["new"]), names="value")
        super().__init__([self.slider, self.view])

    @property
    def still(self) -> Still:
        """The frame shown now."""
        return self.stills[self.slider.value]

    def _show(self, number: int) -> None:
        still = self.stills[number]
        self.readout = still.words
        told = html.escape(still.words).replace("\n", "<br>\n")
        self.view.value = f'{THEMED}<p role="status" style="{TEXT}">{told}</p>{still.img}'

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """The live widget where there is a kernel; elsewhere the frame as it is now, and all of it as text."""
        live = super()._repr_mimebundle_(**kwargs) or {}
        wide = Still([view._replace(narrow_scene=None) for view in self.still.views])
        told = html.escape(wide.words).replace("\n", "<br>\n")
        return {**live, "text/html": f'<p style="{TEXT}">{told}</p>{wide.img}', "text/plain": wide.text}
