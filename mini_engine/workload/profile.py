"""A trace's published statistics, from which a synthetic one of any length can be made without the original."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass
from dataclasses import fields as dataclass_fields
from typing import Any

from mini_engine.arguments import COUNT_LIMIT, count, real, shown
from mini_engine.data_files import data_dir
from mini_engine.metrics import percentile
from mini_engine.workload.prefix_reuse import prefix_reuse
from mini_engine.workload.summary import summarize
from mini_engine.workload.trace import Trace

KNOTS = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 99.99, 100)
"""Percentiles that a profile keeps of each length."""


@dataclass(frozen=True)
class Profile:
    """Rate, burstiness, mean and quantiles (at `KNOTS`) of both lengths, and the bound of prefix reuse where the
    trace has hash ids.
    """

    name: str
    attribution: str
    rate: float
    gap_cv: float
    prompt_mean: float
    output_mean: float
    prompt_quantiles: tuple[float, ...]
    output_quantiles: tuple[float, ...]
    block_tokens: int | None = None
    reuse_bound: float | None = None
    common_blocks: int = 0
    """Leading blocks that all requests share, such as a system prompt."""
    reuse_distance: float = 1.0
    """How many requests ago the continued one was, in the median."""

    def __post_init__(self) -> None:
        for name in ("prompt_quantiles", "output_quantiles"):
            object.__setattr__(self, name, _rising(name, getattr(self, name)))
        for name in ("name", "attribution"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name}={shown(getattr(self, name))} must be a text")
        arrival_rate("rate", self.rate)
        real("gap_cv", self.gap_cv, minimum=0, limit=1000)
        for name in ("prompt_mean", "output_mean"):
            real(name, getattr(self, name), minimum=1, limit=COUNT_LIMIT)
        if self.block_tokens is not None:
            count("block_tokens", self.block_tokens)
        count("common_blocks", self.common_blocks, minimum=0, limit=10**6)
        real("reuse_distance", self.reuse_distance, minimum=0, limit=COUNT_LIMIT)
        if self.reuse_bound is not None and real("reuse_bound", self.reuse_bound, minimum=0) >= 1:
            raise ValueError(f"reuse_bound={self.reuse_bound} must be at least 0 and below 1")


def _rising(name: str, values: Any) -> tuple[float, ...]:
    listed = tuple(values) if isinstance(values, list | tuple) else ()
    for i, value in enumerate(listed):
        real(f"{name}[{i}]", value, minimum=1, limit=COUNT_LIMIT)
    if len(listed) != len(KNOTS) or list(listed) != sorted(listed):
        raise ValueError(
            f"{name}={shown(values)} must be {len(KNOTS)} rising numbers of at least 1, one for each of the "
            f"percentiles {KNOTS}"
        )
    return listed


def arrival_rate(name: str, value: Any) -> float:
    """Requests per second as a float: between one in 30 years and a billion a second."""
    if real(name, value, limit=10**9) < 1e-9:
        raise ValueError(f"{name}={shown(value)} must be above 0 requests per second (at least 1e-9)")
    return float(value)


def profile(trace: Trace, name: str = "", attribution: str = "") -> Profile:
    """Measure the profile of a trace. ValueError when all of it arrives at once."""
    summary = summarize(trace)
    if summary.rate is None:
        raise ValueError(f"all requests of {trace.name!r} arrive at once: there is no rate to keep")
    return Profile(
        name=name or trace.name,
        attribution=attribution,
        rate=round(summary.rate, 4),
        gap_cv=round(summary.gap_cv or 0, 4),
        prompt_mean=round(summary.prompt.mean, 1),
        output_mean=round(summary.output.mean, 1),
        prompt_quantiles=_quantiles([request.num_prompt_tokens for request in trace]),
        output_quantiles=_quantiles([request.num_output_tokens for request in trace]),
        block_tokens=trace.block_tokens,
        reuse_bound=round(float(prefix_reuse(trace).by_tokens), 4) if trace.block_tokens else None,
        common_blocks=_common_blocks(trace),
        reuse_distance=_reuse_distance(trace) if trace.block_tokens else 1.0,
    )


def _quantiles(tokens: list[int]) -> tuple[float, ...]:
    return tuple(round(percentile(tokens, q), 1) for q in KNOTS)


def _common_blocks(trace: Trace) -> int:
    first = trace.requests[0].hash_ids
    shared = 0
    while shared < len(first) and all(r.hash_ids[shared : shared + 1] == first[shared : shared + 1] for r in trace):
        shared += 1
    return shared


def _reuse_distance(trace: Trace) -> float:
    """The median number of requests back to the last one that held a request's deepest cached block, common blocks
    aside.
    """
    common = _common_blocks(trace)
    last: dict[int, int] = {}
    distances = []
    for i, request in enumerate(trace):
        run = next((k for k, block in enumerate(request.hash_ids) if block not in last), len(request.hash_ids))
        if run > common:
            distances.append(i - last[request.hash_ids[run - 1]])
        last |= dict.fromkeys(request.hash_ids, i)
    return percentile(distances, 50) if distances else 1.0


def profiles() -> dict[str, Profile]:
    """The profiles that come with the project, measured on public traces."""
    path = data_dir() / "traces" / "profiles.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: install the package again")
    return {p.name: p for p in map(from_json, json.loads(path.read_text(encoding="utf-8")))}


def from_json(fields: Mapping[str, Any]) -> Profile:
    """A profile from its entry in profiles.json. ValueError names a field that is missing or unknown."""
    known = {field.name: field.default is MISSING for field in dataclass_fields(Profile)}
    wrong = [f"{name} is unknown" for name in fields if name not in known]
    wrong += [f"{name} is missing" for name, needed in known.items() if needed and name not in fields]
    if wrong:
        raise ValueError(f"the profile {shown(fields.get('name', ''))}: {', '.join(wrong)}")
    return Profile(**fields)


def to_json(profile: Profile) -> dict[str, Any]:
    """A profile as plain data for json.dump."""
    return asdict(profile)
