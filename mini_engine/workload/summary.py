"""What a trace looks like in a few numbers: rate, burstiness, lengths, prefix reuse."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from mini_engine.arguments import shown
from mini_engine.metrics import percentile
from mini_engine.workload.prefix_reuse import prefix_reuse
from mini_engine.workload.trace import Trace


@dataclass(frozen=True)
class Lengths:
    """Mean and quantiles of a token count; quantiles interpolate linearly."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: int


@dataclass(frozen=True)
class TraceSummary:
    """A trace in numbers. Rate and burstiness are None for a trace whose requests all arrive at once."""

    name: str
    synthetic: bool
    num_requests: int
    span: float
    """Seconds from the first arrival to the last."""
    rate: float | None
    """Requests per second over the span."""
    gap_cv: float | None
    """Coefficient of variation of the gaps between arrivals: 0 for a metronome, 1 for a Poisson process, above it for
    bursts.
    """
    prompt: Lengths
    output: Lengths
    reuse_bound: Fraction | None
    """Share of prompt tokens that an infinite prefix cache would serve; None without hash ids."""

    def __str__(self) -> str:
        kind = "synthetic trace" if self.synthetic else "trace"
        pace = "all at once" if self.rate is None else f"{self.rate:.2f} requests/s, gap CV {self.gap_cv:.2f}"
        lines = [f"{self.name}: {kind}, {self.num_requests:,} requests in {self.span:,.0f} s, {pace}"]
        for name, of in (("prompt", self.prompt), ("output", self.output)):
            lines.append(
                f"  {name} tokens: mean {of.mean:,.1f}  p50 {of.p50:,.0f}  p90 {of.p90:,.0f}  p99 {of.p99:,.0f}  "
                f"max {of.max:,}"
            )
        if self.reuse_bound is not None:
            lines.append(f"  an infinite prefix cache would serve {float(self.reuse_bound):.1%} of the prompt tokens")
        return "\n".join(lines)


def summarize(trace: Trace) -> TraceSummary:
    """The numbers by which traces are compared."""
    if not isinstance(trace, Trace):
        raise ValueError(f"trace={shown(trace)} must be a Trace: load_trace(path), or one that a generator makes")
    arrivals = [request.arrival for request in trace]
    span = arrivals[-1] - arrivals[0]
    return TraceSummary(
        name=trace.name,
        synthetic=trace.synthetic,
        num_requests=len(trace),
        span=span,
        rate=len(trace) / span if span else None,
        gap_cv=variation([b - a for a, b in itertools.pairwise(arrivals)]) if span else None,
        prompt=_lengths([request.num_prompt_tokens for request in trace]),
        output=_lengths([request.num_output_tokens for request in trace]),
        reuse_bound=prefix_reuse(trace).by_tokens if trace.block_tokens else None,
    )


def variation(values: Sequence[float]) -> float:
    """Standard deviation over mean (population)."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values)) / mean


def _lengths(tokens: list[int]) -> Lengths:
    p50, p90, p99 = (percentile(tokens, q) for q in (50, 90, 99))
    return Lengths(sum(tokens) / len(tokens), p50, p90, p99, max(tokens))
