"""Answers to lesson 15's service: right ones, and wrong ones. Those that differ in a line are planted by the exercise."""

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
        if engine.has_unfinished_requests():  # or whoever came was refused
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
    return _drain(engine, arrivals)


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
