"""Synthetic traces. They have the rate, burstiness, lengths and prefix reuse of a profile; everything else about them
is made up.

Pure Python on `random.Random(seed).random()` alone, so that a seed gives the same trace everywhere.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from random import Random

from mini_engine.arguments import ceil_div, count, shown
from mini_engine.workload.prefix_reuse import prefix_reuse
from mini_engine.workload.profile import KNOTS, Profile
from mini_engine.workload.summary import variation
from mini_engine.workload.trace import Trace, TraceRequest


def synthesize(profile: Profile, num_requests: int, seed: int = 0) -> Trace:
    """A synthetic trace of `num_requests` requests with the statistics of `profile`; the same for the same seed."""
    if not isinstance(profile, Profile):
        raise ValueError(f"profile={shown(profile)} must be a Profile: profiles()[name], or profile(trace)")
    num_requests = count("num_requests", num_requests, minimum=2, limit=10**6)
    random = Random(count("seed", seed, minimum=0))
    prompts = _lengths(random, profile.prompt_quantiles, profile.prompt_mean, num_requests)
    outputs = _lengths(random, profile.output_quantiles, profile.output_mean, num_requests)
    arrivals = arrival_times(random, num_requests, profile.rate, profile.gap_cv)
    requests = [TraceRequest(a, p, o) for a, p, o in zip(arrivals, prompts, outputs)]
    trace = Trace(f"synthetic_{profile.name}", tuple(requests), synthetic=True)
    if profile.reuse_bound is None or profile.block_tokens is None:
        return trace
    return _with_prefixes(random, trace, profile, profile.block_tokens, profile.reuse_bound)


def _lengths(random: Random, quantiles: Sequence[float], mean: float, n: int) -> list[int]:
    """n lengths, one from each n-th of the distribution, shuffled: the sample has the quantiles, not just their
    expectation.

    Between two quantiles the distribution is bent towards the lower or the upper one until the mean comes out as well.
    """
    places = [100 * (i + random.random()) / n for i in range(n)]
    low, high = 1 / 16, 16.0
    for _ in range(40):
        bend = math.sqrt(low * high)
        found = math.fsum(_interpolate(quantiles, q, bend) for q in places) / n
        low, high = (bend, high) if found > mean else (low, bend)
    lengths = [max(1, round(_interpolate(quantiles, q, low))) for q in places]
    return [length for _, length in sorted((random.random(), length) for length in lengths)]


def _interpolate(quantiles: Sequence[float], q: float, bend: float) -> float:
    right = min(bisect_right(KNOTS, q), len(KNOTS) - 1)
    a, b = KNOTS[right - 1], KNOTS[right]
    return quantiles[right - 1] + (quantiles[right] - quantiles[right - 1]) * ((q - a) / (b - a)) ** bend


def arrival_times(random: Random, n: int, rate: float, cv: float) -> list[float]:
    """n arrivals from 0 on with `rate` requests per second and gaps of coefficient of variation `cv`, both exactly.

    Exponential gaps, bent by a power until their variation is `cv` (1 is nearly a Poisson process), then scaled to
    the rate.
    """
    gaps = [-math.log(1 - random.random()) for _ in range(n - 1)]
    low, high = 0.0, 64.0  # the power; larger makes long gaps longer
    for _ in range(60):
        power = (low + high) / 2
        low, high = (power, high) if _bent_variation(gaps, power) < cv else (low, power)
    largest = max(gaps)
    bent = [(gap / largest) ** low for gap in gaps]
    scale = n / rate / math.fsum(bent)
    arrivals = [0.0]
    for gap in bent:
        arrivals.append(arrivals[-1] + gap * scale)
    return arrivals


def _bent_variation(gaps: Sequence[float], power: float) -> float:
    largest = max(gaps)
    return variation([(gap / largest) ** power for gap in gaps])


def _with_prefixes(random: Random, trace: Trace, profile: Profile, block: int, bound: float) -> Trace:
    """Add hash ids: some requests continue an earlier one. How many is searched for until the reuse bound comes out."""
    draws = [(random.random(), [random.random() for _ in range(CANDIDATES)]) for _ in trace]
    low, high = 0.0, 1.0
    trees = []
    for _ in range(16):
        following = (low + high) / 2
        tree = _prefix_tree(trace, profile, block, draws, following)
        reuse = float(prefix_reuse(tree).by_tokens)
        trees.append((abs(reuse - bound), tree))
        low, high = (following, high) if reuse < bound else (low, following)
    return min(trees, key=lambda pair: pair[0])[1]


CANDIDATES = 4
"""Earlier requests that a follower looks at; it continues the one it shares most with."""


def _prefix_tree(
    trace: Trace, profile: Profile, block: int, draws: Sequence[tuple[float, list[float]]], following: float
) -> Trace:
    common = tuple(range(profile.common_blocks))
    next_id = len(common)
    requests: list[TraceRequest] = []
    for (choice, recency), request in zip(draws, trace):
        blocks = ceil_div(request.num_prompt_tokens, block)
        shared = common[:blocks]
        if requests and choice < following:
            distances = (
                math.ceil(-math.log2(1 - r) * profile.reuse_distance) for r in recency
            )  # exponential, by its median
            parents = {len(requests) - 1 - distance % len(requests) for distance in distances}
            parent = max(parents, key=lambda i: (min(len(requests[i].hash_ids), blocks - 1), i))
            shared = requests[parent].hash_ids[: max(blocks - 1, len(shared))]
        fresh = range(next_id, next_id + blocks - len(shared))
        next_id = fresh.stop
        requests.append(
            TraceRequest(request.arrival, request.num_prompt_tokens, request.num_output_tokens, (*shared, *fresh))
        )
    return Trace(trace.name, tuple(requests), block, synthetic=True)
