"""Pictures of lesson 11: parts of a context, which program reads which block, and how intense more heads are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mini_engine.catalog import get_gpu
from mini_engine.course.exercises.e11_intensity import heads_at_ridge
from mini_engine.course.figures import BLUE, GREEN, GREY, ORANGE, RED
from mini_engine.course.panels.drawing import DEEP, PALE, PAPER, WARM, arrow, box, label, sheet
from mini_engine.course.panels.p03_intensity import counted, logarithmic, title_of
from mini_engine.roofline import mla_decode_intensity, ridge_point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LATENT, ROPE = 512, 64  # of every DeepSeek model since V2
PROCESSORS = 132  # of an H100
HEADS, TILE = 16, 64  # heads of a program, tokens of a tile

LENGTHS, PAGE, SIZES, NUM_HEADS = (470, 90), 16, (16, 4), 20  # of `programs`
COLUMNS = 20  # blocks of the pool in a row of the picture
PER_NUMBER = 4  # bytes


def share(length: int, splits: int, tile: int) -> int:
    """Tokens of a part: whole tiles."""
    return math.ceil(math.ceil(length / tile) / splits) * tile


def splits(figure: Figure, sequences: int, context: int, num_splits: int) -> str:
    """Above, processors at work for each number of parts; below, what the busiest reads, and bytes that the parts cost."""
    choices = [2**i for i in range(8)]

    def busy(parts: int) -> tuple[int, int, float]:
        tokens = share(context, parts, TILE)
        started = sequences * -(-context // tokens)
        longest = -(-started // PROCESSORS) * tokens
        extra = 0 if parts == 1 else 2 * parts * HEADS * (LATENT + 1) * 4
        return min(started, PROCESSORS), longest, extra / (context * (LATENT + ROPE) * 2)

    figure.subplots_adjust(left=0.13, right=0.97, bottom=0.12, top=0.92, hspace=0.35)
    above, below = figure.subplots(2, 1, sharex=True)
    found = {parts: busy(parts) for parts in choices}
    colours = [ORANGE if parts == num_splits else BLUE for parts in choices]
    above.bar(range(len(choices)), [found[parts][0] for parts in choices], color=colours, width=0.65)
    above.axhline(PROCESSORS, color=GREY, linewidth=1)
    above.text(-0.45, PROCESSORS + 4, f"all {PROCESSORS}", fontsize=8, va="bottom")
    above.set(ylabel="processors at work", ylim=(0, 1.25 * PROCESSORS))
    below.bar(range(len(choices)), [found[parts][1] for parts in choices], color=colours, width=0.65)
    logarithmic(below, "y")
    below.set(xlabel="parts of each context", ylabel="tokens of the busiest", ylim=(30, 3e6))
    for at, parts in enumerate(choices):
        below.text(at, found[parts][1] * 1.3, f"+{found[parts][2]:.1%}", ha="center", va="bottom", fontsize=8)
    below.set_xticks(range(len(choices)), [str(parts) for parts in choices])
    below.set_title("above each bar: bytes that the parts move more", fontsize=9)
    above.set_title(f"16 heads, {sequences} x {context:,} tokens, an H100's {PROCESSORS} processors")
    at_work, longest, extra = found[num_splits]
    return (
        f"{counted(sequences, 'sequence')} of {context:,} tokens in {counted(num_splits, 'part')} each: {at_work} of {PROCESSORS} processors at work, "
        f"the busiest reads {longest:,} tokens instead of {found[1][1]:,}; the parts move {extra:.1%} of the latents' bytes more"
    )


def tables() -> list[list[int]]:
    """The block tables of the two sequences, as a busy pool would hand the blocks out."""
    blocks = 2 * COLUMNS - 1  # and the null block
    order = iter((7 * i + 4) % blocks + 1 for i in range(blocks))
    return [[next(order) for _ in range(-(-length // PAGE))] for length in LENGTHS]


def programs(figure: Figure, sequence: int, heads: int, split: int, num_splits: int) -> str:
    """Above, heads in tiles and contexts in parts; below, the pool. What the chosen program loads is orange."""
    from matplotlib.patches import Patch

    above, below = figure.subplots(
        2, 1, height_ratios=[3.2, 2],
        gridspec_kw={"hspace": 0.3, "left": 0.13, "right": 0.98, "bottom": 0.12, "top": 0.93},
    )  # fmt: skip
    split = min(split, num_splits - 1)
    every, (latent, rope) = tables(), SIZES
    ranges = [
        [(min(i * each, n), min((i + 1) * each, n)) for i in range(num_splits)]
        for n in LENGTHS
        for each in [share(n, num_splits, TILE)]
    ]
    begin, end = ranges[sequence][split]

    def colour(row: int, block: int) -> str:
        return ORANGE if row == sequence and begin <= block * PAGE < end else BLUE

    _bare(
        above,
        2 * HEADS,
        4.1,
        f"program ({heads}, {sequence}, {split}): two tiles of 16 heads, hatched is padding; contexts cut in parts",
    )
    _bare(below, COLUMNS, 2, "the pool: blocks of 16 slots, by number")
    for x in range(2 * HEADS):
        is_head = x < NUM_HEADS
        _slot(
            above,
            x,
            0.15,
            0.7,
            (ORANGE if x // HEADS == heads else BLUE) if is_head else "white",
            "" if is_head else "////",
        )
    above.plot([HEADS, HEADS], [0.03, 0.97], color="black", linewidth=1.6)
    above.text(-0.4, 0.5, "heads", ha="right", va="center", fontsize=8)
    for row, length in enumerate(LENGTHS):
        y = 1.15 + 1.5 * row
        above.text(-0.4, y + 0.5, f"sequence {row}", ha="right", va="center", fontsize=8)
        for block in range(-(-length // PAGE)):
            _slot(above, block, y + 0.15, 0.7, colour(row, block))
        for part, (first, last) in enumerate(ranges[row]):
            if last > first:
                for edge in (first / PAGE, -(-last // PAGE)):
                    above.plot([edge, edge], [y + 0.03, y + 0.97], color="black", linewidth=1.6)
                above.text((first + last) / 2 / PAGE, y + 1.2, f"part {part}", ha="center", va="center", fontsize=8)
        empty = [str(part) for part, (first, last) in enumerate(ranges[row]) if last == first]
        if empty:
            chosen = row == sequence and begin == end
            words = f"{'part' if len(empty) == 1 else 'parts'} {', '.join(empty)}: empty"
            at = -(-length // PAGE) + 0.6
            above.text(
                at,
                y + 0.5,
                words,
                va="center",
                fontsize=8,
                color="black",
                bbox={"facecolor": ORANGE, "edgecolor": "none", "pad": 2} if chosen else None,
            )
    place = {b: (row, i) for row, table in enumerate(every) for i, b in enumerate(table)}
    for block in range(2 * COLUMNS):
        x, y = block % COLUMNS, block // COLUMNS
        face = colour(*place[block]) if block in place else "#E3E7EB"
        _slot(below, x, y + 0.08, 0.84, face)
        ink = "white" if face == BLUE else "black"
        below.text(x + 0.5, y + 0.5, str(block) if block else "null", ha="center", va="center", fontsize=8, color=ink)
    meanings = ((ORANGE, "of this program"), (BLUE, "of others"), ("#E3E7EB", "free"))
    below.legend(
        handles=[Patch(facecolor=face, edgecolor=GREY, label=words) for face, words in meanings],
        loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3, frameon=False, fontsize=8,
    )  # fmt: skip
    first = heads * HEADS
    last = min(first + HEADS, NUM_HEADS) - 1
    row_bytes = (latent + rope) * PER_NUMBER
    blocks = -(-end // PAGE) - begin // PAGE
    what = (
        f"tokens {begin} to {end - 1}, in {blocks} blocks: {(end - begin) * row_bytes:,} B"
        if end > begin
        else "nothing: its part is empty"
    )
    tiles = -(-NUM_HEADS // HEADS)
    return (
        f"program ({heads}, {sequence}, {split}) serves heads {first} to {last} of sequence {sequence}, cut in {counted(num_splits, 'part')}, and "
        f"loads {what}. "
        f"All {tiles * len(LENGTHS) * num_splits} programs load {tiles * sum(LENGTHS) * row_bytes:,} B, each latent {tiles} times"
    )


def _bare(axes: Any, width: float, height: float, title: str) -> None:
    """Axes without ticks and frame, y downwards."""
    axes.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
    axes.set_title(title, fontsize=9)
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _slot(axes: Any, x: float, y: float, height: float, face: str, hatch: str = "") -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x + 0.06, y), 0.88, height, facecolor=face, edgecolor=GREY, hatch=hatch, linewidth=0.4))


def heads(figure: Figure, num_heads: int, query_tokens: int, gpus: int, gpu: str = "h100-sxm") -> str:
    """FLOP per byte against the heads of a model, for one query token and for more, and where the ridge is crossed."""
    card = get_gpu(gpu)
    ridge = ridge_point(card.bf16_flops, card.memory_bandwidth)
    own = max(1, num_heads // gpus)
    at = mla_decode_intensity(own, LATENT, ROPE, s_q=query_tokens)
    crossing = heads_at_ridge(LATENT, ROPE, ridge, query_tokens)
    figure.subplots_adjust(left=0.12, bottom=0.18)
    axes = figure.subplots()
    logarithmic(axes)
    x = [1, 512]
    for queries, colour, line in ((1, BLUE, "-"), (query_tokens, GREEN, "-."))[: 1 + (query_tokens > 1)]:
        y = [float(mla_decode_intensity(n, LATENT, ROPE, s_q=queries)) for n in x]
        axes.plot(x, y, line, color=colour, label=f"{queries} query {'token' if queries == 1 else 'tokens'}")
    axes.axhline(float(ridge), color=RED, linewidth=1.2, label=f"ridge of {title_of(gpu)}")
    axes.axvline(crossing, ymax=0.99, color=RED, linewidth=1, linestyle=":", label=f"reached at {crossing} heads")
    axes.plot(
        own,
        float(at),
        "o",
        color=ORANGE,
        markersize=9,
        zorder=5,
        linestyle="none",
        label=f"{own} {'head' if own == 1 else 'heads'} on a GPU",
    )
    axes.set(xlim=(0.8, 512), ylim=(1, 4000), xlabel="heads on a GPU", ylabel="FLOP per byte")
    axes.set_title(f"MLA decode, latents of {LATENT}, rope keys of {ROPE}")
    axes.set_xticks([2**i for i in range(10)], [str(2**i) for i in range(10)])
    axes.legend(loc="lower right", fontsize=8, frameon=True, framealpha=1, edgecolor="none")  # the lines are above it
    bound = "compute" if at >= ridge else "memory"
    return (
        f"{num_heads} heads on {gpus} {'GPU' if gpus == 1 else 'GPUs'}: {own} each, {query_tokens} query "
        f"{'token brings' if query_tokens == 1 else 'tokens bring'} {float(at):.1f} FLOP/B, {title_of(gpu)} needs {float(ridge):.1f}: "
        f"{bound} bound, and it takes {crossing} heads a GPU to be compute bound"
    )


def parts_and_combine() -> tuple[str, str]:
    """SVG and its text: one context in three parts, each with its result and its log-sum-exp, and what joins them."""
    shapes = [label(24, 28, "one context, in three parts", bold=True, anchor="start")]
    for i in range(24):
        x = 24 + 24 * i + 8 * (i // 8)
        shapes.append(f'<rect x="{x}" y="40" width="22" height="26" rx="3" fill="{DEEP}"/>')
    for i in range(3):
        x = 22 + 200 * i
        shapes += [
            arrow((x + 98, 70), (x + 98, 94)),
            box(x + 22, 98, 152, 36, f"program {i}"),
            label(x + 98, 154, "result, log-sum-exp", size=12),
            arrow((x + 98, 162), (x + 98 + (1 - i) * 110, 190)),
        ]
    shapes += [
        f'<rect x="212" y="194" width="224" height="36" rx="5" fill="{WARM}" stroke="{PAPER}"/>',
        label(324, 217, "combine", bold=True),
        arrow((324, 232), (324, 254)),
        label(324, 270, "the result of the whole context"),
    ]
    words = (
        "Diagram: a context is cut in three parts. A program for each part makes a result and a log-sum-exp. Combine weighs the results by "
        "2 to the power of their log-sum-exps, and gives the result of the whole context."
    )
    return sheet(650, 284, *shapes), words


def one_row() -> tuple[str, str]:
    """SVG and its text: a token's row in the pool, loaded once; all of it is the key, its first part the value."""
    shapes = [
        label(24, 28, "a token's row in the pool", bold=True, anchor="start"),
        f'<rect x="24" y="40" width="448" height="34" rx="4" fill="{DEEP}"/>',
        f'<rect x="474" y="40" width="56" height="34" rx="4" fill="{WARM}"/>',
        label(248, 62, "latent, 512", ink=PAPER),
        label(502, 62, "rope, 64"),
        box(24, 92, 506, 36, "key, for the score: all 576", fill=PALE),
        box(24, 140, 448, 36, "value, for the sum: the same tile, 512", fill=PALE),
        label(248, 200, "loaded once, used twice", size=12),
    ]
    words = (
        "Diagram: a row of the pool has a latent of 512 numbers and a rope key of 64. All 576 are the key. The 512 of the latent are the value "
        "as well: one tile, loaded once and used twice."
    )
    return sheet(554, 214, *shapes), words
