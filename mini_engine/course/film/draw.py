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
from mini_engine.course.film.strips import counter_strip, free_queue, host_strip, key, key_rows, looks
from mini_engine.course.film.tables import Tables
from mini_engine.course.film.theme import DEFS, style

WIDE, NARROW, MARGIN, TABLES_WIDTH, GRID_WIDTH = 700, 486, 14, 208, 436
MOST_LINES = 4, 6  # of words in a picture, wide and narrow: the same room in every frame


MOST_COPIES = 12  # arrows in one picture


class Rows(NamedTuple):
    """What stands above one another in a scene: lines of words, heights of tables and grid, strips, rows of the key."""

    lines: int
    tables: float
    grid: int
    has_queue: bool
    has_host: bool
    key: int


class Scene:
    """The layout of a film.

    told: whether the sentences stand in the picture (else the caller shows them), as far as there is room. narrow: the tables above the memory, for half a page or a small window.
    """

    def __init__(
        self,
        film: Sequence[Frame],
        *,
        told: bool = True,
        theme: str = "auto",
        narrow: bool = False,
    ) -> None:
        if theme not in ("auto", "light", "dark"):
            raise ValueError(f'theme={theme!r}: must be "auto", "light" or "dark"')
        self.memory = film[0].memory
        self.told, self.theme = told, theme
        self.narrow, self.width = narrow, NARROW if narrow else WIDE
        lines = max(len(self._wrapped(frame)) for frame in film) if told else 0
        self.looks = looks(film)
        self.moving = {name for frame in film for name, value in frame.counters.items() if value}
        self.counters = [name for name in NAMES if self.memory.is_paged or name not in ("shared", "copied")]
        self.grid = Grid(self.memory, self.width - MARGIN - GRID_WIDTH, 0)
        width, room = (self.width - 2 * MARGIN, 210) if narrow else (TABLES_WIDTH, max(330, self.grid.height))
        self.tables = Tables(film, MARGIN, 0, width, room=room, brief=narrow)
        has_host = self.memory.num_host_blocks > 0
        self.place(
            Rows(
                lines,
                self.tables.height,
                self.grid.height,
                self.memory.is_paged,
                has_host,
                key_rows(self.looks, MARGIN, self.width - MARGIN),
            )
        )

    def place(self, rows: Rows) -> None:
        """Lay the scene out with at least this much room in each row."""
        self.rows = rows
        self.top = 34 + 17 * rows.lines + (6 if self.told else 0)
        self.tables.top, self.grid.top = self.top + 20, self.top + 32
        if self.narrow:
            self.grid.top += round(rows.tables) + 26
            self.bottom = self.grid.top + rows.grid + 28
        else:
            self.bottom = self.grid.top + round(max(rows.grid + 14, rows.tables - 12)) + 14
        self.height = self.bottom + (142 if self.narrow else 78) + 17 * rows.key + 26 * (rows.has_queue + rows.has_host)

    def draw(self, frame: Frame) -> str:
        """The SVG of one frame of the film: at most 30 KB for up to 256 blocks."""
        shapes = [
            label(MARGIN, 23, frame.label, "b", 16),
            label(self.width - MARGIN, 23, self._title(), "s", 12, "end"),
        ]
        if self.told:
            for number, line in enumerate(self._wrapped(frame)):
                shapes.append(label(MARGIN, 45 + 17 * number, line, "", 14))
        shapes.append(label(MARGIN, self.top + 9, self.tables.title, "s b", 12))
        shapes.append(label(self.grid.left, self.grid.top - 23, "physical memory", "s b", 12))
        shapes += [
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
            return f"{memory.num_cells} blocks of {memory.block_size} slots (a slot: K and V of 1 token)"
        row = min(memory.num_slots, self.grid.columns * memory.block_size)
        return f"{memory.title}: {memory.num_slots} slots, {row} to a row"

    def _wrapped(self, frame: Frame) -> list[str]:
        most, width = MOST_LINES[self.narrow], self.width * 100 // WIDE
        return textwrap.wrap(" ".join(words.sentences(frame)), width, max_lines=most, placeholder=" …")


def align(scenes: Sequence[Scene]) -> None:
    """Scenes that stand side by side: rows at one height, and those counters that are not 0 all the time in all of them."""
    rows = Rows(*map(max, zip(*(scene.rows for scene in scenes))))
    moving = set().union(*(scene.moving for scene in scenes))
    for scene in scenes:
        scene.counters = [name for name in NAMES if name in moving or name not in ("shared", "copied")]
        scene.place(rows)


def _copies(frame: Frame, grid: Grid) -> str:
    """An arrow for a block that was copied in this step, from the block it was copied from; the first few of many.

    Each has its own start and its own lane: between the rows, and between the columns where it changes the row.
    """
    pairs = [(deed.blocks[0] - 1, deed.to[0] - 1) for deed in frame.deeds_of("copy")]
    pairs = [pair for pair in pairs if max(pair) < grid.num_cells][:MOST_COPIES]
    pairs.sort(key=lambda pair: (pair[0], abs(pair[1] - pair[0])))  # the nearest innermost
    shapes, seen = [], dict.fromkeys((src for src, _ in pairs), 0)
    for number, (src, dst) in enumerate(pairs):
        (x0, y0), (x1, y1) = grid.corner(src), grid.corner(dst)
        aside = (6 if grid.is_large else 3) + (9 if grid.is_large else 5) * (seen[src] % 4)
        seen[src] += 1
        start, end = (x0 + grid.cell_width - aside if x1 > x0 else x0 + aside), x1 + grid.cell_width // 2
        lane = 9 + 4 * (number % 3) if grid.is_large else 6
        turn = f"H{x1 - grid.gap // 2}V{y1 - lane}" if y1 != y0 else ""
        path = f"M{start} {y0 + (0 if grid.is_large else 5)}V{y0 - lane}{turn}H{end}V{y1 - 1}"
        shapes.append(f'<path class="c0" d="{path}"/><path class="c1" d="{path}" marker-end="url(#big)"/>')
    return "".join(shapes)
