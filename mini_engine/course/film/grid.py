"""The grid of the film: every slot of the memory, in rows of cells. Paged blocks and contiguous runs are drawn alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from mini_engine.course.film.frames import Block, Frame, Memory
from mini_engine.course.film.shapes import Bars, Words
from mini_engine.course.film.theme import colour_class, is_striped

MAX_CELLS = 2048

# Up to so many cells: columns, width and height of a cell, gaps beside and below it.
SIZES = (
    (64, 8, 51, 38, 4, 32),
    (256, 16, 25, 20, 2, 2),
    (1024, 32, 12, 12, 1, 1),
    (MAX_CELLS, 64, 6, 7, 0, 1),
)
PILLS = {
    "swap in": "in",
    "swap out": "out",
    "free": "freed",
    "share": "shared",
}  # other marks are shown as they are called


class Grid:
    """Where each cell lies, and the shapes of one frame. left, top: its corner."""

    def __init__(self, memory: Memory, left: int, top: int) -> None:
        self.memory, self.left, self.top = memory, left, top
        self.num_cells = min(memory.num_drawn, MAX_CELLS)
        fitting = next(size for size in SIZES if self.num_cells <= size[0])
        self.columns, self.cell_width, self.cell_height, self.gap, self.row_gap = fitting[1:]
        self.is_large = self.columns == 8
        if self.is_large and not memory.is_paged:
            self.row_gap = 6
        self.rows = -(-self.num_cells // self.columns)
        self.height = self.rows * (self.cell_height + self.row_gap) - self.row_gap
        self.order = {letter: i for i, letter in enumerate(dict.fromkeys(memory.requests.values()))}

    def corner(self, cell: int) -> tuple[int, int]:
        """The upper left corner of cell 0, 1, 2 ..."""
        row, column = divmod(cell, self.columns)
        return self.left + column * (self.cell_width + self.gap), self.top + row * (self.cell_height + self.row_gap)

    def draw(self, frame: Frame) -> str:
        """All cells of a frame, with what is in them and what happened to them."""
        paths: dict[str, list[str]] = defaultdict(list)
        bars, marks, words = Bars(), Bars(), Words()
        for span in frame.spans:
            letters = [self.memory.requests.get(owner, owner) for owner in span.owners][:3]
            for cell, start, size in self._pieces(span.start, span.size):
                x, y = self.corner(cell)
                if span.state == "external":
                    left, width = self._extent(cell, start, size)
                    bars.add("u", left, y, width, self.cell_height)
                    continue
                if span.state == "cached":
                    bars.add("ghost", x, y, self.cell_width, self.cell_height)
                    words.add("g", *self._middle(cell), letters[0] if letters else "")
                    continue
                left, width = self._extent(cell, start, size)
                height = self.cell_height / max(1, len(letters))
                for part, letter in enumerate(letters):
                    order, top = self.order.get(letter, 0), y + part * height
                    bars.add(colour_class(order) + (" t" if span.state != "used" else ""), left, top, width, height)
                    if span.state != "used":
                        bars.add("d" if span.state == "internal" else "h", left, top, width, height)
                    elif is_striped(order):
                        bars.add("z", left, top, width, height)
        if frame.blocks:
            self._blocks(frame.blocks, paths, marks, words)
            self._new_tokens(frame, marks)
        else:
            self._runs(frame, words)
        if self.memory.num_cells > self.num_cells:
            why = "never used" if self.num_cells >= self.memory.num_used else "not drawn"
            rest = f"blocks {self.num_cells + 1:,} to {self.memory.num_cells:,}: {why}"
            words.add("s", self.left, self.top + self.height + 12 + 14 * self.is_large, rest)
        area = self._area()
        outline = f'<rect class="cell" x="1" y="1" width="{self._inside()}" height="{self.cell_height}"/>'
        shapes = [self._pattern("cells", outline, area), bars.draw()]
        if self.is_large and self.memory.is_paged and 1 < self.memory.block_size <= 8:
            edges = (f"M{1 + self.cell_width / self.memory.block_size * i:.4g} 1V{self.cell_height + 1}" for i in range(1, self.memory.block_size))  # fmt: skip
            shapes.append(self._pattern("slots", f'<path class="y" d="{"".join(edges)}"/>', area))
        layers = ("ear", "o", "o k", "x", "p")
        shapes += [f'<path class="{name}" d="{"".join(paths[name])}"/>' for name in layers if name in paths]
        shapes.append(marks.draw())
        size = 14 if self.is_large else 11
        if self.columns <= 16:
            shapes.append(
                words.draw("g", size - 2, "middle")
                + words.draw("l", size, "middle", spread=0 if self.is_large else 7.2)
            )
            shapes.append(
                words.draw("n", 12) + words.draw("s", 12) + words.draw("c", 12, "end") + words.draw("bad", 11, "end")
            )
            shapes.append(words.draw("pt", 10.5 if self.is_large else 9))
        return "".join(shapes) + self._addresses()

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _pieces(self, start: int, size: int) -> Iterator[tuple[int, int, int]]:
        """A span cut at the cells: (cell, first slot in it, slots)."""
        step, end = self.memory.block_size, min(start + size, self.num_cells * self.memory.block_size)
        while start < end:
            cell, offset = divmod(start, step)
            part = min(step - offset, end - start)
            yield cell, offset, part
            start += part

    def _extent(self, cell: int, start: int, size: int) -> tuple[float, float]:
        """Left edge and width of slots start to start + size of a cell. Contiguous runs go on over the gap between cells."""
        slot = self.cell_width / self.memory.block_size
        goes_on = not self.memory.is_paged and (cell + 1) % self.columns and start + size == self.memory.block_size
        return self.corner(cell)[0] + start * slot, size * slot + (self.gap if goes_on else 0)

    def _inside(self) -> int:
        """The width of a cell's frame; runs cross cells, so that a row has one frame."""
        width = self.cell_width + self.gap
        return self.cell_width if self.memory.is_paged else self.columns * width - self.gap

    def _area(self) -> str:
        """A path around all cells."""
        width, height = self.cell_width + self.gap, self.cell_height + self.row_gap
        full, rest = divmod(self.num_cells, self.columns)
        left, top, area = self.left - 1, self.top - 1, ""
        if full:
            area = f"M{left} {top}h{self.columns * width}v{full * height}h-{self.columns * width}z"
        if rest:
            area += f"M{left} {top + full * height}h{rest * width}v{self.cell_height + 2}h-{rest * width}z"
        return area

    def _pattern(self, name: str, shape: str, area: str) -> str:
        """The same shape in every cell."""
        return (
            f'<pattern id="{name}" x="{self.left - 1}" y="{self.top - 1}" width="{self._inside() + self.gap}" '
            f'height="{self.cell_height + self.row_gap}" patternUnits="userSpaceOnUse">{shape}</pattern>'
            f'<path fill="url(#{name})" d="{area}"/>'
        )

    def _middle(self, cell: int) -> tuple[float, float]:
        x, y = self.corner(cell)
        return x + self.cell_width // 2, y + self.cell_height // 2 + (7 if self.is_large else 4)

    def _blocks(self, blocks: Sequence[Block], paths: dict[str, list[str]], bars: Bars, words: Words) -> None:
        """Labels, counts, dog-ears and marks of paged blocks."""
        ear, last = {8: 10, 16: 6}.get(self.columns, 4), (0, 0)
        edges: dict[str, list[int]] = defaultdict(list)
        for block in blocks[: self.num_cells]:
            cell = block.block_id - 1
            x, y = self.corner(cell)
            right, bottom = x + self.cell_width, y + self.cell_height
            words.add("l", *self._middle(cell), self._holders(block))
            if block.is_published:
                at = f"m{right - last[0]} 0" if last[1] == bottom else f"M{right} {bottom - ear}"
                paths["ear"].append(f"{at}v{ear}h-{ear}z")
                last = (right, bottom)
            if block.is_miscounted:
                paths["x"].append(f"M{x} {y}H{right}V{bottom}H{x}z")
            if self.is_large:
                words.add("n" if block.holders else "s", x + 3, y + 12, f"{block.block_id}")
                if block.is_miscounted:
                    words.add("bad", right - 2, y + 12, f"×{block.refs}≠{len(block.holders)}")
                elif block.refs > 1:
                    words.add("c", right - 3, y + 12, f"×{block.refs}")
            if block.marks and block.holders:
                edges["o k" if block.marks[0] == "hit" else "o"].append(cell)
            if block.marks and self.is_large:
                mark = PILLS.get(block.marks[0], block.marks[0])
                mark += "+write" if mark == "copy" and "write" in block.marks else ""
                width = min(self.cell_width + 2, 6 + round(5.4 * len(mark)))
                paths["p"].append(f"M{x - 1} {bottom}h{width}v14h-{width}z")
                words.add("pt", x + 1, bottom + 10, mark)
            elif block.marks and self.columns == 16 and block.marks[0] not in ("free", "share"):
                bars.add("p", x, bottom - 9, 8, 9)
                words.add("pt", x + 1, bottom - 1, PILLS.get(block.marks[0], block.marks[0])[0])

        for name, cells in edges.items():
            paths[name] += self._edges(cells)

    def _new_tokens(self, frame: Frame, bars: Bars) -> None:
        """A bar under the slots that this step wrote, where slots are wide enough."""
        size, held = self.memory.block_size, {block.block_id for block in frame.blocks if block.holders}
        for deed in frame.deeds_of("write") if self.is_large else ():
            for number, block in enumerate(deed.blocks, deed.start // size):
                first, end = max(deed.start, number * size), min(deed.start + deed.number, (number + 1) * size)
                if block in held and block <= self.num_cells:
                    left, width = self._extent(block - 1, first - number * size, end - first)
                    bars.add("new", left, self.corner(block - 1)[1] + self.cell_height - 5, width, 5)

    def _edges(self, cells: list[int]) -> Iterator[str]:
        """An edge around every cell; where cells are small, one around neighbours in a row."""
        while cells:
            last = 0
            while (
                not self.is_large
                and last + 1 < len(cells)
                and cells[last + 1] == cells[last] + 1
                and cells[last + 1] % self.columns
            ):
                last += 1
            (x, y), width = self.corner(cells[0]), last * (self.cell_width + self.gap) + self.cell_width + 2
            yield f"M{x - 1} {y - 1}h{width}v{self.cell_height + 2}h-{width}z"
            cells = cells[last + 1 :]

    def _holders(self, block: Block) -> str:
        """Who holds a block, as far as there is room: a name, the letter of a request for all its branches, or a count."""
        letters = list(dict.fromkeys(self.memory.requests.get(name, name) for name in block.holders))
        if len(block.holders) <= 1:
            return "".join(block.holders)
        if self.is_large:
            return "".join(letters) if len(letters) <= 3 else f"{letters[0]}{letters[1]}…"
        label = f"{letters[0]}×{block.refs}" if len(letters) == 1 else "".join(letters)
        return label if len(label) <= 3 else f"×{block.refs}"

    def _runs(self, frame: Frame, words: Words) -> None:
        """A letter wherever a run of a contiguous allocator begins, and again in each further row."""
        extents: dict[tuple[int, str], tuple[int, int]] = {}
        per_row = self.columns * self.memory.block_size
        for span in (span for span in frame.spans if span.owners):
            for row in range(span.start // per_row, min(self.rows, (span.start + span.size - 1) // per_row + 1)):
                start, end = max(span.start, row * per_row), min(span.start + span.size, (row + 1) * per_row)
                run = (row, span.owners[0])
                extents[run] = (extents.get(run, (start, 0))[0], end)
        slot = (self.cell_width + self.gap) / self.memory.block_size
        for (_, owner), (start, end) in extents.items():
            if (end - start) * slot >= 14:
                x, y = self.corner(start // self.memory.block_size)
                x += round(start % self.memory.block_size * slot) + 8
                words.add("l", x, y + self.cell_height // 2 + 4, owner)

    def _addresses(self) -> str:
        """The number of the first block (or slot) of each row, unless every block shows its own."""
        if self.is_large and self.memory.is_paged:
            return ""
        words = Words()
        for row in range(0, self.rows, 1 if self.cell_height >= 12 else 2):
            first = row * self.columns
            number = first + 1 if self.memory.is_paged else first * self.memory.block_size
            words.add("s", self.left - 5, self.corner(first)[1] + self.cell_height // 2 + 4, f"{number}")
        return words.draw("s", 11, "end")
