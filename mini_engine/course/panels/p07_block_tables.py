"""Pictures of lesson 07: from position to slot by way of the table, and the empty slots of last blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mini_engine.course.figures import BLUE, GREY, ORANGE, SKY
from mini_engine.course.panels.drawing import DEEP, INK, PALE, PAPER, WARM, arrow, box, label, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POOL = 224  # slots of the panel's pool, the null block not counted: 7 blocks of the largest size
PER_ROW = 32
KINDS = {
    "a token": BLUE,
    "this token": ORANGE,
    "empty, the request's own": SKY,
    "free": "lightgrey",
    "null block": GREY,
}
TOKEN, THIS, EMPTY, FREE, NULL, OUTSIDE = range(6)


def scattered(num_blocks: int, pool_blocks: int) -> list[int]:
    """Blocks of one request as a busy pool hands them out: not in order, none twice, never the null block."""
    return [1 + (5 * i + 2) % pool_blocks for i in range(num_blocks)]


def address(figure: Figure, block_size: int, context: int, position: int) -> str:
    """Where one token lies: the request's own order above, the block table between, the pool below."""
    told = ""
    if position >= context:
        position, told = context - 1, f" (cut to {context - 1}, the last one)"
    table = scattered(-(-context // block_size), POOL // block_size)
    index, offset = divmod(position, block_size)
    slot = table[index] * block_size + offset
    num_rows = -(-(POOL + block_size) // PER_ROW)
    above, between, below = figure.subplots(
        3, 1, height_ratios=[4, 1.4, num_rows],
        gridspec_kw={"hspace": 0.55, "left": 0.02, "right": 0.98, "bottom": 0.09, "top": 0.93},
    )  # fmt: skip

    kinds = [TOKEN if at < context else EMPTY for at in range(len(table) * block_size)]
    pool = [NULL] * block_size + [FREE] * POOL
    for at, kind in enumerate(kinds):
        pool[table[at // block_size] * block_size + at % block_size] = kind
    kinds[position] = pool[slot] = THIS
    size = 8 if block_size > 1 else 5.5
    _grid(above, kinds, 4, [(i * block_size, str(i)) for i in range(len(table))], size)
    starts = [(block * block_size, str(block)) for block in range(POOL // block_size + 1)]
    _grid(below, pool, num_rows, starts if block_size > 1 else [(block, str(block)) for block in table], size)
    _entries(between, table, index)
    above.set_title(f"positions 0 to {context - 1}, as the request sees them; the number of each entry", fontsize=9)
    between.set_title("the block table: entry → block", fontsize=9)
    below.set_title(
        f"the pool: {POOL // block_size + 1} blocks of {block_size}, with the number of each block", fontsize=9
    )
    from matplotlib.patches import Patch

    patches = [Patch(facecolor=colour, edgecolor=GREY, label=name) for name, colour in KINDS.items()]
    patches[THIS].set(edgecolor=INK, linewidth=1.6)  # as in the rows: a frame, which tells it without colour too
    figure.legend(handles=patches, loc="lower center", ncols=len(KINDS), fontsize=8, handlelength=1, columnspacing=1.2)
    shown = ", ".join(map(str, table[:8])) + (", ..." if len(table) > 8 else "")
    return (
        f"position {position}{told} of {context} token{'s' * (context > 1)}, in blocks of {block_size}: entry {position} // {block_size} = {index}, "
        f"offset {position} % {block_size} = {offset}. The table is [{shown}], and table[{index}] = {table[index]}. Slot "
        f"{table[index]} × {block_size} + {offset} = {slot}. {len(table) * block_size - context} slots of the last block are empty"
    )


def _grid(axes: Axes, kinds: list[int], num_rows: int, starts: list[tuple[int, str]], size: float) -> None:
    """Slots in rows, coloured by kind, this token's in a frame; a number in the slot where a block starts."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Rectangle

    cells = [*kinds, *[OUTSIDE] * (num_rows * PER_ROW - len(kinds))]
    rows = [cells[i : i + PER_ROW] for i in range(0, len(cells), PER_ROW)]
    colours = ListedColormap([*KINDS.values(), "#FFFFFF00"])
    axes.pcolormesh(rows, cmap=colours, vmin=0, vmax=OUTSIDE, edgecolors="white", linewidth=1.2)
    y, x = divmod(kinds.index(THIS), PER_ROW)
    axes.add_patch(Rectangle((x, y), 1, 1, fill=False, edgecolor=INK, linewidth=1.6, clip_on=False))
    axes.set(xlim=(0, PER_ROW), ylim=(num_rows, 0))
    axes.set_axis_off()
    for start, text in starts:
        ink = PAPER if kinds[start] in (TOKEN, NULL) else INK
        axes.text(
            start % PER_ROW + 0.5, start // PER_ROW + 0.54, text, ha="center", va="center", color=ink, fontsize=size
        )  # fmt: skip


def _entries(axes: Axes, table: list[int], index: int) -> None:
    """The entry that is looked up, and its neighbours."""
    first = max(0, min(index - 3, len(table) - 8))
    for place, i in enumerate(range(first, min(first + 8, len(table)))):
        fill, edge, width = (ORANGE, INK, 1.6) if i == index else (PALE, GREY, 1.0)
        looks = {"facecolor": fill, "edgecolor": edge, "linewidth": width, "boxstyle": "round,pad=0.35"}
        text = f"[{i}] → {table[i]}"
        axes.text(0.06 + 0.125 * place, 0.5, text, ha="center", va="center", color=INK, fontsize=8, bbox=looks)
    axes.set_axis_off()


def tails(figure: Figure, lengths: Sequence[int], block_size: int) -> str:
    """How many slots of its last block each request leaves empty."""
    axes = figure.subplots(gridspec_kw={"bottom": 0.2, "top": 0.88})
    empty = Counter(-length % block_size for length in lengths)
    counts = [empty[i] for i in range(block_size)]
    axes.bar(range(block_size), counts, color=BLUE, edgecolor="white", label="requests of the trace")
    mean = sum(i * n for i, n in enumerate(counts)) / len(lengths)
    axes.axvline(mean, color=ORANGE, linewidth=2, label=f"mean, {mean:.2f}")
    axes.set(xlabel="empty slots in the last block", ylabel="requests", ylim=(0, 1.1 * max(counts)))
    axes.legend(
        loc="lower right", bbox_to_anchor=(1, 1), fontsize=8, ncols=2
    )  # above the axes: nothing runs through it
    return (
        f"{len(lengths):,} requests in blocks of {block_size}: each number of empty slots from 0 to {block_size - 1} is left by "
        f"{min(counts)} to {max(counts)} requests; on average {mean:.2f}, and {(block_size - 1) / 2} if all are equally likely"
    )


def block_table() -> tuple[str, str]:
    """SVG and its text: ten tokens in three blocks of 4, found through the table."""
    shapes = [label(24, 26, "tokens in order", bold=True, anchor="start")]
    table = [5, 2, 6]
    for i in range(12):
        x, real = 24 + 30 * i + 14 * (i // 4), i < 10
        fill = (WARM if i == 9 else DEEP) if real else PAPER
        shapes.append(
            f'<rect x="{x}" y="36" width="27" height="26" rx="3" fill="{fill}" stroke="#8A949E" stroke-width="0.8"/>'
        )
        if real:
            shapes.append(label(x + 13, 54, str(i), ink=INK if i == 9 else PAPER, size=12))
    shapes.append(label(430, 141, "the block table", bold=True, anchor="start"))
    for i, block in enumerate(table):
        x = 64 + 134 * i
        shapes += [box(x, 122, 44, 28, str(block)), arrow((x + 22, 66), (x + 22, 118))]
        shapes.append(label(x + 58, 141, f"[{i}]", size=12))
    shapes.append(label(24, 200, "pool", bold=True, anchor="start"))
    for block in range(8):
        x = 24 + 76 * block
        shapes.append(label(x + 34, 252, f"block {block}" if block else "null", size=12))
        for offset in range(4):
            index = table.index(block) if block in table else -1
            at = index * 4 + offset
            real = index >= 0 and at < 10
            fill = (WARM if at == 9 else DEEP) if real else PAPER if index >= 0 else PALE
            shapes.append(
                f'<rect x="{x + 17 * offset}" y="210" width="16" height="26" rx="2" fill="{fill}" stroke="#8A949E" stroke-width="0.6"/>'
            )
            if real:
                shapes.append(label(x + 17 * offset + 8, 227, str(at), ink=INK if at == 9 else PAPER, size=11))
    for i, block in enumerate(table):
        shapes.append(arrow((86 + 134 * i, 152), (58 + 76 * block, 206)))
    words = (
        "Diagram: ten tokens, 0 to 9, fill two blocks of 4 and half of a third. The block table is 5, 2, 6. So tokens 0 to 3 lie in block 5 of the "
        "pool, 4 to 7 in block 2, and 8 and 9 in block 6, whose last two slots are empty. Token 9 has entry 2 and offset 1: block 6, slot 25. "
        "Block 0 is the null block, which holds no tokens."
    )
    return sheet(650, 268, *shapes), words
