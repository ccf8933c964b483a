"""A request trace: when requests arrive, how long they are, and which prefixes they share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mini_engine.arguments import ceil_div, count, flag, listed, real, shown

ID_LIMIT = 2**64
ARRIVAL_LIMIT = 10**12
"""Seconds: 30,000 years."""


class TraceError(ValueError):
    """A trace file that cannot be read: names the file, the line, what was found and what was expected."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request. `hash_ids` names its prompt's blocks: two requests that start with the same ids start with the
    same tokens.
    """

    arrival: float
    """Seconds after the trace began."""
    num_prompt_tokens: int
    num_output_tokens: int
    hash_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        real("arrival", self.arrival, minimum=0, limit=ARRIVAL_LIMIT)
        count("num_prompt_tokens", self.num_prompt_tokens)
        count("num_output_tokens", self.num_output_tokens)
        object.__setattr__(self, "hash_ids", hash_ids(self.hash_ids))

    def prompt_token_ids(self, block_tokens: int, vocab_size: int) -> list[int]:
        """Made-up token ids of the right length, equal exactly where hash ids are equal: enough for a cache to work
        on.
        """
        count("block_tokens", block_tokens)
        count("vocab_size", vocab_size, minimum=2)
        ids = self.hash_ids or tuple(range(-1, -1 - ceil_div(self.num_prompt_tokens, block_tokens), -1))
        tokens = [_mix(block, offset) % vocab_size for block in ids for offset in range(block_tokens)]
        return tokens[: self.num_prompt_tokens]


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival.

    `block_tokens` is how many tokens one hash id stands for; None when there are no hash ids.
    """

    name: str
    requests: tuple[TraceRequest, ...] = field(repr=False)
    block_tokens: int | None = None
    synthetic: bool = False
    """Made by a generator, not observed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "requests", tuple(listed("requests", self.requests)))
        flag("synthetic", self.synthetic)
        if not self.requests:
            raise ValueError(f"the trace {self.name!r} has no requests")
        if self.block_tokens is not None:
            count("block_tokens", self.block_tokens)
        for i, request in enumerate(self.requests):
            self._fits(i, request)
        arrivals = [request.arrival for request in self.requests]
        late = next((i for i, (a, b) in enumerate(itertools.pairwise(arrivals)) if b < a), None)
        if late is not None:
            raise ValueError(f"the trace {self.name!r}: request {late + 1} arrives before request {late}")

    def _fits(self, i: int, request: Any) -> None:
        if not isinstance(request, TraceRequest):
            raise ValueError(f"requests[{i}]={shown(request)} must be a TraceRequest")
        if self.block_tokens is not None:
            blocks = -(-request.num_prompt_tokens // self.block_tokens)
            if len(request.hash_ids) != blocks:
                raise ValueError(
                    f"requests[{i}] has {len(request.hash_ids)} hash_ids for {request.num_prompt_tokens} prompt "
                    f"tokens, expected {blocks} of block_tokens={self.block_tokens}"
                )

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self):
        return iter(self.requests)

    def at_rate(self, rate: float) -> Trace:
        """The same requests with their gaps stretched or squeezed, so that `rate` arrive per second from the first to the
        last. ValueError when they all arrive at once.
        """
        if real("rate", rate, minimum=0, limit=10**9) < 1e-9:
            raise ValueError(f"rate={shown(rate)} must be above 0 requests per second (at least 1e-9)")
        first, span = self.requests[0].arrival, self.requests[-1].arrival - self.requests[0].arrival
        if not span:
            raise ValueError(f"all requests of {self.name!r} arrive at once: no rate can be made of that")
        scale = len(self) / span / rate
        moved = tuple(
            TraceRequest((r.arrival - first) * scale, r.num_prompt_tokens, r.num_output_tokens, r.hash_ids)
            for r in self
        )
        return Trace(self.name, moved, self.block_tokens, self.synthetic)

    def head(self, num_requests: int) -> Trace:
        """The first requests of the trace."""
        return Trace(self.name, self.requests[: count("num_requests", num_requests)], self.block_tokens, self.synthetic)


def lines(path: Path) -> Iterator[str]:
    """The lines of a trace file. TraceError when it is no text."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            yield from file
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not a text in UTF-8: {error}") from None


def hash_ids(values: Any) -> tuple[int, ...]:
    """Ids of blocks as a tuple; ValueError for anything but integers of at least 0."""
    ids = tuple(listed("hash_ids", values))
    for i, value in enumerate(ids):
        if type(value) is not int or value < 0:
            count(f"hash_ids[{i}]", value, minimum=0, limit=ID_LIMIT)
    return ids


def _mix(block: int, offset: int) -> int:
    """A fixed scramble of two integers into 31 bits."""
    value = (block * 0x9E3779B1 + offset * 0x85EBCA77 + 0x165667B1) & 0xFFFFFFFF
    value ^= value >> 15
    value = value * 0x2C1B3C6D & 0xFFFFFFFF
    return (value ^ value >> 13) & 0x7FFFFFFF
