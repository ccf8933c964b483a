"""`Scene`: one frame as SVG text. Tables, the memory right of them, and free queue, host memory and counters below.

A scene is laid out once for a whole film, so that nothing moves from frame to frame but what the engine moved.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from mini_engine.course.film import words
from mini_engine.course.film.counters import NAMES
from mini_engine.course.film.frames import Frame
from mini_engine.course.film.grid import Grid
from mini_engine.course.film.shapes import label
from mini_engine.course.film.strips import counter_strip, free_queue, host_strip, key, looks
from mini_engine.course.film.tables import Tables
from mini_engine.course.film.theme import DEFS, style

WIDE, NARROW, MARGIN, TABLES_WIDTH, GRID_WIDTH = 700, 486, 14, 208, 430


MOST_COPIES = 12  # arrows in one picture


class Rows(NamedTuple):
    """What stands above one another in a scene: lines of words, heights of tables and grid, whether there are strips."""

    lines: int
    tables: float
    grid: int
    has_queue: bool
    has_host: bool


class Scene:
    """The layout of a film.

    told: whether the sentences stand in the picture (else the caller shows them); told_frames: those for which there
    must be room, all by default. narrow: the tables above the memory, for half a page or a small window.
    """

    def __init__(
        self,
        film: Sequence[Frame],
        *,
        told: bool = True,
        told_frames: Sequence[Frame] | None = None,
        theme: str = "auto",
        narrow: bool = False,
    ) -> None:
        if theme not in ("auto", "light", "dark"):
            raise ValueError(f'theme={theme!r}: must be "auto", "light" or "dark"')
        self.memory = film[0].memory
        self.told, self.theme = told, theme
        self.narrow, self.width = narrow, NARROW if narrow else WIDE
        lines = max(len(self._wrapped(frame)) for frame in told_frames or film) if told else 0
        self.looks = looks(film)
        self.moving = {name for frame in film for name, value in frame.counters.items() if value}
        self.counters = [name for name in NAMES if self.memory.is_paged or name not in ("shared", "copied")]
        self.grid = Grid(self.memory, self.width - MARGIN - GRID_WIDTH, 0)
        width, room = (self.width - 2 * MARGIN, 210) if narrow else (TABLES_WIDTH, max(330, self.grid.height))
        self.tables = Tables(film, MARGIN, 0, width, room=room, brief=narrow)
        has_host = self.memory.num_host_blocks > 0
        self.place(Rows(lines, self.tables.height, self.grid.height, self.memory.is_paged, has_host))

    def place(self, rows: Rows) -> None:
        """Lay the scene out with at least this much room in each row."""
        self.rows = rows
        self.top = 34 + 16 * rows.lines + (6 if self.told else 0)
        self.tables.top = self.grid.top = self.top + 22
        if self.narrow:
            self.grid.top += round(rows.tables) + 34
            self.bottom = self.grid.top + rows.grid + 22
        else:
            self.bottom = self.grid.top + round(max(rows.grid, rows.tables, 132)) + 14
        self.height = self.bottom + (174 if self.narrow else 96) + 26 * (rows.has_queue + rows.has_host)

    def draw(self, frame: Frame) -> str:
        """The SVG of one frame of the film: at most 30 KB for up to 256 blocks."""
        shapes = [
            label(MARGIN, 23, frame.label, "b", 16),
            label(self.width - MARGIN, 23, self._title(), "s", 12, "end"),
        ]
        if self.told:
            for number, line in enumerate(self._wrapped(frame)):
                shapes.append(label(MARGIN, 44 + 16 * number, line, "", 13))
        shapes.append(label(MARGIN, self.top + 9, self.tables.title, "s b", 11))
        shapes.append(label(self.grid.left, self.grid.top - 13, "physical memory", "s b", 11))
        shapes += [
            "" if self.narrow else self.tables.arrows(frame, self.grid),
            self.grid.draw(frame),
            self.tables.draw(frame),
            _copies(frame, self.grid),
        ]
        y = self.bottom
        if self.memory.is_paged:
            shapes.append(free_queue(frame, MARGIN, y, self.width - 2 * MARGIN))
        y += 26 * self.rows.has_queue
        if self.memory.num_host_blocks:
            shapes.append(host_strip(frame, MARGIN, y, self.width - 2 * MARGIN))
        y += 26 * self.rows.has_host
        columns = -(-len(self.counters) // 2) if self.narrow else len(self.counters)
        shapes.append(counter_strip(frame, self.counters, MARGIN, y + 4, self.width - 2 * MARGIN, columns))
        shapes.append(key(self.looks, MARGIN, y + (142 if self.narrow else 78), self.width - MARGIN))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height:.0f}" viewBox="0 0 {self.width} {self.height:.0f}" '
            f'font-family="Helvetica,Arial,sans-serif" font-size="12">{style(self.theme)}{DEFS}'
            f'<rect class="card" width="{self.width}" height="{self.height:.0f}" rx="8"/>{"".join(shapes)}</svg>'
        )

    def _title(self) -> str:
        memory = self.memory
        if memory.is_paged:
            return f"{memory.num_cells} blocks of {memory.block_size} tokens"
        row = min(memory.num_slots, self.grid.columns * memory.block_size)
        return f"{memory.title}: {memory.num_slots} slots, {row} to a row"

    def _wrapped(self, frame: Frame) -> list[str]:
        return textwrap.wrap(" ".join(words.sentences(frame)), self.width * 97 // WIDE)[:8]


def align(scenes: Sequence[Scene]) -> None:
    """Scenes that stand side by side: rows at one height, and those counters that are not 0 all the time in all of them."""
    rows = Rows(*map(max, zip(*(scene.rows for scene in scenes))))
    moving = set().union(*(scene.moving for scene in scenes))
    for scene in scenes:
        scene.counters = [name for name in NAMES if name in moving or name not in ("shared", "copied")]
        scene.place(rows)


def _copies(frame: Frame, grid: Grid) -> str:
    """A bold arrow for a block that was copied in this step, from the block it was copied from; the first few of many."""
    shapes = []
    for deed in frame.deeds_of("copy")[:MOST_COPIES]:
        src, dst = deed.blocks[0] - 1, deed.to[0] - 1
        if max(src, dst) >= grid.num_cells:
            continue
        (x0, y0), (x1, y1) = ((x + grid.cell_width * 3 // 4, y) for x, y in (grid.corner(src), grid.corner(dst)))
        if y0 == y1:  # in one row: below it, so that the cells between stay readable
            foot = y0 + grid.cell_height
            dip = foot + (24 if grid.is_large else 14)
            path = f"M{x0 - 4} {foot - 4}C{x0 - 4} {dip} {x1} {dip} {x1} {foot}"
        else:
            down = 1 if y1 > y0 else -1
            start, end = (y0 + grid.cell_height - 4, y1) if down == 1 else (y0 + 4, y1 + grid.cell_height)
            bend = max(12, abs(end - start) // 2)
            path = f"M{x0} {start}C{x0} {start + bend * down} {x1} {end - bend * down} {x1} {end}"
        shapes.append(f'<path class="c0" d="{path}"/><path class="c1" d="{path}" marker-end="url(#big)"/>')
    return "".join(shapes)
