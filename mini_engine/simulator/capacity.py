"""How many requests a second a simulated machine can take before too many of them miss a limit.

    capacity("synthetic_azure_conv.csv", requests=300, ttft=2.0, tpot=0.1, batching="static").rate

The trace is stretched and squeezed in time, and the rate found by bisection. Every run ends, as its requests are finitely many:
when they come too fast, the last of them wait longest. Requests of one moment stay together however far a trace is stretched,
so that a trace of bursts may keep no promise at any rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mini_engine.arguments import number
from mini_engine.simulator.sweep import Point
from mini_engine.workload import Trace

STEP = 4.0
LOWEST, HIGHEST = STEP**-5, STEP**5  # requests per second; at the lowest rate everybody has the machine to himself
LONG_ENOUGH = 5  # times the limit on TTFT: a queue needs that long to show


@dataclass(frozen=True)
class Capacity:
    """The limits hold at `rate` requests per second and fail at `fails_at`; 0 where nothing holds, None where nothing fails."""

    rate: float
    fails_at: float | None
    num_runs: int
    note: str = ""

    def __str__(self) -> str:
        return f"{self.rate:.3g} requests/s" + (f" ({self.note})" if self.note else "")


def capacity(
    trace: str | Trace,
    *,
    requests: int | None = None,
    ttft: float | None = None,
    tpot: float | None = None,
    e2e: float | None = None,
    meeting: float = 0.9,
    within: float = 0.05,
    **options: Any,
) -> Capacity:
    """The largest rate at which a share `meeting` of all requests, those turned away included, meets every limit (seconds).

    within: how far apart, relatively, a rate that holds and one that fails may be in the end. `options` are those of
    `simulate`. ValueError without a limit, and for options that make no sense.
    """
    given = {"ttft": ttft, "tpot": tpot, "e2e": e2e}
    limits = {name: limit for name, limit in given.items() if limit is not None}
    if not limits:
        raise ValueError("a capacity needs a limit: give ttft, tpot or e2e in seconds")
    wanted = float(number("meeting", meeting, positive=True, limit=1))
    sample = Point(trace=trace, requests=requests).load()

    def share_at(rate: float) -> float:
        goodput = Point(trace=sample, rate=rate, options=options, limits=limits).run().goodput
        assert goodput is not None  # a limit was given
        return goodput.share

    found = largest_rate(share_at, wanted, float(number("within", within, positive=True, limit=1)))
    if ttft and found.rate and not found.note and len(sample) / found.rate < LONG_ENOUGH * ttft:
        seconds = f"the sample lasts {len(sample) / found.rate:.1f} s"
        return Capacity(
            found.rate, found.fails_at, found.num_runs, f"{seconds}: too short to queue up, take more requests"
        )
    return found


def largest_rate(share_at: Callable[[float], float], meeting: float, within: float) -> Capacity:
    """The largest rate at which `share_at` is at least `meeting`: from 1 up or down in fourfold steps, then by bisection.

    Where the share falls and rises again there are several such rates. This is one of them, with a failing one just above.
    """
    runs, met = 0, 0.0

    def holds(rate: float) -> bool:
        nonlocal runs, met
        runs += 1
        met = share_at(rate)
        return met >= meeting

    low = high = 1.0
    if holds(low):
        while holds(high := STEP * low):
            low = high
            if low >= HIGHEST:
                return Capacity(low, None, runs, "nothing fails: the limits are wide, or the sample is short")
    else:
        while not holds(low := high / STEP):
            high = low
            if low <= LOWEST:
                return Capacity(0.0, low, runs, f"only {met:.0%} meet the limits even at {low:.3g} requests/s")
    while high / low > 1 + within:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return Capacity(low, high, runs)
