"""One frame, or several side by side, as notebooks show it: an image with its words, and all of it as text."""

from __future__ import annotations

import html
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mini_engine.course.film.draw import Scene
from mini_engine.course.film.frames import Frame
from mini_engine.course.film.text import counter_words, text
from mini_engine.course.film.words import headline

NARROW_WINDOW = 960  # pixels


class View(NamedTuple):
    """A frame of one film, the scene that draws it, and one for small windows."""

    title: str
    frame: Frame
    scene: Scene
    narrow_scene: Scene | None = None


class Still:
    """One moment of one film, or of several films side by side.

    svg     the picture (of the first film), SVG text
    words   what happened and the counters, a line for each film
    text    everything the picture shows, as lines of text
    """

    def __init__(self, views: Sequence[View]) -> None:
        self.views = views
        self.label = views[0].frame.label
        self.height = max(view.scene.height for view in views)

    @property
    def svg(self) -> str:
        """The picture of the first view, as SVG."""
        return self.views[0].scene.draw(self.views[0].frame)

    @property
    def words(self) -> str:
        """One line a view: what happens, and the counters."""
        return "\n".join(map(_words, self.views))

    @property
    def text(self) -> str:
        """Everything that the pictures show, in words."""
        return "\n\n".join(f"{_headed(view)}{text(view.frame)}" for view in self.views)

    @property
    def img(self) -> str:
        """HTML: an image for each film, side by side where the page is wide enough, each with its own words."""
        share = "" if len(self.views) == 1 else "flex:1 1 25em;min-width:0;max-width:min(100%,42em);height:auto"
        images = []
        for view in self.views:
            image = (
                f'<img class="film-frame" style="max-width:100%;vertical-align:top;{share}" '
                f'src="{_uri(view.scene.draw(view.frame))}" alt="{html.escape(_words(view), quote=True)}">'
            )
            if view.narrow_scene is not None:
                small = _uri(view.narrow_scene.draw(view.frame)).replace(" ", "%20")  # a space would end the address
                image = f'<picture><source media="(max-width:{NARROW_WINDOW}px)" srcset="{small}">{image}</picture>'
            images.append(image)
        if len(images) == 1:
            return images[0]
        # In a box of its own: notebooks put an image that stands alone on a line of its own.
        return f'<div style="display:flex;flex-wrap:wrap;align-items:flex-start;gap:8px">{"".join(images)}</div>'

    def save(self, path: str | Path) -> Path:
        """Write the picture as an SVG file."""
        path = Path(path)
        path.write_text(self.svg, encoding="utf-8")
        return path

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/html": self.img, "text/plain": self.text}

    def __repr__(self) -> str:
        return self.text


def _headed(view: View) -> str:
    return f"{view.title} — " if view.title else ""


def _words(view: View) -> str:
    return f"{_headed(view)}{headline(view.frame)} {counter_words(view.frame)}"


def _uri(svg: str) -> str:
    source = svg.replace('"', "'")  # texts have none of either; one byte in an address, not three
    return "data:image/svg+xml," + urllib.parse.quote(source, safe=" =:/,;()'")
