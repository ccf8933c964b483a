"""Frames of the old allocators: runs of slots, what is reserved in them, and the holes between them."""

from __future__ import annotations

from typing import Any

from mini_engine.course.film.counters import Counters
from mini_engine.course.film.frames import Deed, Frame, Memory, Span, Table, short_names

Event = dict[str, Any]


def frames(events: list[Event]) -> list[Frame]:
    """See `frames.frames`."""
    head = events[0]
    letters = short_names([event["request_id"] for event in events if event["kind"] == "add"])
    memory = Memory(head["title"], head["capacity"], head["cell"], is_paged=False)
    memory.requests.update({letter: letter for letter in letters.values()})
    found: list[Frame] = []
    deeds: list[Deed] = []
    for event in events[1:]:
        if event["kind"] == "add":
            deeds.append(Deed("arrive", letters[event["request_id"]], number=event["prompt"]))
            continue
        for request_id, (start, size) in event["started"].items():
            deeds.append(Deed("reserve", letters[request_id], number=size, start=start))
        if event["refused"]:
            refused = event["refused"]
            deeds.append(Deed("refuse", letters[refused["request_id"]], blocks=(refused["free"], refused["largest"]), number=refused["needed"]))  # fmt: skip
        deeds += [Deed("write", letters[request_id], number=n) for request_id, n in event["wrote"].items()]
        deeds += [Deed("finish", letters[request_id]) for request_id in event["finished"]]
        found.append(_frame(event, memory, letters, deeds))
        deeds = []
    return found


def _frame(event: Event, memory: Memory, letters: dict[str, str], deeds: list[Deed]) -> Frame:
    spans, used = [], dict.fromkeys(event["wrote"], 0)
    totals = dict.fromkeys(("used", "reserved", "internal", "free"), 0)
    too_small = event["refused"]["needed"] if event["refused"] else 0
    for start, size, state, request_id in event["map"]:
        totals[state] += size
        if request_id is None and size < too_small:
            spans.append(Span(start, size, "external", ()))
        if request_id is not None:
            spans.append(Span(start, size, state, (letters[request_id],)))
            if state == "used":
                used[request_id] = size
    alive = [request_id for request_id in used if request_id not in event["finished"]]
    return Frame(
        label=f"step {event['step']}",
        step=event["step"],
        memory=memory,
        deeds=tuple(deeds),
        spans=tuple(spans),
        tables=tuple(
            [Table(letters[r], r, "running", used[r] + 1, used[r], ()) for r in alive]
            + [Table(letters[r], r, "waiting", 0, 0, ()) for r in event["waiting"]]
        ),
        counters=Counters(
            allocated=memory.num_slots - totals["free"],
            live=totals["used"],
            shared=0,
            copied=0,
            read=event["read"],
            total_copied=0,
        ),
    )
