"""Serving metrics, defined once: from the times at which a request arrived and got its tokens.

Arrival a, token times t_1 <= ... <= t_n, all on one clock, in seconds:

    TTFT           t_1 - a                     queueing, prefill and any preemption before the first token included
    ITL            the gaps t_{k+1} - t_k      a distribution, pooled over requests; a latency, not a throughput
    TPOT           (t_n - t_1) / (n - 1)       one figure per request; undefined (None) for a single token
    E2E            t_n - a                     = TTFT + (n - 1) TPOT
    E2E per token  E2E / n                     some tools call this TPOT

Percentiles interpolate linearly between the two nearest values, as NumPy does by default.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from mini_engine.arguments import count, listed, real, shown

Seconds = float | Fraction

TIME_LIMIT = 10**12
"""Seconds. A time beyond 30,000 years is a slip, and differences of such times may overflow."""


@dataclass(frozen=True)
class RequestTimes:
    """When one request arrived and got each of its output tokens. ValueError names what is out of order."""

    arrival: Seconds
    token_times: tuple[Seconds, ...]
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    """Prompt tokens served from a prefix cache."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_times", tuple(listed("token_times", self.token_times)))
        if not self.token_times:
            raise ValueError("token_times is empty: a request that got no token has no latency")
        previous, name = real("arrival", self.arrival, limit=TIME_LIMIT), "arrival"
        for k, time in enumerate(self.token_times):
            if real(f"token_times[{k}]", time, limit=TIME_LIMIT) < previous:
                raise ValueError(f"token_times[{k}]={time} is not a time after {name}={previous}")
            previous, name = time, f"token_times[{k}]"
        count("num_prompt_tokens", self.num_prompt_tokens, minimum=0)
        count("num_cached_tokens", self.num_cached_tokens, minimum=0, limit=self.num_prompt_tokens)

    @property
    def num_output_tokens(self) -> int:
        """Tokens that came out; each has its time."""
        return len(self.token_times)

    @property
    def ttft(self) -> Seconds:
        """Time to first token."""
        return self.token_times[0] - self.arrival

    @property
    def itl(self) -> list[Seconds]:
        """Inter-token latencies: the gaps between consecutive output tokens."""
        return [after - before for before, after in zip(self.token_times, self.token_times[1:])]

    @property
    def tpot(self) -> Seconds | None:
        """Time per output token after the first; None when there is only one."""
        if self.num_output_tokens == 1:
            return None
        return (self.token_times[-1] - self.token_times[0]) / (self.num_output_tokens - 1)

    @property
    def e2e(self) -> Seconds:
        """From arrival to the last token."""
        return self.token_times[-1] - self.arrival

    @property
    def e2e_per_token(self) -> Seconds:
        """End-to-end time over output tokens. It includes TTFT, so it is not TPOT."""
        return self.e2e / self.num_output_tokens


@dataclass(frozen=True)
class Throughput:
    """Rates over the window from the first arrival to the last completion. None when that window has no length."""

    window: Seconds
    output_tokens_per_s: Seconds | None
    total_tokens_per_s: Seconds | None
    """Prompt and output tokens together."""
    requests_per_s: Seconds | None


def throughput(requests: Sequence[RequestTimes]) -> Throughput:
    """Tokens and requests per second of finished requests. ValueError when there are none."""
    requests = _checked(requests)
    window = _window(requests)
    output = sum(request.num_output_tokens for request in requests)
    prompt = sum(request.num_prompt_tokens for request in requests)
    return Throughput(window, *(_per_second(amount, window) for amount in (output, output + prompt, len(requests))))


@dataclass(frozen=True)
class Goodput:
    """Requests that met every limit, per second of the window and as a share of all; the limits belong to the figure."""

    requests_per_s: Seconds | None
    share: Fraction
    limits: dict[str, Seconds]


def goodput(
    requests: Sequence[RequestTimes],
    *,
    ttft: Seconds | None = None,
    tpot: Seconds | None = None,
    e2e: Seconds | None = None,
) -> Goodput:
    """Requests that met all the limits given (seconds). A request of one token has no TPOT and cannot miss that limit.

    ValueError when no limit is given: goodput without its limits means nothing.
    """
    given = (("ttft", ttft), ("tpot", tpot), ("e2e", e2e))
    limits = {name: real(name, limit, minimum=0) for name, limit in given if limit is not None}
    if not limits:
        raise ValueError("give at least one of ttft, tpot, e2e: goodput counts the requests that meet stated limits")
    requests = _checked(requests)
    window = _window(requests)
    met = sum(all((getattr(r, name) or 0) <= limit for name, limit in limits.items()) for r in requests)
    return Goodput(_per_second(met, window), Fraction(met, len(requests)), limits)


def percentile(values: Iterable[Seconds], q: Seconds) -> float:
    """The q-th percentile, q in [0, 100], interpolating linearly between neighbours.

    ValueError when there are no values.
    """
    ordered = sorted(real(f"values[{i}]", value) for i, value in enumerate(listed("values", values)))
    if not ordered:
        raise ValueError("values is empty: it has no percentile")
    real("q", q, minimum=0, limit=100)
    place = q / 100 * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (ordered[above] - ordered[below]) * (place - below))


@dataclass(frozen=True)
class LatencySummary:
    """Mean and percentiles of one latency; None for a latency no request has."""

    mean: float
    p50: float
    p99: float
    max: float


def summarize_latency(values: Iterable[Seconds | None]) -> LatencySummary | None:
    """Mean, median, 99th percentile and maximum, leaving out None (an undefined TPOT)."""
    known = [real(f"values[{i}]", value) for i, value in enumerate(listed("values", values)) if value is not None]
    if not known:
        return None
    return LatencySummary(
        float(sum(known) / len(known)), percentile(known, 50), percentile(known, 99), float(max(known))
    )


@dataclass(frozen=True)
class ServingSummary:
    """What a run amounts to. ITL is pooled over all tokens, TPOT has one value per request."""

    num_requests: int
    throughput: Throughput
    ttft: LatencySummary | None
    tpot: LatencySummary | None
    itl: LatencySummary | None
    e2e: LatencySummary | None
    hit_rate: Fraction | None

    def __str__(self) -> str:
        rate = self.throughput
        lines = [
            f"{self.num_requests} requests in {float(rate.window):.3f} s (first arrival to last completion): "
            + ", ".join(
                f"{'-' if value is None else f'{float(value):.2f}'} {unit}"
                for value, unit in (
                    (rate.output_tokens_per_s, "output tok/s"),
                    (rate.total_tokens_per_s, "tok/s with prompts"),
                    (rate.requests_per_s, "req/s"),
                )
            )
        ]
        for name in ("ttft", "tpot", "itl", "e2e"):
            of = getattr(self, name)
            figures = (
                "-" if of is None else f"mean {of.mean:.4f}  p50 {of.p50:.4f}  p99 {of.p99:.4f}  max {of.max:.4f}  s"
            )
            lines.append(f"{name.upper():5} {figures}")
        lines.append(f"prefix hit rate by tokens: {'-' if self.hit_rate is None else f'{float(self.hit_rate):.1%}'}")
        return "\n".join(lines)


def summarize(requests: Sequence[RequestTimes]) -> ServingSummary:
    """All metrics of a set of finished requests. ValueError when there are none."""
    requests = _checked(requests)
    prompt = sum(request.num_prompt_tokens for request in requests)
    return ServingSummary(
        num_requests=len(requests),
        throughput=throughput(requests),
        ttft=summarize_latency(request.ttft for request in requests),
        tpot=summarize_latency(request.tpot for request in requests),
        itl=summarize_latency(gap for request in requests for gap in request.itl),
        e2e=summarize_latency(request.e2e for request in requests),
        hit_rate=hit_rate(sum(r.num_cached_tokens for r in requests), prompt) if prompt else None,
    )


def hit_rate(cached_tokens: int, prompt_tokens: int) -> Fraction:
    """Prompt tokens served from the cache over prompt tokens: by tokens, not by requests."""
    prompt_tokens = count("prompt_tokens", prompt_tokens)
    return Fraction(count("cached_tokens", cached_tokens, minimum=0, limit=prompt_tokens), prompt_tokens)


def slot_utilization(used_slots: int, allocated_slots: int) -> Fraction:
    """Slots that hold a token over slots of the blocks that are allocated: what partly filled blocks waste."""
    allocated_slots = count("allocated_slots", allocated_slots)
    return Fraction(count("used_slots", used_slots, minimum=0, limit=allocated_slots), allocated_slots)


def block_utilization(allocated_blocks: int, pool_blocks: int) -> Fraction:
    """Blocks in use over blocks of the pool: how full the pool is. Not the same figure as `slot_utilization`."""
    pool_blocks = count("pool_blocks", pool_blocks)
    return Fraction(count("allocated_blocks", allocated_blocks, minimum=0, limit=pool_blocks), pool_blocks)


def _checked(requests: Sequence[RequestTimes]) -> list[RequestTimes]:
    found = listed("requests", requests)
    if not found:
        raise ValueError("requests is empty: there is nothing to measure")
    for i, request in enumerate(found):
        if not isinstance(request, RequestTimes):
            raise ValueError(f"requests[{i}]={shown(request)} must be a RequestTimes")
    return found


def _window(requests: Sequence[RequestTimes]) -> Seconds:
    """Seconds from the first arrival to the last completion."""
    return max(request.token_times[-1] for request in requests) - min(request.arrival for request in requests)


def _per_second(amount: int, window: Seconds) -> Seconds | None:
    """A rate; None when the window has no length, or one that no clock can tell from none."""
    return amount / window if window > 1e-12 else None
