"""The few SVG shapes of the film, written so that hundreds of them stay small."""

from __future__ import annotations

import html
from collections import defaultdict


class Bars:
    """Filled rectangles, gathered by class and height. Each is one thick stroke, half as long as a path around it."""

    def __init__(self) -> None:
        self._strokes: dict[tuple[str, float], list[str]] = defaultdict(list)
        self._ends: dict[tuple[str, float], tuple[float, float]] = {}

    def add(self, name: str, x: float, y: float, width: float, height: float) -> None:
        """Append a bar; all bars of one class and height become one path."""
        group, middle = (name, height), y + height / 2
        end = self._ends.get(group)
        x, width = round(x, 1), round(width, 1)
        move = (
            f"m{_n(x - end[0])} 0" if end is not None and end[1] == middle and x >= end[0] else f"M{_n(x)} {_n(middle)}"
        )
        self._strokes[group].append(f"{move}h{_n(width)}")
        self._ends[group] = (x + width, middle)

    def draw(self) -> str:
        """Colours below, patterns above."""
        layers = sorted(self._strokes, key=lambda group: (group[0] in ("h", "d", "z"), group[0] != "ghost", group))
        paths = [
            f'<path class="{name}" stroke-width="{_n(height)}" d="{"".join(self._strokes[name, height])}"/>'
            for name, height in layers
        ]
        return f'<g class="bars">{"".join(paths)}</g>'


class Words:
    """Short texts, gathered by class and line so that hundreds of them stay small."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[float, list[tuple[float, str]]]] = defaultdict(lambda: defaultdict(list))

    def add(self, name: str, x: float, y: float, words: str) -> None:
        """Append words at a place; those of one class and line become one element."""
        if words:
            self._lines[name][y].append((x, words))

    def draw(self, name: str, size: float, anchor: str = "start", spread: float = 0) -> str:
        """All texts of a class. Letters of a row share one element, with an x for each: alone, or `spread` apart."""
        lines = []
        for y, words in self._lines.get(name, {}).items():
            letters, longer = [], []
            for x, word in words:
                if len(word) == 1 or spread:
                    first = x - spread * (len(word) - 1) / 2
                    letters += [(first + i * spread, letter) for i, letter in enumerate(word)]
                else:
                    longer.append(f'x="{_n(x)}">{html.escape(word)}')
            if letters:
                places = " ".join(f"{x:.0f}" for x, _ in letters)
                lines.append(
                    f'<text y="{_n(y)}" x="{places}">{html.escape("".join(word for _, word in letters))}</text>'
                )
            if len(longer) == 1:
                lines.append(f'<text y="{_n(y)}" {longer[0]}</text>')
            elif longer:
                lines.append(f'<text y="{_n(y)}">{"".join(f"<tspan {word}</tspan>" for word in longer)}</text>')
        anchored = f' text-anchor="{anchor}"' if anchor != "start" else ""
        return f'<g class="{name}" font-size="{size}"{anchored}>{"".join(lines)}</g>' if lines else ""


def label(x: float, y: float, words: str, name: str = "", size: float = 0, anchor: str = "") -> str:
    """One line of text."""
    extra = f' class="{name}"' if name else ""
    extra += f' font-size="{size}"' if size else ""
    extra += f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{_n(x)}" y="{_n(y)}"{extra}>{html.escape(words)}</text>'


def _n(number: float) -> str:
    """A coordinate to a tenth, without a trailing .0"""
    return f"{number:.1f}".removesuffix(".0")
