"""Pictures with one look: colours that colour-blind readers can tell apart, small files, and words beside every picture."""

from __future__ import annotations

import base64
import html
import io
import urllib.parse
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, in an order whose neighbours differ in lightness too.
BLUE, ORANGE, GREEN, SKY, RED, YELLOW, PURPLE, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#F0E442", "#CC79A7", "#6B6B6B",
)  # fmt: skip
COLOURS = (BLUE, ORANGE, GREEN, SKY, RED, YELLOW, PURPLE, GREY)
DPI = 100


def style() -> AbstractContextManager[None]:
    """The course's plot style, for the length of a `with` block."""
    import matplotlib
    from cycler import cycler

    settings: Any = {
        "axes.prop_cycle": cycler(color=COLOURS),
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "font.size": 10,
        "font.family": ["DejaVu Sans"],  # ships with matplotlib: the same pixels everywhere
        "grid.color": "#E4E4E4",
        "legend.frameon": False,
        "lines.linewidth": 2,
        "figure.facecolor": "white",
    }
    return matplotlib.rc_context(settings)


def new_figure(width: float = 6.4, height: float = 3.2) -> Figure:
    """An empty figure, in inches, that no pyplot state knows about: nothing prints itself."""
    from matplotlib.figure import Figure
    from matplotlib.gridspec import SubplotParams

    margins = SubplotParams(left=0.11, right=0.97, bottom=0.18, top=0.89)
    return Figure(figsize=(width, height), dpi=DPI, subplotpars=margins)


def png(figure: Figure, colours: int = 64) -> bytes:
    """The figure as a PNG of at most `colours` colours: a third of the size, and the same bytes every time."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    picture = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba()).convert("RGB")
    out = io.BytesIO()
    picture.quantize(colours, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
        out, "PNG", optimize=True
    )
    return out.getvalue()


def img(data: bytes, alt: str) -> str:
    """An HTML image that carries its own PNG and says in `alt` what it shows."""
    code = base64.b64encode(data).decode("ascii")
    return f'<img src="data:image/png;base64,{code}" alt="{html.escape(alt, quote=True)}" style="max-width:100%">'


class Picture:
    """A still picture with its message in words: an HTML image, since pages and readers keep the alternative text of that."""

    def __init__(self, data: bytes, text: str) -> None:
        self.data, self.text = data, text

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/html": img(self.data, self.text), "text/plain": self.text}

    def __repr__(self) -> str:
        return self.text


def picture(draw: Any, *, width: float = 6.4, height: float = 3.2, **values: Any) -> Picture:
    """Draw once and keep the picture: `draw(figure, **values)` returns the message in words. The still twin of `panel`."""
    figure = new_figure(width, height)
    with style():
        text = draw(figure, **values)
        return Picture(png(figure), text)


class SVG:
    """A drawing shown as an image, so that no page strips it and every reader hears `alt`."""

    def __init__(self, source: str, alt: str) -> None:
        self.source, self.alt = source, alt

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        uri = "data:image/svg+xml," + urllib.parse.quote(self.source, safe=" =:/,;()'")
        return {"text/html": f'<img src="{uri}" alt="{html.escape(self.alt, quote=True)}">', "text/plain": self.alt}

    def __repr__(self) -> str:
        return self.alt


def svg(source: str, alt: str) -> SVG:
    """Show SVG text as an image with the alternative text `alt`."""
    return SVG(source, alt)
