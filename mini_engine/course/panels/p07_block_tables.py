"""Pictures of lesson 07: from position to slot by way of the table, and the empty slots of last blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mini_engine.course.figures import BLUE, GREY, ORANGE
from mini_engine.course.panels.drawing import DEEP, PALE, PAPER, WARM, arrow, box, label, sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POOL = 128  # slots of the panel's pool, the null block not counted
PER_ROW = 32


def scattered(num_blocks: int, pool_blocks: int) -> list[int]:
    """Blocks of one request as a busy pool hands them out: not in order, none twice, never the null block."""
    return [1 + (5 * i + 2) % pool_blocks for i in range(num_blocks)]


def address(figure: Figure, block_size: int, context: int, position: int) -> str:
    """Where one token lies: the request's own order above, the pool below, and the block table between them."""
    told = ""
    if position >= context:
        position, told = context - 1, f" (cut to {context - 1}, the last one)"
    table = scattered(-(-context // block_size), POOL // block_size)
    index, offset = divmod(position, block_size)
    slot = table[index] * block_size + offset
    above, below = figure.subplots(
        2,
        1,
        height_ratios=[1, 1.5],
        gridspec_kw={"hspace": 0.5, "left": 0.03, "right": 0.97, "bottom": 0.06, "top": 0.9},
    )
    num_rows = -(-(POOL + block_size) // PER_ROW)
    owned = {block * block_size + i: block for block in table for i in range(block_size)}
    used = {table[at // block_size] * block_size + at % block_size for at in range(context)}
    for axes, rows, title in (
        (above, POOL // PER_ROW, f"as the request sees it: positions 0 to {context - 1}"),
        (below, num_rows, f"the pool: {POOL // block_size + 1} blocks of {block_size}, the null block first"),
    ):
        axes.set(xlim=(0, PER_ROW), ylim=(rows, -0.05), xticks=[], yticks=[])
        axes.set_title(title, fontsize=9)
        axes.grid(False)
        for spine in axes.spines.values():
            spine.set_visible(False)

    def square(axes, at: int, colour: str, hatch: str = "", edge: str = "white") -> None:  # type: ignore[no-untyped-def]
        place, size = (at % PER_ROW + 0.04, at // PER_ROW + 0.06), (0.92, 0.88)
        axes.add_patch(_rectangle(place, *size, facecolor=colour, edgecolor=edge, hatch=hatch, linewidth=0.6))

    for at in range(len(table) * block_size):
        real = at < context
        square(
            above,
            at,
            ORANGE if at == position else BLUE if real else "white",
            "" if real else "//",
            "white" if real else GREY,
        )
    for at in range((POOL // block_size + 1) * block_size):
        if at in used:
            square(below, at, ORANGE if at == slot else BLUE)
        elif at in owned:
            square(below, at, "white", "//", GREY)
        else:
            square(below, at, "#E3E7EB" if at >= block_size else "white", "" if at >= block_size else "..", GREY)
    for axes, starts in (
        (above, {i * block_size: str(i) for i in range(len(table))}),
        (below, {block * block_size: str(block) for block in table}),
    ):
        for start, text in starts.items():
            ink = "white" if start < context or axes is below else "black"
            axes.text(
                start % PER_ROW + 0.5,
                start // PER_ROW + 0.52,
                text,
                ha="center",
                va="center",
                color=ink,
                fontsize=8,
                fontweight="bold",
            )
    shown = ", ".join(map(str, table[:8])) + (", ..." if len(table) > 8 else "")
    return (
        f"position {position}{told} of {context} tokens, in blocks of {block_size}: entry {position} // {block_size} = {index}, "
        f"offset {position} % {block_size} = {offset}. The table is [{shown}], and table[{index}] = {table[index]}. Slot "
        f"{table[index]} × {block_size} + {offset} = {slot}. {len(table) * block_size - context} slots of the last block are empty"
    )


def _rectangle(*place, **looks):  # type: ignore[no-untyped-def]
    from matplotlib.patches import Rectangle

    return Rectangle(*place, **looks)


def tails(figure: Figure, lengths: Sequence[int], block_size: int) -> str:
    """How many slots of its last block each request leaves empty."""
    axes = figure.subplots(gridspec_kw={"bottom": 0.2, "top": 0.9})
    empty = Counter(-length % block_size for length in lengths)
    counts = [empty[i] for i in range(block_size)]
    axes.bar(range(block_size), counts, color=BLUE, edgecolor="white", label="requests of the trace")
    mean = sum(i * n for i, n in enumerate(counts)) / len(lengths)
    axes.axvline(mean, color=ORANGE, linewidth=2, label=f"mean, {mean:.2f}")
    axes.set(xlabel="empty slots in the last block", ylabel="requests", ylim=(0, 1.35 * max(counts)))
    axes.legend(loc="upper right", fontsize=8, ncols=2)
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
            shapes.append(label(x + 13, 54, str(i), ink=PAPER, size=12))
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
                shapes.append(label(x + 17 * offset + 8, 227, str(at), ink=PAPER, size=11))
    for i, block in enumerate(table):
        shapes.append(arrow((86 + 134 * i, 152), (58 + 76 * block, 206)))
    words = (
        "Diagram: ten tokens, 0 to 9, fill two blocks of 4 and half of a third. The block table is 5, 2, 6. So tokens 0 to 3 lie in block 5 of the "
        "pool, 4 to 7 in block 2, and 8 and 9 in block 6, whose last two slots are empty. Token 9 has entry 2 and offset 1: block 6, slot 25. "
        "Block 0 is the null block, which holds no tokens."
    )
    return sheet(650, 268, *shapes), words
