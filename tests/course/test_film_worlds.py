"""The film of the allocators before paging: counted as they count themselves, and beside the engine's."""

from __future__ import annotations

from typing import Any

import pytest

from mini_engine.cache.contiguous import BuddyAllocator, FirstFitAllocator
from mini_engine.course.film import Arrival, frame, frames, replay
from mini_engine.course.film.words import sentences
from tests.course import film_runs as runs

ARRIVALS = [Arrival("a", 0, 40, 20), Arrival("b", 0, 70, 30), Arrival("c", 1, 20, 60), Arrival("d", 3, 90, 10), Arrival("e", 8, 100, 20)]  # fmt: skip


@pytest.mark.parametrize("reserve", ["max", "pow2", "oracle"])
@pytest.mark.parametrize("kind", [FirstFitAllocator, BuddyAllocator])
def test_old_allocators_are_counted_as_they_count_themselves(kind: Any, reserve: str) -> None:
    memory = kind(512)
    states = []
    memory_map = memory.memory_map
    memory.memory_map = lambda: (states.append((memory.holes(), memory.waste())), memory_map())[1]
    events = replay(ARRIVALS, memory, reserve=reserve, max_len=256)
    film = frames(events)
    wastes = [waste for _, waste in states]
    assert [f.counters.live for f in film] == [waste.used for waste in wastes]
    assert [f.counters.wasted for f in film] == [waste.reserved + waste.internal for waste in wastes]
    assert [f.counters.allocated for f in film] == [512 - waste.free - waste.external for waste in wastes]
    for shown, (holes, _), event in zip(film, states, [event for event in events if event["kind"] == "step"]):
        needed = (event["refused"] or {"needed": 0})["needed"]
        external = [(span.start, span.size) for span in shown.spans if span.state == "external"]
        assert external == [hole for hole in holes if hole[1] < needed]
    assert film[-1].counters.allocated == 0
    assert sum(deed.number for f in film for deed in f.deeds_of("write")) == sum(
        a.prompt + a.output - 1 for a in ARRIVALS
    )


def test_a_hole_too_small_for_the_one_that_waits_is_lost() -> None:
    arrivals = [Arrival("a", 0, 13, 3), Arrival("b", 0, 13, 12), Arrival("c", 0, 13, 3), Arrival("d", 0, 13, 12)]
    events = replay([*arrivals, Arrival("wide", 1, 20, 9)], FirstFitAllocator(78), reserve="oracle")
    still = frame(events, 4)
    assert "E has to wait: it needs 28 slots in a row; 30 are free, at most 15 in a row." in still.words
    assert "  slots 0 to 14: external\n" in still.text
    assert ">+ 30 external<" in still.svg
    assert ">external<" in still.svg, "the key"
    assert "+ 30" not in frame(events, 12).svg


def test_both_worlds_serve_the_same_arrivals_alike_when_there_is_room() -> None:
    old = frames(replay(ARRIVALS, FirstFitAllocator(4096), max_len=256))
    new = frames(replay(ARRIVALS, runs.engine(256, 16, enable_prefix_caching=False)))
    assert [f.counters.read for f in old] == [f.counters.read for f in new]
    assert [f.counters.live for f in old] == [f.counters.live for f in new]
    assert sum(f.counters.wasted for f in new) < sum(f.counters.wasted for f in old) / 10


def test_a_request_that_waits_says_what_it_lacks() -> None:
    film = frames(replay([Arrival("a", 0, 3, 2), Arrival("b", 0, 5, 9), Arrival("c", 0, 4, 2), Arrival("d", 1, 7, 2)], FirstFitAllocator(21), reserve="oracle"))  # fmt: skip
    told = [words for f in film for words in sentences(f) if "wait" in words]
    assert told[:1] == ["C has to wait: it needs 5 slots in a row; 4 are free, at most 4 in a row."]
    with pytest.raises(ValueError, match="'big' can never run"):
        replay([Arrival("big", 0, 30, 2)], FirstFitAllocator(24), reserve="oracle")
