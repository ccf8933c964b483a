"""Frames of the paged engine: each step's events against the state before it tell what was hit, copied and evicted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from mini_engine.course.film.counters import Counters
from mini_engine.course.film.frames import Block, Deed, Frame, Memory, Span, Table, short_names

Event = dict[str, Any]
Key = tuple[str, int]

# The deeds of a step in the order in which the engine does them.
ORDER = (
    "rollback", "abort", "reset", "no reset", "arrive", "preempt", "swap out", "evict", "swap in", "copy", "hit", "write",
    "fork", "publish", "finish",
)  # fmt: skip


@dataclass
class _Moment:
    """What a frame is made of while its events are read."""

    deeds: list[Deed] = field(default_factory=list)
    marks: dict[int, list[str]] = field(default_factory=dict)
    read: int = 0
    copied: int = 0

    def mark(self, blocks: tuple[int, ...], mark: str) -> None:
        for block in blocks:
            if mark not in self.marks.setdefault(block, []):
                self.marks[block].append(mark)


def frames(events: list[Event]) -> list[Frame]:
    """See `frames.frames`."""
    return _Reader(events).frames


class _Reader:
    def __init__(self, events: list[Event]) -> None:
        head = events[0]
        self.size: int = head["block_size"]
        num_blocks: int = head["num_blocks"]
        self.memory = Memory(
            "paged", num_blocks * self.size, self.size, head["num_swap_blocks"], head["kv_bytes_per_token"]
        )
        self.letters = short_names([event["request_id"] for event in events if event["kind"] == "add"])
        self.memory.requests.update({letter: letter for letter in self.letters.values()})
        self.branched = {
            sequence["request_id"] for event in events for sequence in event.get("sequences", ()) if sequence["index"]
        }
        self.before: Event = {
            "sequences": [], "free_blocks": list(range(1, num_blocks + 1)), "cached_blocks": [], "ref_counts": [0] * num_blocks,
        }  # fmt: skip
        self.writer: dict[int, str] = {}
        self.total_copied = 0
        self.frames: list[Frame] = []
        moment = _Moment()
        last = None  # the event whose state the unfinished moment ends with
        for event in events[1:]:
            kind = event["kind"]
            if kind == "add":
                moment.deeds.append(
                    Deed("arrive", self.name((event["request_id"], 0)), number=len(event["prompt_token_ids"]))
                )
                continue
            if kind == "step" and last is not None:
                arrivals = [deed for deed in moment.deeds if deed.kind == "arrive"]
                moment.deeds = [deed for deed in moment.deeds if deed.kind != "arrive"]
                self._finish(last, moment, f"before step {event['step']}")
                moment = _Moment(arrivals)
            if kind == "step":
                self._step(event, moment)
                self._finish(event, moment, f"step {event['step']}")
                moment, last = _Moment(), None
            else:
                self._between(event, moment)
                last = event
        if last is not None:
            self._finish(last, moment, f"after step {last['step'] - 1}" if last["step"] else "before step 0")

    def name(self, key: Key) -> str:
        letter = self.letters.get(key[0], key[0][:2])
        name = f"{letter}{key[1]}" if key[0] in self.branched else letter
        self.memory.requests.setdefault(name, letter)
        return name

    # -- what happened -------------------------------------------------------------------------------------------------

    def _step(self, event: Event, moment: _Moment) -> None:
        tables_before = {_key(s): s["block_table"] for s in self.before["sequences"]}
        cached_before = set(self.before["cached_blocks"])
        self._swaps_and_copies(event, tables_before, cached_before, moment)
        op_targets = {op["dst"] for op in event["cache_ops"] if op["kind"] != "swap_out"}
        taken: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = []
        for chunk, table in zip(event["chunks"], event["chunk_tables"]):
            key, start, end = _key(chunk), chunk["start"], chunk["start"] + chunk["num_tokens"]
            name, had = self.name(key), set(tables_before.get(key, ()))
            hits = tuple(b for b in table[: start // self.size] if b not in had and b not in op_targets)
            if hits:
                moment.deeds.append(Deed("hit", name, hits, number=len(hits) * self.size))
                moment.mark(hits, "hit")
            written = tuple(table[start // self.size : -(-end // self.size)])
            new = tuple(b for b in table if b not in had and b not in hits)
            taken.append((name, written, new))
            moment.read += end
        for name, _, new in taken:  # a block that is handed out anew loses what could be found in it
            evicted = tuple(b for b in new if b in cached_before)
            if evicted:
                moment.deeds.append(Deed("evict", name, evicted))
                moment.mark(evicted, "evict")
        for chunk, (name, written, _) in zip(event["chunks"], taken):
            moment.deeds.append(Deed("write", name, written, number=chunk["num_tokens"], start=chunk["start"]))
            moment.mark(written, "write")
            for block in written:
                self.writer[block] = name
        self._departures(event, moment)

    def _swaps_and_copies(
        self, event: Event, tables_before: dict[Key, list[int]], cached: set[int], moment: _Moment
    ) -> None:
        preempted = [(key[0], key[1]) for key in event["preempted"]]
        outs = {op["src"]: op["dst"] for op in event["cache_ops"] if op["kind"] == "swap_out"}
        ins = {op["dst"]: op["src"] for op in event["cache_ops"] if op["kind"] == "swap_in"}
        status = {_key(s): s["status"] for s in event["sequences"]}
        for key in preempted:
            table = tables_before.get(key, [])
            moved = tuple(b for b in table if b in outs)
            swapped = status.get(key) == "swapped"
            if swapped:
                moment.deeds.append(Deed("swap out", self.name(key), moved, tuple(outs[b] for b in moved)))
                moment.mark(moved, "swap out")
            else:
                moment.deeds.append(Deed("preempt", self.name(key), tuple(table)))
        for chunk, table in zip(event["chunks"], event["chunk_tables"]):
            moved = tuple(b for b in table if b in ins)
            if moved:
                moment.deeds.append(Deed("swap in", self.name(_key(chunk)), tuple(ins[b] for b in moved), moved))
                moment.mark(moved, "swap in")
                for block in moved:
                    self.writer[block] = self.name(_key(chunk))
        holders: dict[int, list[str]] = {}  # as the copies change them, one after another
        for key, table in tables_before.items():
            for block in table if key not in preempted else ():
                holders.setdefault(block, []).append(self.name(key))
        targets = {b: self.name(_key(c)) for c, table in zip(event["chunks"], event["chunk_tables"]) for b in table}
        for op in event["cache_ops"]:
            if op["kind"] != "copy":
                continue
            name = targets.get(op["dst"], "?")
            others = [n for n in holders.get(op["src"], []) if n != name]
            holders[op["src"]] = others
            moment.deeds.append(
                Deed("copy", name, (op["src"],), (op["dst"],), tuple(others), number=int(op["src"] in cached))
            )
            moment.mark((op["dst"],), "copy")
            self.writer[op["dst"]] = name
            moment.copied += self.size
        self.total_copied += moment.copied

    def _departures(self, event: Event, moment: _Moment) -> None:
        """Branches that the step forked off, what became findable, and who ended."""
        alive = {_key(s): s for s in event["sequences"]}
        known = {_key(s) for s in self.before["sequences"]}
        ran = [_key(chunk) for chunk in event["chunks"]]
        for parent in ran:
            born = [key for key in alive if key[0] == parent[0] and key not in known and key not in ran and key[1]]
            if born and parent in alive:
                shared = tuple(b for b in alive[born[0]]["block_table"])
                moment.deeds.append(Deed("fork", self.name(parent), shared, others=tuple(map(self.name, born))))
                known |= set(born)
        ended = [key for key in dict.fromkeys([*ran, *(tuple(k) for k in event["finished"])]) if key not in alive]
        tables = {_key(chunk): table for chunk, table in zip(event["chunks"], event["chunk_tables"])}
        for key in ended:
            moment.deeds.append(Deed("finish", self.name(key), tuple(tables.get(key, ()))))

    def _between(self, event: Event, moment: _Moment) -> None:
        kind = event["kind"]
        if kind == "fork":
            key, new = (event["request_id"], event["index"]), (event["request_id"], event["new_index"])
            shared = tuple(block for s in event["sequences"] if _key(s) == new for block in s["block_table"])
            moment.deeds.append(Deed("fork", self.name(key), shared, others=(self.name(new),)))
        elif kind == "abort":
            gone = [s for s in self.before["sequences"] if s["request_id"] == event["request_id"]]
            gone = [s for s in gone if event["index"] in (None, s["index"])]
            names = tuple(self.name(_key(s)) for s in gone) or (self.letters.get(event["request_id"], "?"),)
            moment.deeds.append(Deed("abort", others=names))
        elif kind == "reset":
            lost = tuple(b for b in self.before["cached_blocks"] if b not in event["cached_blocks"])
            moment.deeds.append(Deed("reset" if event["done"] else "no reset", blocks=lost))
            moment.mark(lost, "evict")
        else:
            moment.deeds.append(Deed("rollback", event["error"]))

    # -- the state after it --------------------------------------------------------------------------------------------

    def _finish(self, event: Event, moment: _Moment, label: str) -> None:
        held_before = Counter(b for s in self.before["sequences"] for b in s["block_table"])
        tables = [self._table(s) for s in event["sequences"]]
        holders: dict[int, list[str]] = {}
        filled: dict[int, int] = {}
        for table in tables:
            for i, block in enumerate(table.blocks):
                holders.setdefault(block, []).append(table.name)
                tokens = min(self.size, max(0, table.num_computed - i * self.size))
                filled[block] = max(filled.get(block, 0), tokens)
        published = set(event["cached_blocks"])
        newly = published - set(self.before["cached_blocks"]) | {
            deed_block
            for deed in moment.deeds
            if deed.kind == "write"
            for deed_block in deed.blocks
            if deed_block in published
        }
        if newly:
            moment.deeds.append(Deed("publish", blocks=tuple(sorted(newly))))
        freed = tuple(b for b in held_before if b not in holders and "swap out" not in moment.marks.get(b, ()))
        freed += tuple(b for b, marks in moment.marks.items() if b not in holders and b not in held_before and marks)
        moment.mark(tuple(b for b in freed if "evict" not in moment.marks.get(b, ())), "free")
        blocks, spans = [], []
        for block in range(1, self.memory.num_cells + 1):
            names = tuple(holders.get(block, ()))
            is_published = block in published
            full = self.size if is_published and not names else filled.get(block, 0)
            writer = self.writer.get(block, "")
            marks = _ranked(moment.marks.get(block, []), held=bool(names))
            blocks.append(Block(block, event["ref_counts"][block - 1], names, full, is_published, writer, marks))
            start = (block - 1) * self.size
            if names:
                owners = self._owners(names)
                if full:
                    spans.append(Span(start, full, "used", owners))
                if full < self.size:
                    spans.append(Span(start + full, self.size - full, "empty", owners))
            elif is_published:
                spans.append(Span(start, self.size, "cached", (writer,) if writer else ()))
        held = len(holders)
        counters = Counters(
            allocated=held * self.size,
            live=sum(filled.values()),
            shared=(sum(len(table.blocks) for table in tables) - held) * self.size,
            copied=moment.copied,
            read=moment.read,
            total_copied=self.total_copied,
        )
        self.frames.append(
            Frame(
                label=label,
                step=event["step"],
                memory=self.memory,
                deeds=tuple(sorted(moment.deeds, key=lambda deed: ORDER.index(deed.kind))),
                spans=tuple(spans),
                tables=tuple(tables),
                counters=counters,
                blocks=tuple(blocks),
                free_queue=tuple(event["free_blocks"]),
                host={block: table.name for table in tables for block in table.host_blocks},
                waiting=tuple(table.name for table in tables if table.status != "running"),
            )
        )
        self.before = event

    def _table(self, sequence: Event) -> Table:
        return Table(
            self.name(_key(sequence)),
            sequence["request_id"],
            sequence["status"],
            len(sequence["token_ids"]),
            sequence["num_computed_tokens"],
            tuple(sequence["block_table"]),
            tuple(sequence["host_blocks"]),
        )

    def _owners(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The names of all holders; when several branches of one request share, its letter once."""
        if len(names) == 1:
            return names
        return tuple(dict.fromkeys(self.memory.requests[name] for name in names))


def _key(item: Event) -> Key:
    return (item["request_id"], item["index"])


def _ranked(marks: list[str], held: bool) -> tuple[str, ...]:
    """The most telling mark first: of a block that was written and then given up, that it is free."""
    order = ("copy", "hit", "swap in", "evict", "write", "swap out", "free")
    if not held:
        order = ("free", "swap out", "evict", "copy", "hit", "swap in", "write")
    return tuple(mark for mark in order if mark in marks)
