"""Pictures of lesson 10: which program reads which block, and how a tile is laid over the blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mini_engine.course.figures import BLUE, GREY, ORANGE
from mini_engine.course.panels.drawing import DEEP, PALE, PAPER, WARM, arrow, box, label, sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTHS, PAGE, KV_HEADS, GROUP, SIZE = (21, 6, 13), 4, 2, 4, 32
BLOCKS = 16  # of the pool, the null block not counted
PER_NUMBER = 4  # bytes


def tables() -> list[list[int]]:
    """The block tables of the three sequences, as a busy pool would hand the blocks out."""
    order = iter((5 * i + 2) % BLOCKS + 1 for i in range(BLOCKS))
    return [[next(order) for _ in range(-(-length // PAGE))] for length in LENGTHS]


def programs(figure: Figure, sequence: int, kv_head: int, block_n: int) -> str:
    """The grid of programs above, the pool below: what the chosen program loads is orange, what others load is blue."""
    from matplotlib.patches import Rectangle

    above, below = figure.subplots(
        2,
        1,
        height_ratios=[1, 1.5],
        gridspec_kw={"hspace": 0.45, "left": 0.1, "right": 0.98, "bottom": 0.04, "top": 0.9},
    )
    every, length = tables(), LENGTHS[sequence]
    tiles = -(-length // block_n)
    above.set(xlim=(0, max(LENGTHS) + 12), ylim=(len(LENGTHS), 0), xticks=[], yticks=[])
    above.set_title(f"the context of each sequence, cut in tiles of {block_n} for K/V head {kv_head}", fontsize=9)
    below.set(xlim=(0, BLOCKS + 1), ylim=(KV_HEADS * PAGE + 0.6, 0), xticks=[], yticks=[])
    below.set_title(f"the pool: a column is a block of {PAGE} slots, K/V head 0 above, 1 below", fontsize=9)
    for axes in (above, below):
        axes.grid(False)
        for spine in axes.spines.values():
            spine.set_visible(False)
    for row, count in enumerate(LENGTHS):
        above.text(-0.4, row + 0.5, f"sequence {row}", ha="right", va="center", fontsize=8)
        for lane in range(-(-count // block_n) * block_n):
            if lane < max(LENGTHS) + 12:
                colour = "white" if lane >= count else ORANGE if row == sequence else BLUE
                hatch = "////" if lane >= count else ""
                above.add_patch(
                    Rectangle(
                        (lane + 0.05, row + 0.15),
                        0.9,
                        0.7,
                        facecolor=colour,
                        edgecolor=GREY,
                        hatch=hatch,
                        linewidth=0.4,
                    )
                )
        for edge in range(0, -(-count // block_n) * block_n + 1, block_n):
            above.plot([edge, edge], [row + 0.05, row + 0.95], color="black", linewidth=1.2)
    place = {
        (block, slot): (row, i * PAGE + slot)
        for row, table in enumerate(every)
        for i, block in enumerate(table)
        for slot in range(PAGE)
    }
    for block in range(BLOCKS + 1):
        for head in range(KV_HEADS):
            for slot in range(PAGE):
                row, at = place.get((block, slot), (-1, 0))
                if row < 0:
                    colour, hatch = "#E3E7EB", ""
                elif at >= LENGTHS[row]:
                    colour, hatch = "white", "////"
                else:
                    colour, hatch = (ORANGE if row == sequence and head == kv_head else BLUE), ""
                y = head * (PAGE + 0.3) + slot
                below.add_patch(
                    Rectangle(
                        (block + 0.06, y + 0.08),
                        0.88,
                        0.84,
                        facecolor=colour,
                        edgecolor=GREY,
                        hatch=hatch,
                        linewidth=0.4,
                    )
                )
        below.text(
            block + 0.5, KV_HEADS * PAGE + 0.5, str(block) if block else "null", ha="center", va="center", fontsize=7
        )
    size = 2 * length * SIZE * PER_NUMBER
    return (
        f"program ({kv_head}, {sequence}) serves query heads {kv_head * GROUP} to {kv_head * GROUP + GROUP - 1} of sequence "
        f"{sequence}. Its table is {every[sequence]}: {length} tokens in {tiles} {'tile' if tiles == 1 else 'tiles'} of {block_n}, "
        f"and {tiles * block_n - length} lanes are masked off. It loads {size:,} B of K and V; all "
        f"{KV_HEADS * len(LENGTHS)} programs load {2 * sum(LENGTHS) * KV_HEADS * SIZE * PER_NUMBER:,} B"
    )


def two_ways() -> tuple[str, str]:
    """SVG and its text: gather and attend beside a kernel that follows the table."""
    shapes = [
        label(24, 28, "gather, then attend", bold=True, anchor="start"),
        label(24, 158, "one kernel", bold=True, anchor="start"),
    ]
    for y in (44, 174):
        for i in range(6):
            shapes.append(
                f'<rect x="{24 + 26 * i}" y="{y}" width="22" height="40" rx="3" fill="{DEEP if i in (1, 2, 5) else PALE}" stroke="#8A949E" stroke-width="0.8"/>'
            )
        shapes.append(label(100, y + 58, "K/V blocks in the pool", size=12))
    for i in range(3):
        shapes.append(f'<rect x="{300 + 26 * i}" y="44" width="25" height="40" rx="3" fill="{WARM}" stroke="{PAPER}"/>')
    shapes += [label(338, 102, "a copy in one run", size=12), box(508, 44, 110, 40, "attention")]
    shapes += [
        arrow((186, 64), (294, 64)),
        label(240, 52, "read, write", size=12),
        arrow((384, 64), (502, 64)),
        label(444, 52, "read", size=12),
    ]
    shapes += [
        box(508, 174, 110, 40, "attention"),
        arrow((186, 194), (502, 194)),
        label(344, 182, "read, by way of the block table", size=12),
    ]
    words = (
        "Diagram: above, three blocks of a pool are read and written into one run, and attention reads that copy: the same bytes move three "
        "times. Below, one kernel reads the blocks where they lie, by way of the block table: once."
    )
    return sheet(650, 246, *shapes), words
