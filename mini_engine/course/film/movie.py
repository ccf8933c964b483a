"""`movie`: a film that plays by itself, as one SVG file, for a README or a slide. No script in it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mini_engine.course.film.draw import Scene
from mini_engine.course.film.frames import Frame


def movie_svg(film: Sequence[Frame], *, seconds: float, theme: str = "auto") -> str:
    """All frames in one SVG, each shown for `seconds`, over and over; readers who want no motion see the first copy, or the last frame."""
    scene = Scene(film, theme=theme)
    drawn = [scene.draw(frame) for frame in film]
    match = re.fullmatch(r"(<svg.*?</style>.*?</defs><rect[^>]*/>)(.*)</svg>", drawn[0], re.DOTALL)
    assert match is not None
    head = match[1]
    total, share = seconds * len(film), 100 / len(film)
    rules = (
        f"@keyframes film{{0%{{visibility:visible}}{share:.4f}%,100%{{visibility:hidden}}}}"
        f".f0{{visibility:hidden;animation:film {total:g}s steps(1,end) infinite}}pattern{{visibility:visible}}"
        f"@media(prefers-reduced-motion:reduce){{.f0{{animation:none}}.f0.f1{{visibility:visible}}}}"
    )
    head = head.replace("</style>", rules + "</style>", 1)
    still = next((number for number, frame in enumerate(film) if frame.deeds_of("copy")), len(film) - 1)
    frames = [
        f'<g class="f0{" f1" * (number == still)}" style="animation-delay:{number * seconds - total:g}s">{svg[len(match[1]) : -len("</svg>")]}</g>'
        for number, svg in enumerate(drawn)
    ]
    return f"{head}{''.join(frames)}</svg>"
