"""The text twin of a picture: everything in it, number by number, for screen readers and for comparing notebooks."""

from __future__ import annotations

from mini_engine.course.film.frames import Frame
from mini_engine.course.film.strips import short_bytes
from mini_engine.course.film.words import headline, tokens


def counter_words(frame: Frame) -> str:
    """The counter strip as one sentence."""
    parts = [f"{name} {_slots(value, frame)}" for name, value in frame.counters.items()]
    return "Slots: " + ", ".join(parts) + "."


def text(frame: Frame) -> str:
    """The whole frame as text: everything that the picture shows, number by number."""
    lines = [headline(frame), counter_words(frame)]
    for table in frame.tables:
        where = (
            " ".join(map(str, table.blocks)) or f"host {' '.join(map(str, table.host_blocks))}"
            if frame.memory.is_paged
            else ""
        )
        state = "" if table.status == "running" else f" [{table.status}]"
        told = f"{table.name} = {table.request_id}{state}: {table.num_computed} of {tokens(table.num_tokens)} stored"
        lines.append(f"{told}; blocks {where}" if table.blocks or table.host_blocks else told)
    free = set(frame.free_queue)
    for block in frame.blocks:
        if not (block.refs or block.holders or block.is_published or block.marks):
            continue
        parts = [f"{block.filled}/{frame.memory.block_size} slots"]
        parts.append(f"held by {', '.join(block.holders)}" if block.holders else "free")
        if block.refs > 1 or block.is_miscounted:
            parts.append(f"reference count {block.refs}")
        if block.is_miscounted:
            parts.append(f"WRONG: {len(block.holders)} tables hold it")
        if block.holders and block.block_id in free:
            parts.append("WRONG: in the free queue as well")
        if block.is_published:
            parts.append("published")
        lines.append(
            f"  block {block.block_id}: {', '.join(parts)}" + (f"  <- {', '.join(block.marks)}" if block.marks else "")
        )
    if not frame.memory.is_paged:
        for span in frame.spans:
            owner = f" ({', '.join(span.owners)})" if span.owners else ""
            lines.append(f"  slots {span.start} to {span.start + span.size - 1}: {span.state}{owner}")
    else:
        lines.append(f"free queue: {_short(frame.free_queue) or 'empty'}")
    return "\n".join(lines)


def _slots(value: int, frame: Frame) -> str:
    size = frame.memory.bytes_per_token
    return f"{value}" if size is None else f"{value} ({short_bytes(value * size)})"


def _short(blocks: tuple[int, ...], most: int = 24) -> str:
    shown = " ".join(map(str, blocks[:most]))
    return f"{shown} ... ({len(blocks)} in all)" if len(blocks) > most else shown
