"""Pictures of lesson 11: parts of a context, which program reads which block, and how intense more heads are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mini_engine.catalog import get_gpu
from mini_engine.course.exercises.e11_intensity import heads_at_ridge
from mini_engine.course.figures import BLUE, GREEN, GREY, ORANGE, RED
from mini_engine.course.panels.drawing import DEEP, PALE, PAPER, WARM, arrow, box, label, sheet
from mini_engine.course.panels.p03_intensity import logarithmic, title_of
from mini_engine.roofline import mla_decode_intensity, ridge_point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LATENT, ROPE = 512, 64  # of every DeepSeek model since V2
PROCESSORS = 132  # of an H100
HEADS, TILE = 16, 64  # heads of a program, tokens of a tile

LENGTHS, PAGE, SIZES, NUM_HEADS = (30, 6), 4, (16, 4), 20  # of `programs`
BLOCK_N, BLOCKS = 4, 13
PER_NUMBER = 4  # bytes


def share(length: int, splits: int, tile: int) -> int:
    """Tokens of a part: whole tiles."""
    return math.ceil(math.ceil(length / tile) / splits) * tile


def splits(figure: Figure, sequences: int, context: int, num_splits: int) -> str:
    """Bars: processors at work for each number of parts. Line: what the parts cost in bytes beside the latents."""
    choices = [2**i for i in range(8)]

    def busy(parts: int) -> tuple[int, int, float]:
        tokens = share(context, parts, TILE)
        started = sequences * -(-context // tokens)
        longest = -(-started // PROCESSORS) * tokens
        extra = 0 if parts == 1 else 2 * parts * HEADS * (LATENT + 1) * 4
        return min(started, PROCESSORS), longest, extra / (context * (LATENT + ROPE) * 2)

    figure.subplots_adjust(left=0.1, right=0.9, bottom=0.17, top=0.88)
    axes = figure.subplots()
    found = {parts: busy(parts) for parts in choices}
    colours = [ORANGE if parts == num_splits else BLUE for parts in choices]
    axes.bar(range(len(choices)), [found[parts][0] for parts in choices], color=colours, width=0.65)
    axes.axhline(PROCESSORS, color=GREY, linewidth=1)
    axes.set(xlabel="parts of each context", ylabel="processors at work", ylim=(0, 1.12 * PROCESSORS))
    axes.set_xticks(range(len(choices)), [str(parts) for parts in choices])
    cost = axes.twinx()
    cost.plot(
        range(len(choices)), [100 * found[parts][2] for parts in choices], "o--", color=RED, markersize=4, linewidth=1.2
    )
    cost.set(ylabel="bytes of the parts, % of latents", ylim=(0, None))
    cost.yaxis.label.set_color(RED)
    cost.grid(False)
    cost.spines["right"].set_visible(True)
    axes.set_title(f"16 heads, {sequences} x {context:,} tokens, an H100's {PROCESSORS} processors")
    at_work, longest, extra = found[num_splits]
    return (
        f"{num_splits} {'part' if num_splits == 1 else 'parts'} of each context: {at_work} of {PROCESSORS} processors at work, "
        f"the busiest reads {longest:,} tokens instead of {found[1][1]:,}; the parts move {extra:.1%} of the latents' bytes more"
    )


def tables() -> list[list[int]]:
    """The block tables of the two sequences, as a busy pool would hand the blocks out."""
    order = iter((5 * i + 2) % BLOCKS + 1 for i in range(BLOCKS))
    return [[next(order) for _ in range(-(-length // PAGE))] for length in LENGTHS]


def programs(figure: Figure, sequence: int, heads: int, split: int, num_splits: int) -> str:
    """Above, the contexts cut in parts; below, the pool. What the chosen program loads is orange."""
    above, below = figure.subplots(
        2, 1, height_ratios=[1, 1.5],
        gridspec_kw={"hspace": 0.5, "left": 0.12, "right": 0.98, "bottom": 0.06, "top": 0.9},
    )  # fmt: skip
    split = min(split, num_splits - 1)
    every, (latent, rope) = tables(), SIZES
    ranges = [
        [(min(i * each, n), min((i + 1) * each, n)) for i in range(num_splits)]
        for n in LENGTHS
        for each in [share(n, num_splits, BLOCK_N)]
    ]
    begin, end = ranges[sequence][split]

    def colour(row: int, token: int) -> str:
        return ORANGE if row == sequence and begin <= token < end else BLUE

    for axes, width, height, title in (
        (
            above,
            2 * HEADS,
            len(LENGTHS) + 1,
            f"two tiles of heads; each context in {num_splits} {'part' if num_splits == 1 else 'parts'}",
        ),
        (
            below,
            BLOCKS + 1,
            PAGE + 0.6,
            f"the pool: a column is a block of {PAGE} slots, a slot is a latent and a rope key",
        ),
    ):
        axes.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
        axes.set_title(title, fontsize=9)
        axes.grid(False)
        for spine in axes.spines.values():
            spine.set_visible(False)
    rows: list[tuple[str, list[str], set[int]]] = [
        ("heads", [ORANGE if h // HEADS == heads else BLUE for h in range(NUM_HEADS)], {0, HEADS, 2 * HEADS})
    ]
    for row, length in enumerate(LENGTHS):
        edges = {edge for part in ranges[row] for edge in part}
        rows.append((f"sequence {row}", [colour(row, token) for token in range(length)], edges))
    for y, (name, faces, edges) in enumerate(rows):
        above.text(-0.4, y + 0.5, name, ha="right", va="center", fontsize=8)
        for x, face in enumerate(faces):
            _slot(above, x, y + 0.15, 0.7, face)
        for edge in edges:
            above.plot([edge, edge], [y + 0.03, y + 0.97], color="black", linewidth=1.6)
    for x in range(NUM_HEADS, 2 * HEADS):
        _slot(above, x, 0.15, 0.7, "white", "////")
    place = {
        (b, s): (row, i * PAGE + s) for row, table in enumerate(every) for i, b in enumerate(table) for s in range(PAGE)
    }
    for block in range(BLOCKS + 1):
        for slot in range(PAGE):
            row, token = place.get((block, slot), (-1, 0))
            filled = row >= 0 and token < LENGTHS[row]
            face = colour(row, token) if filled else "#E3E7EB" if row < 0 else "white"
            _slot(below, block, slot + 0.08, 0.84, face, "////" if row >= 0 and not filled else "")
        below.text(block + 0.5, PAGE + 0.35, str(block) if block else "null", ha="center", va="center", fontsize=7)
    first = heads * HEADS
    last = min(first + HEADS, NUM_HEADS) - 1
    read = sorted({t // PAGE for t in range(begin, end)})
    row_bytes = (latent + rope) * PER_NUMBER
    what = (
        f"tokens {begin} to {end - 1}, in blocks {[every[sequence][i] for i in read]}: {(end - begin) * row_bytes:,} B"
        if end > begin
        else "nothing: its part is empty"
    )
    tiles = -(-NUM_HEADS // HEADS)
    return (
        f"program ({heads}, {sequence}, {split}) serves heads {first} to {last} of sequence {sequence} and loads {what}. "
        f"All {tiles * len(LENGTHS) * num_splits} programs load {tiles * sum(LENGTHS) * row_bytes:,} B, each latent {tiles} times"
    )


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
    for queries, colour, line in sorted({(1, BLUE, "-"), (query_tokens, BLUE if query_tokens == 1 else GREEN, "-")}):
        y = [float(mla_decode_intensity(n, LATENT, ROPE, s_q=queries)) for n in x]
        axes.plot(x, y, line, color=colour, label=f"{queries} query {'token' if queries == 1 else 'tokens'}")
    axes.axhline(float(ridge), color=RED, linewidth=1.2, label=f"ridge of {title_of(gpu)}")
    axes.axvline(crossing, ymax=0.99, color=RED, linewidth=1, linestyle=":")
    axes.plot(own, float(at), "o", color=ORANGE, markersize=9, zorder=5)
    axes.set(xlim=(1, 512), ylim=(1, 4000), xlabel="heads on a GPU", ylabel="FLOP per byte")
    axes.set_title(f"MLA decode, latents of {LATENT}, rope keys of {ROPE}")
    axes.legend(loc="upper left", fontsize=8)
    bound = "compute" if at >= ridge else "memory"
    return (
        f"{num_heads} heads on {gpus} {'GPU' if gpus == 1 else 'GPUs'}: {own} each, {query_tokens} query "
        f"{'token' if query_tokens == 1 else 'tokens'} bring {float(at):.1f} FLOP/B, {title_of(gpu)} needs {float(ridge):.1f}: "
        f"{bound} bound; compute bound from {crossing} heads a GPU on"
    )


def parts_and_combine() -> tuple[str, str]:
    """SVG and its text: one context in three parts, each with its result and its log-sum-exp, and what joins them."""
    shapes = [label(24, 28, "one context", bold=True, anchor="start")]
    for i in range(24):
        shapes.append(
            f'<rect x="{24 + 25 * i}" y="40" width="23" height="26" rx="3" fill="{(DEEP, PALE, DEEP)[i // 8]}" stroke="#8A949E" stroke-width="0.8"/>'
        )
    for i in range(3):
        x = 24 + 200 * i
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
        arrow((150, 78), (150, 114)),
        arrow((380, 78), (380, 174)),
        box(24, 118, 300, 36, "key, for the score: all 576"),
        '<path d="M502 78L502 136L328 136" fill="none" stroke="#1F2933" stroke-width="1.5" marker-end="url(#a)"/>',
        box(24, 178, 448, 36, "value, for the sum: the same tile, 512", fill=PALE),
        label(248, 236, "loaded once, used twice", size=12),
    ]
    words = (
        "Diagram: a row of the pool has a latent of 512 numbers and a rope key of 64. All 576 are the key. The 512 of the latent are the value "
        "as well: one tile, loaded once and used twice."
    )
    return sheet(554, 250, *shapes), words
