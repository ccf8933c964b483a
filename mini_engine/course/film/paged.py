"""Frames of the paged engine: each step's events against the state before it tell what was hit, copied and evicted."""

from __future__ import annotations

from mini_engine.course.film.frames import Deed, Frame, Memory, short_names
from mini_engine.course.film.paged_state import Event, Key, Moment, frame_after, key_of


def frames(events: list[Event]) -> list[Frame]:
    """See `frames.frames`."""
    return _Reader(events).frames


class _Reader:
    def __init__(self, events: list[Event]) -> None:
        head = events[0]
        self.size: int = head["block_size"]
        num_blocks: int = head["num_blocks"]
        used = [block for event in events for s in event.get("sequences", ()) for block in s["block_table"]]
        used += [block for event in events for table in event.get("chunk_tables", ()) for block in table]
        self.memory = Memory(
            "paged",
            num_blocks * self.size,
            self.size,
            head["num_swap_blocks"],
            head["kv_bytes_per_token"],
            num_used=max(used, default=0),
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
        moment = Moment()
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
                moment = Moment(arrivals)
            if kind == "step":
                self._step(event, moment)
                self._finish(event, moment, f"step {event['step']}")
                moment, last = Moment(), None
            else:
                self._between(event, moment, last or self.before)
                last = event
        if last is not None:
            self._finish(last, moment, f"after step {last['step'] - 1}" if last["step"] else "before step 0")

    def name(self, key: Key) -> str:
        letter = self.letters.get(key[0], key[0][:2])
        name = f"{letter}{key[1]}" if key[0] in self.branched else letter
        self.memory.requests.setdefault(name, letter)
        return name

    # -- what happened -------------------------------------------------------------------------------------------------

    def _step(self, event: Event, moment: Moment) -> None:
        tables_before = {key_of(s): s["block_table"] for s in self.before["sequences"]}
        cached_before = set(self.before["cached_blocks"])
        self._swaps_and_copies(event, tables_before, cached_before, moment)
        op_targets = {op["dst"] for op in event["cache_ops"] if op["kind"] != "swap_out"}
        taken: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = []
        for chunk, table in zip(event["chunks"], event["chunk_tables"]):
            key, start, end = key_of(chunk), chunk["start"], chunk["start"] + chunk["num_tokens"]
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
        self, event: Event, tables_before: dict[Key, list[int]], cached: set[int], moment: Moment
    ) -> None:
        preempted = [(key[0], key[1]) for key in event["preempted"]]
        outs = {op["src"]: op["dst"] for op in event["cache_ops"] if op["kind"] == "swap_out"}
        ins = {op["dst"]: op["src"] for op in event["cache_ops"] if op["kind"] == "swap_in"}
        status = {key_of(s): s["status"] for s in event["sequences"]}
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
                moment.deeds.append(Deed("swap in", self.name(key_of(chunk)), tuple(ins[b] for b in moved), moved))
                moment.mark(moved, "swap in")
                for block in moved:
                    self.writer[block] = self.name(key_of(chunk))
        holders: dict[int, list[str]] = {}  # as the copies change them, one after another
        for key, table in tables_before.items():
            for block in table if key not in preempted else ():
                holders.setdefault(block, []).append(self.name(key))
        targets = {b: self.name(key_of(c)) for c, table in zip(event["chunks"], event["chunk_tables"]) for b in table}
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

    def _departures(self, event: Event, moment: Moment) -> None:
        """Branches that the step forked off, what became findable, and who ended."""
        alive = {key_of(s): s for s in event["sequences"]}
        known = {key_of(s) for s in self.before["sequences"]}
        ran = [key_of(chunk) for chunk in event["chunks"]]
        for parent in ran:
            born = [key for key in alive if key[0] == parent[0] and key not in known and key not in ran and key[1]]
            if born and parent in alive:
                shared = tuple(b for b in alive[born[0]]["block_table"])
                moment.deeds.append(Deed("fork", self.name(parent), shared, others=tuple(map(self.name, born))))
                moment.mark(shared, "share")
                known |= set(born)
        ended = [key for key in dict.fromkeys([*ran, *(tuple(k) for k in event["finished"])]) if key not in alive]
        tables = {key_of(chunk): table for chunk, table in zip(event["chunks"], event["chunk_tables"])}
        for key in ended:
            moment.deeds.append(Deed("finish", self.name(key), tuple(tables.get(key, ()))))

    def _between(self, event: Event, moment: Moment, before: Event) -> None:
        kind = event["kind"]
        if kind == "fork":
            key, new = (event["request_id"], event["index"]), (event["request_id"], event["new_index"])
            shared = tuple(block for s in event["sequences"] if key_of(s) == new for block in s["block_table"])
            others: tuple[str, ...] = (self.name(new),)
            if moment.deeds and moment.deeds[-1][:3] == ("fork", self.name(key), shared):
                others = moment.deeds.pop().others + others
            moment.deeds.append(Deed("fork", self.name(key), shared, others=others))
            moment.mark(shared, "share")
        elif kind == "abort":
            gone = [s for s in before["sequences"] if s["request_id"] == event["request_id"]]
            gone = [s for s in gone if event["index"] in (None, s["index"])]
            names = tuple(self.name(key_of(s)) for s in gone) or (self.letters.get(event["request_id"], "?"),)
            moment.deeds.append(Deed("abort", others=names))
        elif kind == "reset":
            lost = tuple(b for b in before["cached_blocks"] if b not in event["cached_blocks"])
            moment.deeds.append(Deed("reset" if event["done"] else "no reset", blocks=lost))
            moment.mark(lost, "evict")
        else:
            moment.deeds.append(Deed("rollback", event["error"]))

    def _finish(self, event: Event, moment: Moment, label: str) -> None:
        self.total_copied += moment.copied
        self.frames.append(frame_after(event, self.before, moment, label, self))
        self.before = event
