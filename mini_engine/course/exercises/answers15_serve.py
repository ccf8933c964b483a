"""Functions for lesson 15: a loop that serves requests as they come, in several right ways, and the wrong ones that people write."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from mini_engine import LLMEngine
from mini_engine.course.own_engine import Arrival, Clock

Served = tuple[dict[str, Any], list[str]]


def serve(engine: LLMEngine, arrivals: Sequence[Arrival], clock: Clock) -> Served:
    """Queue whoever has come, step while anybody is there, and wait for the next one while nobody is."""
    outputs: dict[str, Any] = {}
    refused: list[str] = []
    coming = deque(arrivals)
    while coming or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests():
            clock.wait_until(coming[0].time)
        while coming and coming[0].time <= clock():
            _, name, prompt, params = coming.popleft()
            try:
                engine.add_request(name, prompt, params)
            except ValueError:
                refused.append(name)
        for output in engine.step():
            outputs[output.request_id] = output
    return outputs, refused


def by_number(engine: LLMEngine, arrivals: Sequence[Arrival], clock: Clock) -> Served:
    """Right: counts how many have come, and steps only if somebody is there."""
    outputs: dict[str, Any] = {}
    refused: list[str] = []
    number = 0
    while True:
        now = clock()
        while number < len(arrivals) and arrivals[number].time <= now:
            arrival, number = arrivals[number], number + 1
            try:
                engine.add_request(arrival.request_id, arrival.prompt, arrival.params)
            except ValueError:
                refused.append(arrival.request_id)
        if engine.has_unfinished_requests():
            outputs.update((output.request_id, output) for output in engine.step())
        elif number < len(arrivals):
            clock.wait_until(arrivals[number].time)
        else:
            return outputs, refused


def all_at_once(engine: LLMEngine, arrivals: Sequence[Arrival], clock: Clock) -> Served:
    outputs, refused = _drain(engine, arrivals)
    return outputs, refused


def one_after_the_other(engine: LLMEngine, arrivals: Sequence[Arrival], clock: Clock) -> Served:
    outputs: dict[str, Any] = {}
    refused: list[str] = []
    for arrival in arrivals:
        clock.wait_until(arrival.time)
        told, no = _drain(engine, [arrival])
        outputs |= told
        refused += no
    return outputs, refused


def when_all_are_done(engine: LLMEngine, arrivals: Sequence[Arrival], clock: Clock) -> Served:
    """Looks at the door only when the last batch has left."""
    outputs: dict[str, Any] = {}
    refused: list[str] = []
    coming = deque(arrivals)
    while coming:
        clock.wait_until(coming[0].time)
        batch = []
        while coming and coming[0].time <= clock():
            batch.append(coming.popleft())
        told, no = _drain(engine, batch)
        outputs |= told
        refused += no
    return outputs, refused


def one_a_step(engine: LLMEngine, arrivals: Sequence[Arrival], clock: Clock) -> Served:
    """Lets in one request before each step."""
    outputs: dict[str, Any] = {}
    refused: list[str] = []
    coming = deque(arrivals)
    while coming or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests():
            clock.wait_until(coming[0].time)
        if coming and coming[0].time <= clock():
            _drain_into(engine, coming.popleft(), refused)
        outputs.update((output.request_id, output) for output in engine.step())
    return outputs, refused


def strictly_before(engine: LLMEngine, arrivals: Sequence[Arrival], clock: Clock) -> Served:
    """Waits for one and lets it in, then looks for those who came before this moment."""
    outputs: dict[str, Any] = {}
    refused: list[str] = []
    coming = deque(arrivals)
    while coming or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests():
            clock.wait_until(coming[0].time)
            _drain_into(engine, coming.popleft(), refused)
        while coming and coming[0].time < clock():
            _drain_into(engine, coming.popleft(), refused)
        outputs.update((output.request_id, output) for output in engine.step())
    return outputs, refused


def until_idle(engine: LLMEngine, arrivals: Sequence[Arrival], clock: Clock) -> Served:
    """Ends when the engine has nothing to do, though more are coming."""
    outputs: dict[str, Any] = {}
    refused: list[str] = []
    coming = deque(arrivals)
    while coming and coming[0].time <= clock():
        _drain_into(engine, coming.popleft(), refused)
    while engine.has_unfinished_requests():
        outputs.update((output.request_id, output) for output in engine.step())
        while coming and coming[0].time <= clock():
            _drain_into(engine, coming.popleft(), refused)
    return outputs, refused


def watches_the_clock(engine: LLMEngine, arrivals: Sequence[Arrival], clock: Clock) -> Served:
    """Asks the clock again and again in place of waiting."""
    outputs: dict[str, Any] = {}
    refused: list[str] = []
    coming = deque(arrivals)
    while coming or engine.has_unfinished_requests():
        while coming and coming[0].time <= clock():
            _drain_into(engine, coming.popleft(), refused)
        if engine.has_unfinished_requests():
            outputs.update((output.request_id, output) for output in engine.step())
    return outputs, refused


def steps_while_idle(engine: LLMEngine, arrivals: Sequence[Arrival], clock: Clock) -> Served:
    """Waits in slices of a tenth of a second, and steps in each of them."""
    outputs: dict[str, Any] = {}
    refused: list[str] = []
    coming = deque(arrivals)
    while coming or engine.has_unfinished_requests():
        while coming and coming[0].time <= clock():
            _drain_into(engine, coming.popleft(), refused)
        if not engine.has_unfinished_requests():
            clock.wait_until(clock() + 0.1)
        outputs.update((output.request_id, output) for output in engine.step())
    return outputs, refused


def first_outputs(engine: LLMEngine, arrivals: Sequence[Arrival], clock: Clock) -> Served:
    """Keeps what a request said first."""
    outputs: dict[str, Any] = {}
    refused: list[str] = []
    coming = deque(arrivals)
    while coming or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests():
            clock.wait_until(coming[0].time)
        while coming and coming[0].time <= clock():
            _drain_into(engine, coming.popleft(), refused)
        for output in engine.step():
            outputs.setdefault(output.request_id, output)
    return outputs, refused


def refuses_nobody(engine: LLMEngine, arrivals: Sequence[Arrival], clock: Clock) -> Served:
    """A request that could never run ends the service for all."""
    outputs: dict[str, Any] = {}
    coming = deque(arrivals)
    while coming or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests():
            clock.wait_until(coming[0].time)
        while coming and coming[0].time <= clock():
            engine.add_request(*coming.popleft()[1:])
        outputs.update((output.request_id, output) for output in engine.step())
    return outputs, []


def refuses_on_any_error(engine: LLMEngine, arrivals: Sequence[Arrival], clock: Clock) -> Served:
    outputs: dict[str, Any] = {}
    refused: list[str] = []
    coming = deque(arrivals)
    while coming or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests():
            clock.wait_until(coming[0].time)
        while coming and coming[0].time <= clock():
            arrival = coming.popleft()
            try:
                engine.add_request(*arrival[1:])
            except Exception:
                refused.append(arrival.request_id)
        outputs.update((output.request_id, output) for output in engine.step())
    return outputs, refused


def forgets_the_refused(engine: LLMEngine, arrivals: Sequence[Arrival], clock: Clock) -> Served:
    outputs, _ = serve(engine, arrivals, clock)
    return outputs, []


def _drain(engine: LLMEngine, arrivals: Sequence[Arrival]) -> Served:
    outputs: dict[str, Any] = {}
    refused: list[str] = []
    for arrival in arrivals:
        _drain_into(engine, arrival, refused)
    while engine.has_unfinished_requests():
        outputs.update((output.request_id, output) for output in engine.step())
    return outputs, refused


def _drain_into(engine: LLMEngine, arrival: Arrival, refused: list[str]) -> None:
    try:
        engine.add_request(arrival.request_id, arrival.prompt, arrival.params)
    except ValueError:
        refused.append(arrival.request_id)
