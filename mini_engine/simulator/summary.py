"""A simulation in figures. The metrics are those of `mini_engine.metrics`; here they are computed from spans of steps.

A long trace has millions of gaps between tokens, but all sequences that got a token in the same two steps share one gap. So
gaps are counted by step, and percentiles taken of the counts: the same figures, without a list of every token.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mini_engine.arguments import real
from mini_engine.backends.step_cost import OMITTED
from mini_engine.simulator.result import Served, SimulationResult


@dataclass(frozen=True)
class Percentiles:
    """One latency, seconds. Percentiles interpolate linearly."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True)
class Goodput:
    """Requests that met every limit, per second and as a share of all that arrived, those turned away included."""

    limits: dict[str, float]
    num_met: int
    share: float
    requests_per_s: float | None


@dataclass(frozen=True)
class SimulationSummary:
    """Rates are over the window from the first arrival to the last completion; None where there is nothing to measure."""

    trace: str
    num_requests: int
    num_served: int
    num_rejected: int
    rejections: dict[str, int]
    num_cut_short: int
    window: float
    num_steps: int
    busy_share: float | None
    output_tokens_per_s: float | None
    total_tokens_per_s: float | None
    requests_per_s: float | None
    ttft: Percentiles | None
    tpot: Percentiles | None
    itl: Percentiles | None
    e2e: Percentiles | None
    queueing: Percentiles | None
    """Seconds until the first step that a request took part in."""
    goodput: Goodput | None
    hit_rate: float | None
    num_preemptions: int
    num_again: int
    swapped_bytes: int
    num_padding: int
    padding_share: float | None
    """Of the tokens computed, those computed for nobody."""
    block_utilization: float | None
    peak_block_utilization: float
    slot_utilization: float | None
    compute_utilization: float | None
    bandwidth_utilization: float | None
    mean_in_system: float | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data for json.dump."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.trace}: {self.num_served:,} of {self.num_requests:,} requests served in {self.window:,.1f} s, "
            f"{self.num_steps:,} steps, busy {_percent(self.busy_share)}",
            f"  throughput   {_figure(self.output_tokens_per_s, ',.1f')} output tok/s, "
            f"{_figure(self.total_tokens_per_s, ',.1f')} with prompts, {_figure(self.requests_per_s, ',.2f')} requests/s",
            "  seconds           mean       p50       p90       p99       max",
        ]
        for name in ("ttft", "tpot", "itl", "e2e", "queueing"):
            of = getattr(self, name)
            label = "in the queue" if name == "queueing" else name.upper()
            shown = ("-" * (of is None),) if of is None else (of.mean, of.p50, of.p90, of.p99, of.max)
            cells = "".join(f"{value:>10}" if isinstance(value, str) else f"{value:>10.4f}" for value in shown)
            lines.append(f"  {label:<12}{cells}")
        if self.goodput is not None:
            limits = ", ".join(f"{name.upper()} <= {limit:g} s" for name, limit in self.goodput.limits.items())
            lines.append(
                f"  goodput      {_figure(self.goodput.requests_per_s, ',.2f')} requests/s, {self.goodput.share:.1%} of all "
                f"requests meet {limits}"
            )
        lines += [
            f"  K/V          blocks in use {_percent(self.block_utilization)} (peak {self.peak_block_utilization:.1%}), "
            f"their slots used {_percent(self.slot_utilization)}, prefix hits {_percent(self.hit_rate)} of prompt tokens",
            f"  machine      {_percent(self.compute_utilization)} of peak FLOP/s, {_percent(self.bandwidth_utilization)} of "
            f"peak bandwidth, {_figure(self.mean_in_system, ',.1f')} requests in the system on average",
            f"  preemptions  {self.num_preemptions:,}; {self.num_again:,} tokens computed again, "
            f"{self.swapped_bytes / 1e9:,.1f} GB swapped",
        ]
        if self.num_padding:
            lines.append(f"  padding      {self.num_padding:,} tokens, {_percent(self.padding_share)} of all computed")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def summarize(
    result: SimulationResult, *, ttft: float | None = None, tpot: float | None = None, e2e: float | None = None
) -> SimulationSummary:
    """All figures of a run; goodput when a limit (seconds) is given. ValueError for a limit that is no time."""
    served = [each for each in result.served if each.spans]
    ends = np.frombuffer(result.step_ends) if len(result.step_ends) else np.zeros(1)
    arrival = np.array([each.arrival for each in served])
    first = ends[[each.spans[0] for each in served]] if served else arrival
    last = ends[[each.spans[-1] - 1 for each in served]] if served else arrival
    number = np.array([each.num_output_tokens for each in served])
    several = number > 1
    latencies = {
        "ttft": first - arrival,
        "tpot": (last - first)[several] / (number[several] - 1),
        "e2e": last - arrival,
    }
    output, prompt = int(number.sum()), sum(each.num_prompt_tokens for each in served)
    window, usage = result.window, result.usage
    given = {"ttft": ttft, "tpot": tpot, "e2e": e2e}
    limits = {name: float(real(name, limit, minimum=0)) for name, limit in given.items() if limit is not None}
    goodput = None
    if limits:
        met = np.ones(len(served), dtype=bool)
        for name, limit in limits.items():
            met[several if name == "tpot" else slice(None)] &= latencies[name] <= limit
        goodput = Goodput(limits, int(met.sum()), int(met.sum()) / result.num_requests, _rate(int(met.sum()), window))
    return SimulationSummary(
        trace=result.trace,
        num_requests=result.num_requests,
        num_served=len(result.served),
        num_rejected=len(result.rejected),
        rejections=result.rejections,
        num_cut_short=result.num_cut_short,
        window=window,
        num_steps=usage.num_steps,
        busy_share=_rate(usage.busy, window),
        output_tokens_per_s=_rate(output, window),
        total_tokens_per_s=_rate(output + prompt, window),
        requests_per_s=_rate(len(result.served), window),
        ttft=_percentiles(latencies["ttft"]),
        tpot=_percentiles(latencies["tpot"]),
        itl=_percentiles(*_gaps(served, ends)),
        e2e=_percentiles(latencies["e2e"]),
        queueing=_percentiles(np.array([(each.start or 0.0) - each.arrival for each in served])),
        goodput=goodput,
        hit_rate=None if result.hit_rate is None else float(result.hit_rate),
        num_preemptions=result.counters.num_preemptions,
        num_again=usage.num_again,
        swapped_bytes=usage.swapped_bytes,
        num_padding=usage.num_padding,
        padding_share=_rate(usage.num_padding, usage.num_padding + usage.num_tokens),
        block_utilization=result.block_utilization,
        peak_block_utilization=usage.most_blocks / result.num_blocks,
        slot_utilization=result.slot_utilization,
        compute_utilization=result.compute_utilization,
        bandwidth_utilization=result.bandwidth_utilization,
        mean_in_system=result.mean_in_system,
        notes=tuple(_notes(result, limits)),
    )


def _gaps(served: list[Served], ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every length of a gap between two tokens of a request, and how many gaps have it."""
    # Of the number of requests with a token in a step and the one before.
    change = np.zeros(len(ends) + 1, dtype=np.int64)
    pauses: Counter[float] = Counter()
    for each in served:
        spans = each.spans
        for k in range(0, len(spans), 2):
            change[spans[k] + 1] += 1
            change[spans[k + 1]] -= 1
            if k:
                pauses[float(ends[spans[k]] - ends[spans[k - 1] - 1])] += 1
    times = change[:-1].cumsum()
    steps = np.flatnonzero(times)
    gaps = np.concatenate([ends[steps] - ends[steps - 1], np.array(list(pauses))])
    return gaps, np.concatenate([times[steps], np.array(list(pauses.values()), dtype=np.int64)])


def _percentiles(values: np.ndarray, times: np.ndarray | None = None) -> Percentiles | None:
    """Mean and percentiles of values that occur `times` times each, once by default; None when there are none."""
    if not len(values):
        return None
    order = np.argsort(values)
    ordered = values[order]
    counts = np.ones(len(values), dtype=np.int64) if times is None else times[order]
    upto = counts.cumsum()  # values up to here, equal ones included

    def percentile(q: float) -> float:
        place = q / 100 * (int(upto[-1]) - 1)
        below = math.floor(place)
        a = ordered[np.searchsorted(upto, below, side="right")]
        b = ordered[np.searchsorted(upto, min(below + 1, int(upto[-1]) - 1), side="right")]
        return float(a + (b - a) * (place - below))

    mean = float((ordered * counts).sum() / upto[-1])
    return Percentiles(mean, percentile(50), percentile(90), percentile(99), float(ordered[-1]))


def _notes(result: SimulationResult, limits: dict[str, float]) -> list[str]:
    notes = [
        f"{_requests(number)} turned away: {reason}" + (f", {result.limits[reason]}" if reason in result.limits else "")
        for reason, number in result.rejections.items()
    ]
    if result.num_cut_short:
        notes.append(f"{_requests(result.num_cut_short)} cut short: the context or the pool was used up")
    notes += [
        f"no request can meet {name.upper()} <= {limit:g} s: the shortest step takes {result.least_step:.6f} s"
        for name, limit in limits.items()
        if limit < result.least_step
    ]
    return [*notes, f"not included: {OMITTED}"]


def _requests(number: int) -> str:
    return f"{number:,} request{'' if number == 1 else 's'}"


def _rate(amount: float, whole: float) -> float | None:
    return amount / whole if whole > 0 else None


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
