"""The state of the paged engine after a moment, as a `Frame`: who holds each block, how full it is, who could find it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

from mini_engine.course.film.counters import Counters
from mini_engine.course.film.frames import Block, Deed, Frame, Memory, Span, Table

Event = dict[str, Any]
Key = tuple[str, int]

# The deeds of a step in the order in which the engine does them.
ORDER = (
    "arrive", "preempt", "swap out", "evict", "swap in", "copy", "hit", "write",
    "fork", "publish", "finish",
)  # fmt: skip


@dataclass
class Moment:
    """What a frame is made of while its events are read."""

    deeds: list[Deed] = field(default_factory=list)
    marks: dict[int, list[str]] = field(default_factory=dict)
    read: int = 0
    copied: int = 0

    def mark(self, blocks: tuple[int, ...], mark: str) -> None:
        """Mark blocks of the picture, each mark once."""
        for block in blocks:
            if mark not in self.marks.setdefault(block, []):
                self.marks[block].append(mark)


class Reading(Protocol):
    """What is known from the frames before."""

    memory: Memory
    writer: dict[int, str]  # who filled each block last
    total_copied: int

    def name(self, key: Key) -> str:
        """How a sequence is called in the film."""


def key_of(item: Event) -> Key:
    """(request id, index) of a sequence in an event."""
    return (item["request_id"], item["index"])


def frame_after(event: Event, before: Event, moment: Moment, label: str, reading: Reading) -> Frame:
    """The frame of a moment: `event` holds the state it left behind, `before` the state it found."""
    memory, size = reading.memory, reading.memory.block_size
    tables = [_table(sequence, reading) for sequence in event["sequences"]]
    holders: dict[int, list[str]] = {}
    filled: dict[int, int] = {}
    for table in tables:
        for i, block in enumerate(table.blocks):
            holders.setdefault(block, []).append(table.name)
            tokens = min(size, max(0, table.num_computed - i * size))
            filled[block] = max(filled.get(block, 0), tokens)
    published = set(event["cached_blocks"])
    _mark_published_and_freed(before, moment, holders, published)

    blocks, spans = [], []
    for block in range(1, memory.num_drawn + 1):
        names = tuple(holders.get(block, ()))
        is_published = block in published
        full = size if is_published and not names else filled.get(block, 0)
        writer = reading.writer.get(block, "")
        marks = _ranked(moment.marks.get(block, []), held=bool(names))
        blocks.append(Block(block, event["ref_counts"][block - 1], names, full, is_published, writer, marks))
        start = (block - 1) * size
        if names:
            # When several branches of one request share a block, its letter once.
            owners = names if len(names) == 1 else tuple(dict.fromkeys(memory.requests[name] for name in names))
            spans += [Span(start, full, "used", owners)] if full else []
            spans += [Span(start + full, size - full, "empty", owners)] if full < size else []
        elif is_published:
            spans.append(Span(start, size, "cached", (writer,) if writer else ()))
    held = len(holders)
    deeds = moment.deeds
    if event["kind"] == "step":
        deeds = sorted(deeds, key=lambda deed: ORDER.index(deed.kind))
    return Frame(
        label=label,
        step=event["step"],
        memory=memory,
        deeds=tuple(deeds),
        spans=tuple(spans),
        tables=tuple(tables),
        counters=Counters(
            allocated=held * size,
            live=sum(filled.values()),
            shared=(sum(len(table.blocks) for table in tables) - held) * size,
            copied=moment.copied,
            read=moment.read,
            total_copied=reading.total_copied,
        ),
        blocks=tuple(blocks),
        free_queue=tuple(event["free_blocks"]),
        host={block: table.name for table in tables for block in table.host_blocks},
    )


def _mark_published_and_freed(
    before: Event, moment: Moment, holders: dict[int, list[str]], published: set[int]
) -> None:
    written = {block for deed in moment.deeds if deed.kind == "write" for block in deed.blocks}
    newly = published - set(before["cached_blocks"]) | published & written  # one evicted and filled anew counts too
    if newly:
        moment.deeds.append(Deed("publish", blocks=tuple(sorted(newly))))
    held_before = Counter(block for sequence in before["sequences"] for block in sequence["block_table"])
    for block in [*held_before, *moment.marks]:
        if block not in holders and not {"swap out", "evict"} & set(moment.marks.get(block, ())):
            moment.mark((block,), "free")


def _table(sequence: Event, reading: Reading) -> Table:
    return Table(
        reading.name(key_of(sequence)),
        sequence["request_id"],
        sequence["status"],
        len(sequence["token_ids"]),
        sequence["num_computed_tokens"],
        tuple(sequence["block_table"]),
        tuple(sequence["host_blocks"]),
    )


def _ranked(marks: list[str], held: bool) -> tuple[str, ...]:
    """The most telling mark first: of a block that was written and then given up, that it is free."""
    order = ("copy", "hit", "swap in", "evict", "write", "share", "swap out", "free")
    if not held:
        order = ("swap out", "copy", "free", "evict", "hit", "swap in", "write", "share")
    return tuple(mark for mark in order if mark in marks)
