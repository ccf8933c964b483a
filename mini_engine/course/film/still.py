"""One frame, or several side by side, as notebooks show it: an image with its words, and all of it as text."""

from __future__ import annotations

import html
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mini_engine.course.film import words
from mini_engine.course.film.draw import Scene
from mini_engine.course.film.frames import Frame


class Still:
    """One moment of one film, or of several films side by side.

    svg     the picture (of the first film), SVG text
    words   what happened and the counters, in a few sentences
    text    everything the picture shows, as lines of text
    """

    def __init__(self, scenes: Sequence[tuple[str, Scene, Frame]]) -> None:
        self.scenes = scenes
        self.label = scenes[0][2].label
        self.height = max(scene.height for _, scene, _ in scenes) // (1 if len(scenes) == 1 else 2)

    @property
    def svg(self) -> str:
        _, scene, frame = self.scenes[0]
        return scene.draw(frame)

    @property
    def words(self) -> str:
        return " ".join(
            f"{f'{title} — ' if title else ''}{words.headline(frame)} {words.counter_words(frame)}"
            for title, _, frame in self.scenes
        )

    @property
    def text(self) -> str:
        return "\n\n".join(f"{f'{title} — ' if title else ''}{words.text(frame)}" for title, _, frame in self.scenes)

    @property
    def img(self) -> str:
        """HTML: an image for each film, side by side where the page is wide enough."""
        alt = html.escape(self.words, quote=True)
        style = "max-width:100%" if len(self.scenes) == 1 else f"max-width:100%;width:{98 / len(self.scenes):.0f}%;min-width:min(100%,30em)"  # fmt: skip
        images = []
        for number, (_, scene, frame) in enumerate(self.scenes):
            source = scene.draw(frame).replace('"', "'")  # texts have none of either; one byte in a URI, not three
            uri = "data:image/svg+xml," + urllib.parse.quote(source, safe=" =:/,;()'")
            images.append(f'<img class="film-frame" style="{style}" src="{uri}" alt="{"" if number else alt}">')
        return "".join(images)

    def save(self, path: str | Path) -> Path:
        """Write the picture as an SVG file."""
        path = Path(path)
        path.write_text(self.svg, encoding="utf-8")
        return path

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/html": self.img, "text/plain": self.text}

    def __repr__(self) -> str:
        return self.text
