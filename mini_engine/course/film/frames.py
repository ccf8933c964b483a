"""`frames`: a recorded film as a list of `Frame`s, one for each moment worth a picture. No drawing here, only bookkeeping.

A frame is a step, or all that was done to the cache between two steps (fork, abort, reset, a step that failed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mini_engine.course.film.counters import Counters


class Span(NamedTuple):
    """Slots in a row that are in the same state. state: used, empty, reserved, internal, external, or cached."""

    start: int
    size: int
    state: str
    owners: tuple[str, ...] = ()  # names of the sequences, as in `Table.name`


class Block(NamedTuple):
    """One physical block. `refs` is the pool's own count; `holders` are the sequences whose table names the block."""

    block_id: int
    refs: int
    holders: tuple[str, ...]
    filled: int  # slots that hold K/V that somebody uses or could find
    is_published: bool
    writer: str  # who filled it last
    marks: tuple[
        str, ...
    ] = ()  # of this frame: "write", "copy", "hit", "evict", "swap in", "swap out", "share", "free"

    @property
    def is_miscounted(self) -> bool:
        """The pool's count and the tables disagree: somebody's bug."""
        return self.refs != len(self.holders)


class Table(NamedTuple):
    """One sequence: what it has, and where."""

    name: str
    request_id: str
    status: str
    num_tokens: int
    num_computed: int
    blocks: tuple[int, ...]
    host_blocks: tuple[int, ...] = ()


class Deed(NamedTuple):
    """One thing that happened. `words` tells it; `number` counts tokens or slots."""

    kind: str
    name: str = ""
    blocks: tuple[int, ...] = ()
    to: tuple[int, ...] = ()
    others: tuple[str, ...] = ()
    number: int = 0
    start: int = 0


@dataclass(frozen=True)
class Memory:
    """What is filmed: `num_slots` token slots, drawn `block_size` to a cell."""

    title: str
    num_slots: int
    block_size: int
    num_host_blocks: int = 0
    bytes_per_token: int | None = None
    is_paged: bool = True
    requests: dict[str, str] = field(default_factory=dict)  # the name of each sequence -> the letter of its request
    num_used: int = 0  # the highest block that is ever used

    @property
    def num_drawn(self) -> int:
        """Cells in the picture: of a large memory only as many as are ever used."""
        return (
            self.num_cells
            if self.num_cells <= 256 or not self.is_paged
            else min(self.num_cells, max(64, self.num_used))
        )

    @property
    def num_cells(self) -> int:
        """Cells of the picture: blocks, the last perhaps partly."""
        return -(-self.num_slots // self.block_size)


@dataclass(frozen=True)
class Frame:
    """One moment: what happened, and the memory after it."""

    label: str
    step: int
    memory: Memory
    deeds: tuple[Deed, ...]
    spans: tuple[Span, ...]
    tables: tuple[Table, ...]
    counters: Counters
    blocks: tuple[Block, ...] = ()
    free_queue: tuple[int, ...] = ()
    host: dict[int, str] = field(default_factory=dict)

    def deeds_of(self, kind: str) -> list[Deed]:
        """What was done of one kind, in order."""
        return [deed for deed in self.deeds if deed.kind == kind]


def events_of(source: Any) -> list[dict[str, Any]]:
    """The events of an engine, of anything with a `film`, or of a list of events. ValueError when nothing was recorded."""
    events = source if isinstance(source, list) else getattr(source, "film", None)
    if events is None:
        engine = getattr(source, "engine", None)  # an LLM
        events = getattr(engine, "film", None)
    if not isinstance(events, list):
        raise TypeError(f"a film is drawn from an engine or its events, not from {type(source).__name__}")
    if not events:
        raise ValueError("nothing was recorded: make the engine with record=True")
    if events[0].get("kind") not in ("pool", "memory"):
        raise ValueError('the first event must be of kind "pool" or "memory": give the film whole')
    return events


def frames(source: Any) -> list[Frame]:
    """Every frame of an engine (made with record=True), or of recorded events. ValueError when there is none yet."""
    from mini_engine.course.film import contiguous, paged

    events = events_of(source)
    kind = paged if events[0]["kind"] == "pool" else contiguous
    found = kind.frames(events)
    if not found:
        raise ValueError("the film has no step yet: run the engine first")
    return found


def short_names(request_ids: Sequence[str]) -> dict[str, str]:
    """A short name for each request, in order of arrival: an id of one character is its own, others get A, B, C ... AA."""
    names: dict[str, str] = {}
    taken = {request_id.upper() for request_id in request_ids if len(request_id) == 1}
    own = len(taken) == sum(len(request_id) == 1 for request_id in request_ids)  # "a" and "A" may both be there
    number = 0
    for request_id in request_ids:
        if request_id in names:
            continue
        if own and len(request_id) == 1 and request_id.isalnum():
            names[request_id] = request_id.upper()
            continue
        while (name := _letters(number)) in taken:
            number += 1
        number += 1
        names[request_id] = name
    return names


def _letters(number: int) -> str:
    """0, 1, 2 ... as A, B, ... Z, AA, AB ..."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("A") + rest) + text
    return text
