"""The block tables of the film. An entry and the block it names share a number, and an edge when the step touched them."""

from __future__ import annotations

from collections.abc import Sequence

from mini_engine.course.film.frames import Deed, Frame, Table
from mini_engine.course.film.shapes import Words, label
from mini_engine.course.film.theme import colour_class
from mini_engine.course.film.words import tokens

BOX, PITCH, ROW = 25, 28, 22


class Tables:
    """Tables in the way that fits all frames of a film: whole, or one row each, or only their last blocks in one line."""

    def __init__(
        self, film: Sequence[Frame], left: int, top: int, width: int, *, room: float, brief: bool = False
    ) -> None:
        """room: the greatest height. brief: one line each, whatever the room."""
        self.left, self.top = left, top
        self.per_row = int(width // PITCH)
        self.is_paged = film[0].memory.is_paged
        self.title = "block tables: block numbers" if self.is_paged else "requests"
        self.numbers = {letter: i for i, letter in enumerate(dict.fromkeys(film[0].memory.requests.values()))}
        self.memory = film[0].memory
        for self.detail in (0,) if brief else (2, 1, 0):
            self.height = max(sum(self._height(table) for table in frame.tables) for frame in film)
            if self.height <= room:
                break
        self.height = min(self.height, room)

    def draw(self, frame: Frame) -> str:
        """The block tables of a frame, as SVG elements."""
        shapes, words, placed = [], Words(), self._placed(frame)
        boxes_of: dict[str, list[str]] = {}
        touched = {(n, b) for d in frame.deeds for n in _actors(d) for b in (*d.blocks, *d.to)}
        edges = ""
        for table, y, boxes in placed:
            colour = colour_class(self.numbers.get(self.memory.requests.get(table.name, ""), 0))
            chip = 11 + 7 * len(table.name)
            shapes.append(f'<rect class="{colour} f" x="{self.left}" y="{y:.0f}" width="{chip}" height="16" rx="3"/>')
            words.add("l", self.left + chip // 2, y + 12, table.name)
            if self.detail or not boxes:
                shapes.append(label(self.left + chip + 6, y + 12, self._caption(table), "s", 12))
            for x, top, block in boxes:
                words.add("b", x + BOX // 2, top + 14, "…" if block is None else f"{block}")
                if block is not None:
                    boxes_of.setdefault(colour, []).append(f"M{x:.0f} {top:.0f}h{BOX}v18h-{BOX}z")
                    edges += f"M{x:.0f} {top:.0f}h{BOX}v18h-{BOX}z" if (table.name, block) in touched else ""
        every = "".join(path for paths in boxes_of.values() for path in paths)
        if every:
            shapes.append(f'<path class="box cell" d="{every}"/>')
            shapes += [f'<path class="{colour} t f" d="{"".join(paths)}"/>' for colour, paths in boxes_of.items()]
        shapes.append(f'<path class="o" d="{edges}"/>' if edges else "")
        shapes.append(words.draw("l", 12, "middle") + words.draw("b", 12, "middle").replace(' class="b"', ""))
        if len(placed) < len(frame.tables):
            left_out = f"and {len(frame.tables) - len(placed)} more"
            shapes.append(label(self.left, self.top + self.height + 8, left_out, "s", 12))
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
        letter = self.memory.requests.get(table.name, table.name)
        name = table.request_id if table.request_id.upper() != letter else ""
        name = f"{name[:11]}…" if len(name) > 12 else name
        if table.status in ("waiting", "preempted"):
            told = table.status if table.status == "preempted" else "waits"
        elif table.status == "swapped":
            told = f"swapped, host {' '.join(map(str, table.host_blocks[:4]))}"
        else:
            told = f"{tokens(table.num_computed)} stored"
        return f"{name}: {told}" if name else told


def _actors(deed: Deed) -> tuple[str, ...]:
    """Whose entries a deed touches."""
    return () if deed.kind == "finish" else (deed.name, *deed.others) if deed.kind == "fork" else (deed.name,)
