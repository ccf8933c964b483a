"""The block tables of the film, and the arrows from their entries to the blocks they name."""

from __future__ import annotations

from collections.abc import Sequence

from mini_engine.course.film.frames import Frame, Table
from mini_engine.course.film.grid import Grid
from mini_engine.course.film.shapes import Words, label
from mini_engine.course.film.theme import colour_class

BOX, PITCH, ROW = 24, 26, 21


class Tables:
    """Tables in the way that fits all frames of a film: whole, or one row each, or only their last blocks in one line."""

    def __init__(
        self, film: Sequence[Frame], left: int, top: int, width: int, *, room: float, brief: bool = False
    ) -> None:
        """room: the greatest height. brief: one line each, whatever the room."""
        self.left, self.top = left, top
        self.per_row = int(width // PITCH)
        self.is_paged = film[0].memory.is_paged
        self.title = "block tables" if self.is_paged else "requests"
        self.numbers = {letter: i for i, letter in enumerate(dict.fromkeys(film[0].memory.requests.values()))}
        self.memory = film[0].memory
        for self.detail in (0,) if brief else (2, 1, 0):
            self.height = max(sum(self._height(table) for table in frame.tables) for frame in film)
            if self.height <= room:
                break
        self.height = min(self.height, room)

    def draw(self, frame: Frame) -> str:
        shapes, words, placed = [], Words(), self._placed(frame)
        boxes_of: dict[str, list[str]] = {}
        for table, y, boxes in placed:
            colour = colour_class(self.numbers.get(self.memory.requests.get(table.name, ""), 0))
            chip = 11 + 7 * len(table.name)
            shapes.append(f'<rect class="{colour} f" x="{self.left}" y="{y:.0f}" width="{chip}" height="16" rx="3"/>')
            words.add("l", self.left + chip // 2, y + 12, table.name)
            if self.detail or not boxes:
                shapes.append(label(self.left + chip + 6, y + 12, self._caption(table), "s e", 11))
            for x, top, block in boxes:
                words.add("b", x + BOX // 2, top + 13, "…" if block is None else f"{block}")
                if block is not None:
                    boxes_of.setdefault(colour, []).append(f"M{x:.0f} {top:.0f}h{BOX}v17h-{BOX}z")
        every = "".join(path for paths in boxes_of.values() for path in paths)
        if every:
            shapes.append(f'<path class="box cell" d="{every}"/>')
            shapes += [f'<path class="{colour} t f" d="{"".join(paths)}"/>' for colour, paths in boxes_of.items()]
        shapes.append(words.draw("l", 12, "middle") + words.draw("b", 11, "middle").replace(' class="b"', ""))
        if len(placed) < len(frame.tables):
            left_out = f"and {len(frame.tables) - len(placed)} more"
            shapes.append(label(self.left, self.top + self.height + 8, left_out, "s", 11))
        return "".join(shapes)

    def arrows(self, frame: Frame, grid: Grid) -> str:
        """From each entry to its block: bold where the sequence touched it in this step, else faint. Small pools only.

        An arrow runs to the gap above its block's row and along it, so that no cell is crossed.
        """
        if not grid.is_large:
            return ""
        touched = {
            (deed.name, block) for deed in frame.deeds if deed.kind != "finish" for block in (*deed.blocks, *deed.to)
        }
        faint: list[str] = []
        strong: list[str] = []
        for number, (table, _, boxes) in enumerate(self._placed(frame)):
            for x, top, block in boxes:
                if block is None or not 0 < block <= grid.num_cells:
                    continue
                x1, y1 = grid.corner(block - 1)
                lane = y1 - 4 - number % 3 * 2
                x0, y0, turn = x + BOX, top + 9, grid.left - 12
                end = x1 + 12 + number % 4 * 5
                path = f"M{x0:.0f} {y0:.0f}C{turn} {y0:.0f} {turn - 40} {lane} {turn + 8} {lane}H{end - 3}q3 0 3 3V{y1 + 3}"
                (strong if (table.name, block) in touched else faint).append(path)
        shapes = [f'<path class="q" d="{"".join(faint)}"/>'] if faint else []
        shapes += [f'<path class="w" d="{path}" marker-end="url(#head)"/>' for path in strong]
        return "".join(shapes)

    # -- layout --------------------------------------------------------------------------------------------------------

    def _height(self, table: Table) -> float:
        if not table.blocks and not table.host_blocks:
            return 22
        if not self.detail:
            return ROW
        rows = 1 if self.detail == 1 else max(1, -(-len(table.blocks) // self.per_row)) if table.blocks else 0
        return 20 + ROW * rows + 6

    def _placed(self, frame: Frame) -> list[tuple[Table, float, list[tuple[float, float, int | None]]]]:
        """Each table that fits: where it stands, and the box of each entry that is shown (None: entries left out)."""
        placed: list[tuple[Table, float, list[tuple[float, float, int | None]]]] = []
        y: float = self.top
        for table in sorted(frame.tables, key=lambda table: table.status != "running"):
            height = self._height(table)
            if y + height > self.top + self.height + 0.5:
                break
            shown: list[int | None] = list(table.blocks)
            indent = 0.0 if self.detail else 46.0
            room = self.per_row if self.detail else min(12, int((self.per_row * PITCH - indent) // PITCH))
            if self.detail < 2 and len(shown) > room:
                shown = [*shown[: room // 2 - 1], None, *shown[-(room - room // 2) :]]
            first = y + 20 if self.detail else y
            boxes: list[tuple[float, float, int | None]] = [
                (self.left + indent + i % room * PITCH, first + i // room * ROW, block) for i, block in enumerate(shown)
            ]
            placed.append((table, y, boxes))
            y += height
        return placed

    def _caption(self, table: Table) -> str:
        name = table.request_id if table.request_id.upper() != table.name else ""
        name = f"{name[:11]}…" if len(name) > 12 else name
        if table.status in ("waiting", "preempted"):
            told = table.status if table.status == "preempted" else "waits"
        elif table.status == "swapped":
            told = f"swapped, host {' '.join(map(str, table.host_blocks[:4]))}"
        else:
            told = f"{table.num_computed} tokens stored"
        return f"{name}: {told}" if name else told
