"""The film: what an engine did to its KV memory, step by step, as pictures and as words.

    from mini_engine.course.film import Arrival, film, frame, frames, movie, replay

    engine = LLMEngine(config, backend, record=True)          # ... add requests, step
    film(engine)                       the player: a slider, words and the picture of every step
    film({"buddy": old, "paged": engine})                     several films side by side, on one slider
    frame(engine, 3)                   the picture of step 3, a still; `.svg`, `.words`, `.text`, `.save(path)`
    frames(engine)                     the bookkeeping behind the pictures: a list of `Frame`, counters and all
    movie(engine, "film.svg")          one SVG file that plays by itself
    replay(arrivals, BuddyAllocator(512))                     the film of an old allocator, or of an engine, on given arrivals

Wherever an engine is expected, its events (`engine.film`, or the same read back from JSON) do as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mini_engine.course.film.counters import Counters
from mini_engine.course.film.draw import Scene, align
from mini_engine.course.film.frames import Block, Deed, Frame, Memory, Span, Table, frames
from mini_engine.course.film.replay import Arrival, replay
from mini_engine.course.film.still import Still, View

if TYPE_CHECKING:
    from mini_engine.course.film.player import Player

__all__ = [
    "Arrival", "Block", "Counters", "Deed", "Frame", "Memory", "Scene", "Span", "Still", "Table", "View", "film", "frame", "frames",
    "movie", "replay",
]  # fmt: skip


def film(source: Any, *, theme: str = "auto") -> Player:
    """The player of an engine made with record=True, or of its events; a dict {title: source} shows several side by side.

    Press the arrow keys on the slider to step. ValueError when nothing was recorded.
    """
    from mini_engine.course.film.player import Player

    return Player(_stills(source, theme))


def frame(source: Any, step: int = -1, *, theme: str = "auto", narrow: bool = False) -> Still:
    """The still of one step (the number it has in `engine.film`; -1 is the last), with its sentences in the picture as far as there is room.

    `source` as in `film`. narrow: a layout for half a page. ValueError for a step that the film does not have; of several
    films, the shorter ones stand still at their end.
    """
    titled = source if isinstance(source, Mapping) else {"": source}
    films = {title: frames(one) for title, one in titled.items()}
    steps = {title: [f for f in found if f.label.startswith("step")] or found for title, found in films.items()}
    last = max(found[-1].step for found in steps.values())
    views = []
    for title, found in steps.items():
        at = min(step, found[-1].step) if step <= last else step
        wanted = [frame for frame in found if frame.step == at] if step >= 0 else found[step:][:1]
        if not wanted:
            raise ValueError(f"step={step}: the film has steps {min(f[0].step for f in steps.values())} to {last}")
        scene = Scene(films[title], theme=theme, narrow=narrow or len(titled) > 1)
        views.append(View(title, wanted[0], scene))
    if len(views) > 1:
        align([view.scene for view in views])
    return Still(views)


def movie(source: Any, path: str | Path | None = None, *, seconds: float = 1.5, theme: str = "auto") -> str:
    """The whole film as one animated SVG, each frame for `seconds`; written to `path` when one is given."""
    from mini_engine.course.film.movie import movie_svg

    svg = movie_svg(frames(source), seconds=seconds, theme=theme)
    if path is not None:
        Path(path).write_text(svg, encoding="utf-8")
    return svg


def _stills(source: Any, theme: str) -> list[Still]:
    """A still for every frame; side by side the films go by their steps, and the shorter ones end in a standstill."""
    titled = source if isinstance(source, Mapping) else {"": source}
    films = {title: frames(one) for title, one in titled.items()}
    beside = len(films) > 1
    if beside:
        films = {title: [f for f in found if f.label.startswith("step")] for title, found in films.items()}
    small = {title: Scene(found, told=False, theme=theme, narrow=True) for title, found in films.items()}
    if beside:
        align(list(small.values()))
    scenes = small if beside else {title: Scene(found, told=False, theme=theme) for title, found in films.items()}
    return [
        Still(
            [
                View(title, found[min(number, len(found) - 1)], scenes[title], None if beside else small[title])
                for title, found in films.items()
            ]
        )
        for number in range(max(map(len, films.values())))
    ]
