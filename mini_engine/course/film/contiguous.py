"""The old allocators on film: `replay` serves the same arrivals with them or with the paged engine, step by step."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from mini_engine.cache.contiguous import RESERVATIONS, ContiguousAllocator, NoRunError
from mini_engine.course.film.counters import Counters
from mini_engine.course.film.frames import Deed, Frame, Memory, Span, Table, short_names

Event = dict[str, Any]


class Arrival(NamedTuple):
    """A request that comes before step `step` with `prompt` tokens and will be given `output` more."""

    request_id: str
    step: int
    prompt: int
    output: int


def replay(arrivals: Iterable[Arrival], memory: Any, *, reserve: str = "max", max_len: int = 0, cell: int = 16) -> Any:
    """The film of serving `arrivals`, first come, first served: a prompt in one step, then one token a step.

    memory: a ContiguousAllocator, whose runs are made as long as RESERVATIONS[reserve] says (max_len: the longest a
    request may get), drawn `cell` slots to a cell; or an LLMEngine made with record=True. As in the engine, the last
    token of a request is never stored. ValueError for a request that cannot fit into an empty memory.
    """
    todo = sorted(arrivals, key=lambda arrival: arrival.step)
    if not isinstance(memory, ContiguousAllocator):
        return _replay_engine(todo, memory)
    longest = max_len or memory.capacity
    title = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(memory).__name__.removesuffix("Allocator")).lower()
    events: list[Event] = [{"kind": "memory", "step": 0, "title": f"{title}, reserving {reserve}", "capacity": memory.capacity, "cell": cell}]  # fmt: skip
    waiting: list[Arrival] = []
    left: dict[str, int] = {}  # tokens still to be sampled
    step = 0
    while todo or waiting or left:
        while todo and todo[0].step <= step:
            arrival = todo.pop(0)
            events.append({"kind": "add", "step": step, "request_id": arrival.request_id, "prompt": arrival.prompt})
            waiting.append(arrival)
        wrote: dict[str, int] = {}
        for request_id in left:
            memory.append(request_id)
            wrote[request_id] = 1
        refused = None
        started: dict[str, list[int]] = {}
        while waiting and refused is None:
            first = waiting[0]
            stored = first.prompt + first.output - 1
            size = max(stored, RESERVATIONS[reserve](first.prompt, first.output, longest))
            try:
                start = memory.allocate(first.request_id, first.prompt, reserve=size, final=stored)
            except NoRunError as error:
                if not memory.runs:
                    raise ValueError(f"request {first.request_id!r} can never run: {error}") from error
                refused = {
                    "request_id": first.request_id,
                    "needed": error.needed,
                    "free": error.free,
                    "largest": error.largest,
                }
                break
            waiting.pop(0)
            started[first.request_id] = [start, memory.runs[first.request_id].size]
            wrote[first.request_id] = first.prompt
            left[first.request_id] = first.output
        read = sum(run.used for run in memory.runs.values())
        ended = []
        for request_id in list(left):
            left[request_id] -= 1
            if not left[request_id]:
                del left[request_id]
                memory.free(request_id)
                ended.append(request_id)
        events.append(
            {
                "kind": "step", "step": step, "started": started, "wrote": wrote, "finished": ended, "refused": refused, "read": read,
                "waiting": [arrival.request_id for arrival in waiting], "map": [list(part) for part in memory.memory_map()],
            }
        )  # fmt: skip
        step += 1
    return events


def _replay_engine(todo: list[Arrival], engine: Any) -> list[Event]:
    """The same with the paged engine: made-up prompts that share no prefix, greedy tokens."""
    from mini_engine.sampling import SamplingParams

    step = number = 0
    while todo or engine.has_unfinished_requests():
        while todo and todo[0].step <= step:
            arrival = todo.pop(0)
            number += 1
            tokens = [(number * 31 + 7 * i) % engine.backend.vocab_size for i in range(arrival.prompt)]
            params = SamplingParams(temperature=0, max_tokens=arrival.output, ignore_eos=True)
            engine.add_request(arrival.request_id, tokens, params)
        engine.step()
        step += 1
    return engine.film


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
    for start, size, state, request_id in event["map"]:
        totals[state] += size
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
