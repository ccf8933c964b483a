"""Pictures of lesson 10: which program reads which block, and how a tile is laid over the blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mini_engine.course.figures import BLUE, GREY, ORANGE
from mini_engine.course.panels.drawing import DEEP, PALE, PAPER, WARM, arrow, box, label, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LENGTHS, PAGE, KV_HEADS, GROUP, SIZE = (21, 6, 13), 4, 2, 4, 32
BLOCKS = 16  # of the pool, the null block not counted
PER_NUMBER = 4  # bytes
ITS_OWN, OTHERS, NO_TOKEN, FREE = (ORANGE, ""), (BLUE, ""), ("white", "////"), ("#E3E7EB", "")  # colour and hatch


def tables() -> list[list[int]]:
    """The block tables of the three sequences, as a busy pool would hand the blocks out."""
    order = iter((5 * i + 2) % BLOCKS + 1 for i in range(BLOCKS))
    return [[next(order) for _ in range(-(-length // PAGE))] for length in LENGTHS]


def programs(figure: Figure, sequence: int, kv_head: int, block_n: int) -> str:
    """The contexts above, the pool below: what the chosen program loads is orange, what others load is blue.

    In the pool a column is a block, a row a slot, and the K/V heads lie side by side in it, as in memory.
    """
    from matplotlib.patches import Rectangle

    above, below = figure.subplots(
        2, 1, height_ratios=[1, 1.5], gridspec_kw={"hspace": 0.28, "left": 0.12, "right": 0.99, "bottom": 0.1, "top": 0.94}
    )  # fmt: skip

    def square(axes: Axes, x: float, y: float, width: float, look: tuple[str, str], text: str = "") -> None:
        axes.add_patch(
            Rectangle((x, y + 0.1), width, 0.8, facecolor=look[0], edgecolor=GREY, hatch=look[1], linewidth=0.4)
        )
        if text:
            axes.text(x + width / 2, y + 0.52, text, ha="center", va="center", fontsize=7)

    every, length = tables(), LENGTHS[sequence]
    tiles = -(-length // block_n)
    widest = max(-(-n // block_n) * block_n for n in LENGTHS)
    above.set(xlim=(0, widest), ylim=(len(LENGTHS), 0), xticks=[], yticks=[])
    above.set_title(f"K/V head {kv_head}: the tokens of each sequence, in tiles of {block_n} lanes", fontsize=9)
    below.set(xlim=(0, BLOCKS + 1), ylim=(PAGE + 0.9, 0), xticks=[], yticks=[])
    below.set_title(
        "the pool: blocks by slots, K/V head 0 left and 1 right in a slot; the digit is the tile", fontsize=9
    )
    for axes in (above, below):
        axes.grid(False)
        for spine in axes.spines.values():
            spine.set_visible(False)
    for row, count in enumerate(LENGTHS):
        above.text(-0.01 * widest, row + 0.5, f"sequence {row}", ha="right", va="center", fontsize=8)
        lanes = -(-count // block_n) * block_n
        for lane in range(lanes):
            look = NO_TOKEN if lane >= count else ITS_OWN if row == sequence else OTHERS
            square(above, lane + 0.05, row, 0.9, look)
        for edge in range(0, lanes + 1, block_n):
            above.plot([edge, edge], [row + 0.02, row + 0.98], color="black", linewidth=1.5, clip_on=False)
    place = {
        (block, slot): (row, i * PAGE + slot)
        for row, table in enumerate(every)
        for i, block in enumerate(table)
        for slot in range(PAGE)
    }
    for block in range(BLOCKS + 1):
        for slot in range(PAGE):
            row, at = place.get((block, slot), (-1, 0))
            for head in range(KV_HEADS):
                own = row == sequence and head == kv_head
                look = FREE if row < 0 else NO_TOKEN if at >= LENGTHS[row] else ITS_OWN if own else OTHERS
                text = str(at // block_n) if look is ITS_OWN else ""
                square(below, block + 0.06 + 0.44 * head, slot, 0.44, look, text)
        below.text(block + 0.5, PAGE + 0.5, str(block) if block else "null", ha="center", va="center", fontsize=8)
    named = {
        "loaded by this program": ITS_OWN, "loaded by another": OTHERS, "no token (lane off)": NO_TOKEN, "free, or the null block": FREE,
    }  # fmt: skip
    keys = [Rectangle((0, 0), 1, 1, facecolor=c, hatch=h, edgecolor=GREY, linewidth=0.4) for c, h in named.values()]
    figure.legend(keys, list(named), loc="lower center", ncols=4, fontsize=8, handlelength=1.2, columnspacing=1.2)
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
    shapes += [label(563, 102, "bytes move 3 times", size=12), label(563, 232, "bytes move once", size=12)]
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
