"""What stands below the grid: the free queue, host memory, the six counters, and the key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mini_engine.course.film.frames import Block, Frame
from mini_engine.course.film.shapes import Words, label
from mini_engine.course.film.theme import colour_class


def free_queue(frame: Frame, x: float, y: float, width: float) -> str:
    """The free blocks, the next to be taken first; cached ones grey with a dog-ear, those that somebody holds in red."""
    published = {block.block_id for block in frame.blocks if block.is_published}
    held = {block.block_id for block in frame.blocks if block.holders}
    total = len(frame.free_queue)
    shapes = [label(x, y + 13, "free queue", "s b", 12), label(x + 72, y + 13, "next →" if total else "empty", "s", 12)]
    chip = 23 if frame.memory.num_cells < 1000 else 32
    left, pitch = int(x) + 122, chip + 3
    most = int((width - 122 - 60) // pitch)
    words, cached, ears, boxes, wrong = Words(), "", "", "", ""
    for number, block in enumerate(frame.free_queue[:most]):
        at = left + number * pitch
        box = f"M{at} {y}h{chip}v18h-{chip}z"
        boxes += box
        wrong += box if block in held else ""
        if block in published:
            cached += box
            ears += f"M{at + chip} {y + 12}v6h-6z"
        words.add("", at + chip / 2, y + 13, f"{block}")
    if total > most:
        shapes.append(label(left + most * pitch + 2, y + 13, f"… {total} in all", "s", 12))
    paths = [
        f'<path class="{name}" d="{d}"/>'
        for name, d in (("ghost", cached), ("ear", ears), ("cell", boxes), ("x", wrong))
        if d
    ]
    return "".join(shapes + paths) + words.draw("", 12, "middle")


def host_strip(frame: Frame, x: float, y: float, width: float) -> str:
    """Host memory: whose blocks wait there."""
    letters = list(dict.fromkeys(frame.memory.requests.values()))
    shapes = [label(x, y + 13, "host memory", "s b", 12)]
    pitch = 26
    for number in range(min(frame.memory.num_host_blocks, int((width - 122) // pitch))):
        at, owner = x + 122 + number * pitch, frame.host.get(number + 1, "")
        box = f"M{at:.4g} {y}h23v18h-23z"
        if owner:
            number_ = letters.index(frame.memory.requests[owner])
            shapes.append(f'<path class="{colour_class(number_)} f" d="{box}"/>')
            shapes.append(
                f'<g class="l" font-size="11" text-anchor="middle"><text x="{at + 11.5:.4g}" y="{y + 13}">{owner}</text></g>'
            )
        else:
            shapes.append(label(at + 11.5, y + 13, f"{number + 1}", "s", 10, "middle"))
        shapes.append(f'<path class="cell" d="{box}"/>')
    return "".join(shapes)


def counter_strip(frame: Frame, names: Sequence[str], x: float, y: float, width: float, columns: int) -> str:
    """A tile for each of these counters: its name, its slots, and what that is in bytes or blocks."""
    shapes, size = [], frame.memory.block_size
    pitch, top = (width + 6) / columns, y
    for number, name in enumerate(names):
        value = getattr(frame.counters, name)
        at, y = x + number % columns * pitch, top + number // columns * 64
        shapes.append(f'<rect class="tile" x="{at:.4g}" y="{y}" width="{pitch - 6:.4g}" height="58" rx="4"/>')
        shapes.append(label(at + 8, y + 15, name, "s", 12))
        unit = ("token" if name == "read" else "slot") + "s" * (value != 1)
        shapes.append(
            f'<text x="{at + 8:.4g}" y="{y + 34}" font-size="17" class="b">{value:,}<tspan font-size="12" font-weight="normal" class="s"> {unit}</tspan></text>'
        )
        shapes.append(label(at + 8, y + 50, _below(name, value, frame, size), "s", 11.5))
    return "".join(shapes)


def _below(name: str, value: int, frame: Frame, size: int) -> str:
    counters, per_token = frame.counters, frame.memory.bytes_per_token
    told = "" if per_token is None or not value else short_bytes(value * per_token)
    if name == "live" and counters.allocated:
        share = f"{float(100 * counters.utilization):.0f} %" + ("" if told else " of ")
        return f"{share}, {told}" if told else f"{share}allocated"
    if name == "allocated" and not frame.memory.is_paged:
        small = sum(span.size for span in frame.spans if span.state == "external")
        return f"+ {small} external" if small else told
    if name in ("allocated", "shared", "copied") and frame.memory.is_paged:
        blocks = f"{value // size} block{'s' * (value != size)}"
        if name == "shared" and value:
            return f"saved, {told}" if told else "saved by sharing"
        if name == "copied" and counters.total_copied:
            return f"{blocks}, total {counters.total_copied // size}"
        return f"{blocks}, {told}" if told else blocks
    if name == "read" and not told:
        return "by attention"
    if name == "wasted" and not told:
        if frame.memory.is_paged:
            return "still empty" if value else ""
        return f"{sum(s.size for s in frame.spans if s.state == 'internal')} internal"
    return told


def short_bytes(size: int) -> str:
    """A size in one unit, short enough for a tile."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"


def looks(film: Sequence[Frame]) -> list[str]:
    """Which of the looks of a cell, by their names in the key, occur in a film, in the order in which the key has them."""
    found = {span.state for frame in film for span in frame.spans}
    for frame in film:
        found.update(look for block in frame.blocks for look in _looks_of(block))
        found.update(("copied",) if frame.deeds_of("copy") else ())
        found.update(("new",) if frame.blocks and len(frame.blocks) <= 64 and frame.deeds_of("write") else ())
        if not frame.memory.is_paged and sum(span.size for span in frame.spans) < frame.memory.num_slots:
            found.add("free")
    return [name for name in _KEY if name in found]


def _looks_of(block: Block) -> Iterator[str]:
    if not (block.holders or block.is_published):
        yield "blank"
    if block.is_published:
        yield "published"
    if block.refs > 1:
        yield "shared"
    if block.marks:
        yield "marked"


_BOX = '<rect width="16" height="12" class="{}"/>'
_EDGE = '<rect class="cell" x=".5" y=".5" width="15" height="11"/>'
_KEY = {
    "used": (_BOX.format("r0 f"), "used: holds K/V"),
    "empty": (_BOX.format("r0 t f") + _BOX.format("h f"), "wasted: still empty"),
    "reserved": (_BOX.format("r0 t f") + _BOX.format("h f"), "reserved"),
    "internal": (_BOX.format("r0 t f") + _BOX.format("d f"), "internal"),
    "external": (_EDGE + _BOX.format("u f"), "external"),
    "free": (_EDGE, "free"),
    "cached": (_BOX.format("ghost"), "free, cached"),
    "blank": (_EDGE, "free, blank"),
    "published": (_EDGE + '<path class="ear" d="M16 3v9h-9z"/>', "published"),
    "shared": ('<text class="b" y="11" font-size="13">×n</text>', "in n tables"),
    "marked": ('<path class="o" d="M1 1h14v10h-14z"/>', "touched in this step"),
    "new": (_BOX.format("r0 f") + '<path class="new" stroke-width="4" d="M0 10h16"/>', "new token"),
    "copied": ('<path class="c1" marker-end="url(#big)" d="M1 13V0H13V13"/>', "copied"),
}


def key(names: Sequence[str], x: float, y: float, right: float) -> str:
    """What these looks of a cell mean."""
    return "".join(
        f'<g transform="translate({at:.0f} {y + 17 * row})">{_KEY[name][0]}</g>'
        + label(at + 21, y + 17 * row + 10, _KEY[name][1], "s", 12)
        for name, at, row in _key_places(names, x, right)
    )


def key_rows(names: Sequence[str], x: float, right: float) -> int:
    """How many rows the key takes."""
    return max((row for _, _, row in _key_places(names, x, right)), default=0) + 1


def _key_places(names: Sequence[str], x: float, right: float) -> Iterator[tuple[str, float, int]]:
    left, row = x, 0
    for name in names:
        width = 21 + 5.8 * len(_KEY[name][1])
        if x + width > right:
            x, row = left, row + 1
        yield name, x, row
        x += width + 12
