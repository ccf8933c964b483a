"""What paging, iteration-level scheduling, chunking and the prefix cache each buy, on a simulated machine.

    rows = ladder()                          from a static batch in reserved memory to all four, one option at a time
    rows = ladder(order=OTHER_ORDER)         the same four in another order
    rows = alone()                           each of them alone on the base
    print(table(rows))

A row holds the capacity under the limits, and the figures at one fixed rate. No factor here multiplies with another: what a
step gains depends on the steps before it, on the limits, on the trace and on the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mini_engine.arguments import shown
from mini_engine.simulator.capacity import capacity
from mini_engine.simulator.sweep import Executor, Here, Point
from mini_engine.workload import Trace, multi_turn

BASE = {"batching": "static", "memory": "reserved", "prefix_cache": False}
STEPS: dict[str, tuple[str, Any]] = {
    "paging": ("memory", "paged"),
    "iteration-level": ("batching", "iteration"),
    "chunking": ("batching", "chunked"),  # iteration-level too: prompts cannot come in pieces while nobody may join
    "prefix cache": ("prefix_cache", True),  # does nothing before paging: a reserved region is nobody else's
}
ORDER = tuple(STEPS)
OTHER_ORDER = ("iteration-level", "chunking", "prefix cache", "paging")


@dataclass(frozen=True)
class Rung:
    """One way of serving: `options` of `simulate` that differ from those of the rung before in `changed` only."""

    name: str
    options: dict[str, Any]
    changed: tuple[str, Any] | None = None


def chats() -> Trace:
    """300 short answers in 60 chats on one system prompt: small, with prefixes to share."""
    return multi_turn(60, 5, system_tokens=500, user_tokens=100, output_tokens=40)


@dataclass(frozen=True, kw_only=True)
class Service:
    """What stays the same: who asks what, on which model and machine, and what is promised to them (seconds)."""

    trace: str | Trace = field(default_factory=chats)
    requests: int | None = None
    model: str = "llama-3-8b"
    gpu: str = "a100-40gb-sxm"
    ttft: float = 0.5
    tpot: float = 0.05
    meeting: float = 0.9
    """Share of the requests that the promise is kept to, at the capacity."""
    rate: float = 8.0
    """Requests per second of the figures at a fixed rate."""
    within: float = 0.1
    """How exact the capacity is, relatively."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further options of `simulate`, for every rung."""


@dataclass(frozen=True)
class Row:
    """A rung's capacity, requests per second, and what it does at the fixed rate. Latencies in seconds."""

    name: str
    changed: str
    capacity: float
    met: float
    """Share of the requests that meet the limits at the fixed rate."""
    output_tokens_per_s: float | None
    ttft_p50: float | None
    ttft_p90: float | None
    tpot_p90: float | None
    itl_p99: float | None
    padding: float | None
    """Share of the computed tokens that were computed for nobody."""
    slots_used: float | None
    """Of the K/V slots held."""
    hits: float | None
    """Share of the prompt tokens found in the cache."""
    preemptions: int
    rejected: int
    note: str


def rungs(order: Sequence[str] = ORDER) -> list[Rung]:
    """The base, and one rung for each step on top of all before it. ValueError for an order that makes no sense."""
    unknown = [name for name in order if name not in STEPS]
    if unknown or len(set(order)) < len(order):
        raise ValueError(f"order={shown(order)} must name some of {', '.join(STEPS)}, each once")
    found = [Rung("static, reserved", dict(BASE))]
    for name in order:
        option, value = STEPS[name]
        before = found[-1].options
        if (option, value, before[option]) == ("batching", "iteration", "chunked"):
            raise ValueError("order: iteration-level after chunking would take the chunks away again: put it before")
        found.append(Rung(f"+ {name}", before | {option: value}, (option, value)))
    return found


def rungs_alone() -> list[Rung]:
    """The base, and each step alone on it."""
    return [
        *rungs(()),
        *(Rung(f"{name} alone", each.options, each.changed) for name in STEPS for each in rungs((name,))[1:]),
    ]


def ladder(order: Sequence[str] = ORDER, executor: Executor | None = None, **service: Any) -> list[Row]:
    """The base and every rung above it. `service` are the fields of `Service`."""
    return measure(rungs(order), Service(**service), executor)


def alone(executor: Executor | None = None, **service: Any) -> list[Row]:
    """The base and each step alone on it."""
    return measure(rungs_alone(), Service(**service), executor)


def measure(listed: Sequence[Rung], service: Service, executor: Executor | None = None) -> list[Row]:
    """A row for every rung, in their order; rungs with the same options are simulated once."""
    executor = Here() if executor is None else executor
    running: list[tuple[dict[str, Any], Any]] = []
    for rung in listed:
        if all(options != rung.options for options, _ in running):
            running.append((rung.options, executor.submit(_figures, rung.options, service)))
    done = [(options, future.result()) for options, future in running]
    return [
        Row(rung.name, "" if rung.changed is None else "{}={!r}".format(*rung.changed), **figures)
        for rung in listed
        for options, figures in done
        if options == rung.options
    ]


def _figures(rung: dict[str, Any], service: Service) -> dict[str, Any]:
    options = service.options | {"model": service.model, "gpu": service.gpu} | rung
    limits = {"ttft": service.ttft, "tpot": service.tpot}
    most = capacity(
        service.trace, requests=service.requests, meeting=service.meeting, within=service.within, **limits, **options
    )
    s = Point(trace=service.trace, requests=service.requests, rate=service.rate, options=options, limits=limits).run()
    assert s.goodput is not None  # limits were given
    return {
        "capacity": most.rate,
        "met": s.goodput.share,
        "output_tokens_per_s": s.output_tokens_per_s,
        "ttft_p50": s.ttft and s.ttft.p50,
        "ttft_p90": s.ttft and s.ttft.p90,
        "tpot_p90": s.tpot and s.tpot.p90,
        "itl_p99": s.itl and s.itl.p99,
        "padding": s.padding_share,
        "slots_used": s.slot_utilization,
        "hits": s.hit_rate,
        "preemptions": s.num_preemptions,
        "rejected": s.num_rejected,
        "note": most.note,
    }


def table(rows: Sequence[Row]) -> str:
    """Rows for reading, 79 columns wide; the note of a row stands below. Latencies are 90th percentiles, of the ITL the 99th."""
    lines = [f"{'':21}{'req/s':>7} |{'met':>5}{'tok/s':>7}{'TTFT':>8}{'TPOT':>8}{'ITL':>8}{'pad':>6}{'slots':>7}"]
    for row in rows:
        line = (
            f"{row.name:21}{_rate(row.capacity):>7} |{_share(row.met):>5}{_number(row.output_tokens_per_s, ',.0f'):>7}"
        )
        line += f"{_number(row.ttft_p90, '.2f'):>8}{_number(row.tpot_p90, '.3f'):>8}{_number(row.itl_p99, '.3f'):>8}"
        lines.append(line + f"{_share(row.padding):>6}{_share(row.slots_used):>7}")
    return "\n".join([*lines, *(f"{row.name}: {row.note}" for row in rows if row.note)])


def _rate(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _share(value: float | None) -> str:
    return _number(value, ".0%")
