"""Pictures of lesson 08: what a fork shares and what a write copies, and the blocks that n branches take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mini_engine.course.figures import BLUE, GREY, ORANGE, SKY
from mini_engine.course.panels.drawing import INK, PAPER, arrow, label, sheet
from mini_engine.course.sharing_counts import branch_blocks
from mini_engine.geometry import sharing_saving
from mini_engine.geometry.sharing import branch_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLOCK = 16
AXES = (50, 200, 800, 1600)


def branches(figure: Figure, prefix: int, out: int, n: int) -> str:
    """Blocks of n branches with and without sharing, and how the saving falls with the length of the answers."""
    bars, axes = figure.subplots(
        2, 1, height_ratios=[1.1, 2.3], gridspec_kw={"hspace": 1.1, "bottom": 0.13, "top": 0.92, "left": 0.15}
    )
    shared, private, copied = branch_blocks(prefix, out, n, BLOCK)
    apart = n * branch_table(prefix, out, BLOCK)[0]
    bars.barh(["not shared"], [apart], color=GREY, height=0.7)
    left = 0
    parts = (
        ("shared", shared, BLUE, ""),
        ("private, from a copy", copied, ORANGE, "//"),
        ("private", private - copied, SKY, ""),
    )
    for name, size, colour, hatch in parts:
        if size:
            bars.barh(
                ["forked"], [size], left=left, color=colour, hatch=hatch, edgecolor="white", label=name, height=0.7
            )
        left += size
    # few lengths of the axis, so that a bar is seen to grow while a slider moves
    bars.set(title=f"blocks of {BLOCK} tokens", xlim=(0, next(most for most in AXES if most >= apart)), xlabel="blocks")
    bars.invert_yaxis()
    bars.tick_params(labelsize=8)
    bars.legend(loc="upper center", bbox_to_anchor=(0.45, -0.5), fontsize=8, ncols=3)
    longest = 1024
    lengths = sorted({1, out, *range(16, longest + 1, 16)})
    axes.plot(lengths, [float(sharing_saving(prefix, length, n, BLOCK)) for length in lengths], color=BLUE)
    saving = sharing_saving(prefix, out, n, BLOCK)
    axes.plot([out], [float(saving)], "o", color="black", markersize=6, clip_on=False, zorder=5)
    axes.axhline(1, color=GREY, linewidth=1, linestyle="--")
    axes.set(
        xlim=(0, longest * 1.02),
        ylim=(0.8, max(2, n) + 0.2),
        xlabel="tokens of each answer",
        ylabel="times fewer blocks",
    )
    many = f"{n} branches" if n > 1 else "one branch"
    saved = f"{float(saving):.2f} times fewer" if saving > 1 else "nothing saved"
    return (
        f"prompt {prefix:,}, {many}, answer {out:,}: {_blocks(shared)} shared, {private:,} private, {copied:,} of them "
        f"from a copy; {apart:,} without sharing, {shared + private:,} with it, {saved}"
    )


def _blocks(number: int) -> str:
    return f"{number:,} block{'s' * (number != 1)}"


def fork_and_copy() -> tuple[str, str]:
    """SVG and its text: two tables over one prompt, before and after the first write."""
    shapes: list[str] = []
    for top, title, tables in (
        (0, "after the fork", {"A": (1, 2), "B": (1, 2)}),
        (176, "A writes a7: block 2 is copied first. B then writes in place", {"A": (1, 3), "B": (1, 2)}),
    ):
        shapes.append(label(20, top + 26, title, bold=True, anchor="start", size=14))
        for row, (name, table) in enumerate(tables.items()):
            y = top + 56 + 46 * row
            shapes.append(label(28, y + 18, name, bold=True))
            for i, block in enumerate(table):
                shapes.append(
                    f'<rect x="{44 + 30 * i}" y="{y}" width="28" height="26" rx="3" fill="{PAPER}" stroke="{INK}"/>'
                )
                shapes.append(label(58 + 30 * i, y + 18, str(block)))
        held = {block: sum(block in table for table in tables.values()) for block in (1, 2, 3)}
        for block in (1, 2, 3):
            x, y = 190 + 166 * (block - 1), top + 66
            shapes.append(label(x + 2, y - 8, f"block {block}", anchor="start", size=12))
            shapes.append(label(x + 142, y - 8, f"holders: {held[block]}", anchor="end", size=12))
            for slot in range(4):
                word, fill = _slot(block, slot, top > 0)
                shapes.append(
                    f'<rect x="{x + 36 * slot}" y="{y}" width="34" height="34" rx="3" fill="{fill}" stroke="{GREY}" stroke-width="0.8"/>'
                )
                shapes.append(label(x + 36 * slot + 17, y + 22, word, ink=PAPER if fill == BLUE else INK, size=12))
    shapes += [
        arrow((390, 282), (390, 306), (556, 306), (556, 280)),
        label(473, 325, "copy block 2 to block 3", size=12),
    ]
    words = (
        "Diagram: blocks of 4 slots, a prompt of 6 tokens. After the fork the tables of A and B both name blocks 1 and 2; each "
        "has 2 holders, and block 2 has 2 free slots. Then A is about to write its token a7: block 2 is copied to block 3, A's "
        "table names 1 and 3, and a7 goes into block 3. Block 2 now has one holder, B, who writes b7 into it without a copy. "
        "Block 1 still has 2 holders: it is full, and nobody writes there."
    )
    return sheet(690, 340, *shapes), words


def _slot(block: int, slot: int, written: bool) -> tuple[str, str]:
    """The token in a slot of the diagram, and its colour."""
    position = 4 * (block - 1) + slot
    if block == 3:
        if not written or slot == 3:
            return "", PAPER
        return ("a7", ORANGE) if slot == 2 else (f"t{5 + slot}", BLUE)
    if position < 6:
        return f"t{position + 1}", BLUE
    return ("b7", SKY) if written and position == 6 else ("", PAPER)
