"""`timeline`: what every request did in every step, from whatever ran: a simulation, an engine, a list of plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mini_engine.arguments import listed, real
from mini_engine.cache import CacheOp
from mini_engine.course.film.frames import events_of
from mini_engine.scheduling import Chunk
from mini_engine.simulator.result import SimulationResult

LETTERS = {
    "": " ",  # not there yet, or done
    "waiting": ".",  # has not started
    "chunk": "p",  # part of a prompt
    "prefill": "P",  # a prompt to its end: the first token comes out
    "again": "R",  # computed before, and lost by a preemption
    "decode": "d",
    "idle": "-",  # has its blocks and computes nothing
    "preempted": "x",  # lost its blocks, waits
    "swapped": "s",  # waits with its blocks in host memory
    "padding": "#",  # ended, and its row is computed all the same
}
WORDS = {"chunk": "part of a prompt", "prefill": "prompt to its end", "again": "computed again"}


class _Step(NamedTuple):
    """One step of any run. `swapped`: None where only the cache operations can tell."""

    begin: float
    end: float
    chunks: Sequence[Chunk]
    preempted: Sequence[tuple[str, int]]
    cache_ops: Sequence[CacheOp] = ()
    num_computed: int = 0
    """Tokens that the machine computed, padding included."""


@dataclass
class Row:
    """One sequence. `arrival` is on the axis of `Timeline.begins`; `states` and `tokens` have one entry for each step."""

    name: str
    arrival: float
    num_prompt_tokens: int
    states: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    @property
    def letters(self) -> str:
        """The states of a row as letters, one a step."""
        return "".join(LETTERS[state] for state in self.states)


@dataclass
class Timeline:
    """Rows in order of arrival, by the name of the request ("b.1" is branch 1). Step i lasts from begins[i] to ends[i]."""

    rows: dict[str, Row]
    begins: list[float]
    ends: list[float]
    is_timed: bool = False
    """Whether begins and ends are seconds; else they are numbers of steps."""

    @property
    def num_steps(self) -> int:
        """Steps from first to last."""
        return len(self.begins)

    def count(self, *states: str) -> int:
        """Cells in these states, over all rows. KeyError for a state that there is not."""
        wanted = {state for state in states if LETTERS[state]}
        return sum(row.states.count(state) for row in self.rows.values() for state in wanted)

    def text(self, width: int = 79) -> str:
        """Rows of letters, folded at `width`, and what the letters mean."""
        label = max((len(name) for name in self.rows), default=0)
        room = max(10, (width - label - 2) // 10 * 10)
        lines: list[str] = []
        for at in range(0, max(1, self.num_steps), room):
            ruler = "".join(f"{step:<10}" for step in range(at, min(at + room, self.num_steps), 10))
            lines.append(f"{'step':<{label}}  {ruler}".rstrip() if label >= 4 else f"{'':<{label}}  {ruler}".rstrip())
            lines += [f"{name:<{label}}  {row.letters[at : at + room]}".rstrip() for name, row in self.rows.items()]
        met = [state for state in LETTERS if state and self.count(state)]
        return "\n".join([*lines, *_folded([f"{LETTERS[state]} {WORDS.get(state, state)}" for state in met], width)])

    def __str__(self) -> str:
        return self.text()


def timeline(
    source: Any,
    *,
    prompts: Mapping[str, int] | None = None,
    arrivals: Mapping[str, float] | None = None,
    seconds: Sequence[float] | None = None,
    rectangle: bool = False,
) -> Timeline:
    """The timeline of a SimulationResult (record=True), of an engine, LLM or film (record=True), or of StepPlans.

    prompts:   of plans, the prompt length of each request; without it, only the first chunk of a request is its prompt
    arrivals:  of plans, the step before which each request came; 0 where nothing is said
    seconds:   how long each step of a film or of plans took; without it, a step is one unit long
    rectangle: a row that has ended is padding until its whole batch has. Simulations say so themselves.
    ValueError for a run that was not recorded.
    """
    if isinstance(source, SimulationResult):
        return _of_simulation(source)
    if isinstance(source, Iterable) and (plans := list(source)) and hasattr(plans[0], "chunks"):
        steps = _timed([(plan.chunks, plan.preempted, plan.cache_ops) for plan in plans], seconds)
        return _rows(steps, prompts or {}, _times(arrivals or {}, steps), seconds is not None, rectangle)
    events = events_of(source)
    taken = [event for event in events if event["kind"] == "step"]
    steps = _timed([_of_event(event) for event in taken], seconds)
    added = {event["request_id"]: event for event in events if event["kind"] == "add"}
    came = {request_id: event["step"] for request_id, event in added.items()}
    lengths = {request_id: len(event["prompt_token_ids"]) for request_id, event in added.items()}
    return _rows(steps, lengths, _times(came, steps), seconds is not None, rectangle)


def _of_simulation(result: SimulationResult) -> Timeline:
    if result.usage.num_steps and not result.steps:
        raise ValueError("nothing was recorded: simulate with record=True")
    steps = [_Step(s.begin, s.end, s.chunks, s.preempted, s.cache_ops, s.num_computed) for s in result.steps]
    served = sorted(result.served, key=lambda each: each.number)
    lengths = {str(each.number): each.num_prompt_tokens for each in served}
    return _rows(steps, lengths, {str(each.number): each.arrival for each in served}, True, rectangle=False)


def _of_event(event: Mapping[str, Any]) -> tuple[list[Chunk], list[tuple[str, int]], list[CacheOp]]:
    return (
        [Chunk(**chunk) for chunk in event["chunks"]],
        [(request_id, index) for request_id, index in event["preempted"]],
        [CacheOp(**op) for op in event["cache_ops"]],
    )


def _timed(found: Sequence[tuple[Any, Any, Any]], seconds: Sequence[float] | None) -> list[_Step]:
    lasts = (
        [1.0] * len(found)
        if seconds is None
        else [real("seconds", last, minimum=0) for last in listed("seconds", seconds)]
    )
    if len(lasts) != len(found):
        raise ValueError(f"seconds has {len(lasts)} entries for {len(found)} steps")
    steps, now = [], 0.0
    for parts, last in zip(found, lasts):
        steps.append(_Step(now, now + last, *parts))
        now += last
    return steps


def _times(arrivals: Mapping[str, float], steps: Sequence[_Step]) -> dict[str, float]:
    """The moment at which the step begins before which each request came."""
    end = steps[-1].end if steps else 0.0
    return {name: steps[int(at)].begin if at < len(steps) else end for name, at in arrivals.items()}


def _rows(
    steps: Sequence[_Step], prompts: Mapping[str, int], arrivals: Mapping[str, float], timed: bool, rectangle: bool
) -> Timeline:
    chunks: dict[tuple[str, int], dict[int, Chunk]] = {(name, 0): {} for name in arrivals}
    for number, step in enumerate(steps):
        for chunk in step.chunks:
            chunks.setdefault((chunk.request_id, chunk.index), {})[number] = chunk
    batches = _batches(steps, rectangle)
    rows = []
    for key, mine in chunks.items():
        begin = steps[min(mine)].begin if mine else 0.0
        arrival = arrivals.get(key[0], 0.0) if key[1] == 0 else begin
        length = prompts.get(key[0]) or (next(iter(mine.values())).num_tokens if mine else 0)
        name = key[0] if key[1] == 0 else f"{key[0]}.{key[1]}"
        row = Row(name, arrival, length, tokens=[mine[i].num_tokens if i in mine else 0 for i in range(len(steps))])
        row.states = _states(key, mine, steps, row, batches)
        rows.append(row)
    rows.sort(key=lambda row: row.arrival)
    return Timeline({row.name: row for row in rows}, [s.begin for s in steps], [s.end for s in steps], timed)


def _states(
    key: tuple[str, int], mine: Mapping[int, Chunk], steps: Sequence[_Step], row: Row, batches: Sequence[set]
) -> list[str]:
    states, out = [], ""
    first, last = min(mine, default=len(steps)), max(mine, default=-1)
    done = 0  # tokens computed so far, by any chunk
    for number, step in enumerate(steps):
        if key in step.preempted:
            back = next((mine[i].start for i in sorted(mine) if i > number), done)
            out = "swapped" if any(op.kind == "swap_out" for op in step.cache_ops) and back >= done else "preempted"
        chunk = mine.get(number)
        if chunk is not None:
            out, end = "", chunk.start + chunk.num_tokens
            if chunk.start < done:
                states.append("again")
            elif chunk.start < row.num_prompt_tokens:
                states.append("prefill" if end >= row.num_prompt_tokens else "chunk")
            else:
                states.append("decode")
            done = max(done, end)
        elif number < first:
            states.append("waiting" if row.arrival <= step.begin else "")
        elif out:
            states.append(out)
        elif number < last:
            states.append("idle")
        else:
            states.append("padding" if key in batches[number] else "")
    return states


def _batches(steps: Sequence[_Step], rectangle: bool) -> list[set[tuple[str, int]]]:
    """For each step, the rows that are computed in it; those of a batch that has ended are gone when another one starts."""
    batch: set[tuple[str, int]] = set()
    found = []
    for step in steps:
        rows = {(chunk.request_id, chunk.index) for chunk in step.chunks}
        batch = batch | rows if batch & rows else rows
        is_padded = rectangle or step.num_computed > sum(chunk.num_tokens for chunk in step.chunks)
        found.append(set(batch) if is_padded else rows)
    return found


def _folded(parts: Sequence[str], width: int) -> list[str]:
    lines = [""]
    for part in parts:
        joined = f"{lines[-1]}   {part}" if lines[-1] else part
        if len(joined) > width:
            lines.append(part)
        else:
            lines[-1] = joined
    return [line for line in lines if line]
