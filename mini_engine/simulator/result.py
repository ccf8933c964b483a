"""What a simulation leaves behind: when each request got its tokens, which were turned away, and how busy the machine was."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

from mini_engine.cache import CacheOp
from mini_engine.metrics import RequestTimes, hit_rate
from mini_engine.scheduling import Chunk, Counters


class Served:
    """One request. Its tokens come at the ends of steps, so `spans` of step numbers say when, at a few bytes a request."""

    __slots__ = (
        "arrival",
        "finish_reason",
        "num_cached_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "num_wanted_tokens",
        "number",
        "spans",
        "start",
    )

    def __init__(self, number: int, arrival: float, num_prompt_tokens: int, num_wanted_tokens: int) -> None:
        self.number = number  # of the request in the trace
        self.arrival = arrival
        self.num_prompt_tokens = num_prompt_tokens
        self.num_wanted_tokens = num_wanted_tokens
        self.num_cached_tokens = 0
        self.num_preemptions = 0
        self.start: float | None = None  # when its first step began: the end of its time in the queue
        self.finish_reason: str | None = None
        self.spans: list[int] = []  # first step with a token, the step after the last one; again after each break

    def add_token(self, step: int) -> None:
        """Note that a step yielded a token."""
        spans = self.spans
        if spans and spans[-1] == step:
            spans[-1] = step + 1
        else:
            spans += (step, step + 1)

    @property
    def num_output_tokens(self) -> int:
        """Tokens that came out."""
        return sum(self.spans[1::2]) - sum(self.spans[::2])

    @property
    def num_computed_once(self) -> int:
        """Tokens that had to be computed for it: all but those found in the cache, and the last, which nothing follows."""
        return self.num_prompt_tokens + self.num_output_tokens - 1 - self.num_cached_tokens if self.spans else 0

    @property
    def runs(self) -> list[tuple[int, int]]:
        """(first step, step after the last) of every stretch of steps that each gave it a token."""
        return list(zip(self.spans[::2], self.spans[1::2]))


@dataclass(frozen=True, slots=True)
class Rejected:
    """A request that could never run, and why."""

    number: int
    reason: str
    """In one of a few words, to count by: "longer than max_model_len", "larger than the pool", "over the token budget"."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step, kept when the simulation records."""

    begin: float
    end: float
    chunks: tuple[Chunk, ...]
    num_computed: int
    """Tokens computed, padding included."""
    preempted: tuple[tuple[str, int], ...]
    cache_ops: tuple[CacheOp, ...]


@dataclass
class Usage:
    """Sums over the run, in seconds times whatever they are sums of, where they are not counts."""

    num_steps: int = 0
    busy: float = 0.0
    moving: float = 0.0
    """Of the busy seconds, those spent on moving blocks."""
    num_tokens: int = 0
    """Tokens computed for requests; a token computed again counts again."""
    num_padding: int = 0
    """Tokens computed for nobody, by static batching."""
    num_again: int = 0
    """Tokens computed more than once, because of preemptions."""
    used_slots: float = 0.0
    held_slots: float = 0.0
    held_blocks: float = 0.0
    most_blocks: int = 0
    in_system: float = 0.0
    """Requests in the system: its mean is the L of Little's law."""
    flops: int = 0
    bytes_read: float = 0.0
    swapped_bytes: int = 0


@dataclass
class SimulationResult:
    """Times are seconds on the virtual clock, which starts when the trace does."""

    trace: str
    num_requests: int
    num_blocks: int
    block_size: int
    peak_flops: float
    """Of all GPUs together."""
    bandwidth: float
    """Of one GPU, at its peak."""
    end: float = 0.0
    served: list[Served] = field(default_factory=list, repr=False)
    """In the order in which they ended."""
    rejected: list[Rejected] = field(default_factory=list, repr=False)
    step_ends: array[float] = field(default_factory=lambda: array("d"), repr=False)
    usage: Usage = field(default_factory=Usage)
    counters: Counters = field(default_factory=Counters)
    steps: list[Step] = field(default_factory=list, repr=False)
    """Empty unless the simulation records."""
    limits: dict[str, str] = field(default_factory=dict, repr=False)
    """By reason to turn a request away: the limit, and what raises it."""
    least_step: float = 0.0
    """Seconds of the shortest step there can be: one token of one sequence."""

    def token_times(self, request: Served) -> list[float]:
        """Virtual seconds at which each token of a request came out."""
        return [time for first, after in request.runs for time in self.step_ends[first:after]]

    def times(self) -> list[RequestTimes]:
        """The requests that got a token, in the words of `mini_engine.metrics`."""
        return [
            RequestTimes(r.arrival, tuple(self.token_times(r)), r.num_prompt_tokens, r.num_cached_tokens)
            for r in self.served
            if r.spans
        ]

    @property
    def rejections(self) -> dict[str, int]:
        """How many were turned away, by reason."""
        return dict(Counter(each.reason for each in self.rejected))

    @property
    def finish_reasons(self) -> dict[str, int]:
        """{reason: how many requests ended so}."""
        return dict(Counter(each.finish_reason or "" for each in self.served))

    @property
    def num_cut_short(self) -> int:
        """Requests that got fewer tokens than the trace says: the context or the whole pool was used up."""
        return sum(each.num_output_tokens < each.num_wanted_tokens for each in self.served)

    @property
    def window(self) -> float:
        """Seconds from the first arrival of a served request to the last completion."""
        return self.end - min((each.arrival for each in self.served), default=0.0)

    @property
    def hit_rate(self) -> Fraction | None:
        """Prompt tokens found in the cache, of all prompt tokens; None without prompts."""
        prompt = sum(each.num_prompt_tokens for each in self.served)
        return hit_rate(sum(each.num_cached_tokens for each in self.served), prompt) if prompt else None

    @property
    def mean_in_system(self) -> float | None:
        """Requests that were waiting or running, averaged over the time; None without any time."""
        return self.usage.in_system / self.window if self.window > 0 else None

    @property
    def slot_utilization(self) -> float | None:
        """Slots that hold a token over slots of the blocks in use, on average over the busy time."""
        return _ratio(self.usage.used_slots, self.usage.held_slots)

    @property
    def block_utilization(self) -> float | None:
        """Blocks in use over blocks of the pool, on average over the busy time."""
        return _ratio(self.usage.held_blocks, self.usage.busy * self.num_blocks)

    @property
    def compute_utilization(self) -> float | None:
        """FLOPs done over what the data sheet promises for the whole window."""
        return _ratio(self.usage.flops, self.window * self.peak_flops)

    @property
    def bandwidth_utilization(self) -> float | None:
        """Bytes read, of what the memory could have read in that time; None without any time."""
        return _ratio(self.usage.bytes_read, self.window * self.bandwidth)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
