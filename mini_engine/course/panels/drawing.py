"""The few SVG shapes that the diagrams are made of."""

from __future__ import annotations

import html

from mini_engine.course.figures import BLUE, ORANGE

INK, PAPER, PALE = "#1F2933", "#FFFFFF", "#EAF2F8"
DEEP, WARM = BLUE, ORANGE


def sheet(width: int, height: int, *shapes: str) -> str:
    """A drawing of that size on a white sheet, so that it reads on a dark page too."""
    arrow = (
        '<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{INK}"/></marker>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="Helvetica,Arial,sans-serif" font-size="13" fill="{INK}"><defs>{arrow}</defs>'
        f'<rect width="{width}" height="{height}" rx="6" fill="{PAPER}"/>{"".join(shapes)}</svg>'
    )


def box(x: int, y: int, width: int, height: int, *lines: str, fill: str = PALE, ink: str = INK) -> str:
    """A rounded box with centred lines of text; the first one is bold."""
    middle = x + width // 2
    first = y + height // 2 + 5 - 8 * (len(lines) - 1)
    rows = [label(middle, first + 17 * i, line, bold=i == 0, ink=ink) for i, line in enumerate(lines)]
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{fill}"/>' + "".join(rows)


def label(
    x: int, y: int, text: str, *, bold: bool = False, ink: str = INK, anchor: str = "middle", size: int = 0
) -> str:
    """An SVG text at x, y."""
    weight = ' font-weight="bold"' if bold else ""
    points = f' font-size="{size}"' if size else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{ink}"{weight}{points}>{html.escape(text)}</text>'


def arrow(*points: tuple[int, int], dashed: bool = False) -> str:
    """A line through the points with a head at the last one."""
    path = "M" + "L".join(f"{x} {y}" for x, y in points)
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<path d="{path}" fill="none" stroke="{INK}" stroke-width="1.5"{dashes} marker-end="url(#a)"/>'


def cell(x: int, y: int, size: int, fill: str) -> str:
    """An SVG square at x, y, a little smaller than its size, so that neighbours stay apart."""
    return f'<rect x="{x}" y="{y}" width="{size - 2}" height="{size - 2}" rx="2" fill="{fill}"/>'
