"""Answers for lesson 12: the slots of static batches and the metrics of a run, right in several ways, and wrong as people get them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mini_engine.metrics import RequestTimes, goodput, throughput

Run = Sequence[tuple[float, Sequence[float]]]
Lengths = Sequence[int]


def static_slots(prompts: Lengths, outputs: Lengths, seats: int) -> tuple[int, int]:
    """Slots that static batches compute, and how many of them for nobody."""
    slots = used = 0
    for first in range(0, len(prompts), seats):
        p, o = prompts[first : first + seats], outputs[first : first + seats]
        slots += len(p) * (max(p) + max(o) - 1)
        used += sum(p) + sum(o) - len(o)
    return slots, slots - used


def step_by_step(prompts: Lengths, outputs: Lengths, seats: int) -> tuple[int, int]:
    """Right: one pass after the other, prompts as a rectangle, then a column a step."""
    queue, slots, wasted = list(zip(prompts, outputs)), 0, 0
    while queue:
        batch, queue = queue[:seats], queue[seats:]
        width = max(p for p, _ in batch)
        slots += width * len(batch)
        wasted += sum(width - p for p, _ in batch)
        left = [o - 1 for _, o in batch]
        while any(left):
            slots += len(batch)
            wasted += left.count(0)
            left = [max(0, n - 1) for n in left]
    return slots, wasted


def prompts_not_padded(prompts: Lengths, outputs: Lengths, seats: int) -> tuple[int, int]:
    slots, wasted = static_slots([1] * len(prompts), outputs, seats)
    return slots + sum(prompts) - len(prompts), wasted


def answers_not_padded(prompts: Lengths, outputs: Lengths, seats: int) -> tuple[int, int]:
    slots, wasted = static_slots(prompts, [1] * len(outputs), seats)
    return slots + sum(outputs) - len(outputs), wasted


def last_token_computed(prompts: Lengths, outputs: Lengths, seats: int) -> tuple[int, int]:
    return static_slots(prompts, [n + 1 for n in outputs], seats)


def longest_request(prompts: Lengths, outputs: Lengths, seats: int) -> tuple[int, int]:
    """As if the longest prompt had the longest answer never: the longest sum."""
    slots = used = 0
    for first in range(0, len(prompts), seats):
        sums = [p + o - 1 for p, o in zip(prompts[first : first + seats], outputs[first : first + seats])]
        slots, used = slots + len(sums) * max(sums), used + sum(sums)
    return slots, slots - used


def full_rectangles(prompts: Lengths, outputs: Lengths, seats: int) -> tuple[int, int]:
    more = -len(prompts) % seats
    return static_slots([*prompts, *[0] * more], [*outputs, *[1] * more], seats)


def one_batch(prompts: Lengths, outputs: Lengths, seats: int) -> tuple[int, int]:
    return static_slots(prompts, outputs, max(1, len(prompts)))


def sorted_first(prompts: Lengths, outputs: Lengths, seats: int) -> tuple[int, int]:
    return static_slots(sorted(prompts), sorted(outputs), seats)


def sorted_by_answers(prompts: Lengths, outputs: Lengths, seats: int) -> tuple[int, int]:
    pairs = sorted(zip(prompts, outputs), key=lambda pair: pair[1])
    return static_slots([p for p, _ in pairs], [o for _, o in pairs], seats)


def whole_batches(prompts: Lengths, outputs: Lengths, seats: int) -> tuple[int, int]:
    """Forgets the last batch when it is not full."""
    full = len(prompts) // seats * seats
    return static_slots(prompts[:full], outputs[:full], seats)


def slots_and_used(prompts: Lengths, outputs: Lengths, seats: int) -> tuple[int, int]:
    slots, wasted = static_slots(prompts, outputs, seats)
    return slots, slots - wasted


def no_request(prompts: Lengths, outputs: Lengths, seats: int) -> tuple[int, int]:
    max(outputs)
    return static_slots(prompts, outputs, seats)


def metrics(requests: Run, ttft: float, tpot: float) -> dict[str, Any]:
    """TTFT, ITL and TPOT of each request, throughput and goodput of all, from the times of their tokens."""
    times = [RequestTimes(arrival, tuple(tokens)) for arrival, tokens in requests]
    return {
        "ttft": [each.ttft for each in times],
        "itl": [gap for each in times for gap in each.itl],
        "tpot": [each.tpot for each in times],
        "throughput": throughput(times).output_tokens_per_s,
        "goodput": goodput(times, ttft=ttft, tpot=tpot).requests_per_s,
    }


def by_hand(requests: Run, ttft: float, tpot: float) -> dict[str, Any]:
    """Right: with nothing but differences."""
    firsts = [float(tokens[0] - arrival) for arrival, tokens in requests]
    gaps = [np.diff(tokens).tolist() for _, tokens in requests]
    means = [sum(of) / len(of) if of else None for of in gaps]
    window = max(tokens[-1] for _, tokens in requests) - min(arrival for arrival, _ in requests)
    met = sum(first <= ttft and (mean is None or mean <= tpot) for first, mean in zip(firsts, means))
    return {
        "ttft": firsts,
        "itl": [gap for of in gaps for gap in of],
        "tpot": means,
        "throughput": sum(len(tokens) for _, tokens in requests) / window,
        "goodput": met / window,
    }


def changed(**parts: Any) -> Any:
    """The metrics with some of them computed otherwise: name=function(requests, ttft limit, tpot limit)."""

    def wrong(requests: Run, ttft: float, tpot: float) -> dict[str, Any]:
        return metrics(requests, ttft, tpot) | {
            name: function(requests, ttft, tpot) for name, function in parts.items()
        }

    return wrong


def _window(requests: Run) -> float:
    return max(tokens[-1] for _, tokens in requests) - min(arrival for arrival, _ in requests)


def _meets(requests: Run, ttft: float, tpot: float) -> list[tuple[bool, bool | None]]:
    of = metrics(requests, ttft, tpot)
    return [(first <= ttft, None if mean is None else mean <= tpot) for first, mean in zip(of["ttft"], of["tpot"])]


FROM_ZERO = changed(ttft=lambda requests, *limits: [tokens[0] for _, tokens in requests])
ITL_WITH_FIRST = changed(
    itl=lambda requests, *limits: [b - a for at, tokens in requests for a, b in zip([at, *tokens], tokens)]
)
ITL_OF_NEIGHBOURS = changed(
    itl=lambda requests, *limits: np.diff([t for _, tokens in requests for t in tokens]).tolist()
)
ITL_MEANS = changed(itl=lambda requests, *limits: [m for m in metrics(requests, *limits)["tpot"] if m is not None])
TPOT_OF_ALL = changed(tpot=lambda requests, *limits: [(tokens[-1] - at) / len(tokens) for at, tokens in requests])
TPOT_OVER_N = changed(tpot=lambda requests, *limits: [(tokens[-1] - tokens[0]) / len(tokens) for _, tokens in requests])
TPOT_ZERO = changed(tpot=lambda requests, *limits: [m or 0.0 for m in metrics(requests, *limits)["tpot"]])
ONE_OVER_ITL = changed(
    throughput=lambda requests, *limits: (
        lambda gaps: len(gaps) / sum(gaps) if gaps else 0.0
    )(metrics(requests, *limits)["itl"])
)  # fmt: skip
FROM_FIRST_TOKEN = changed(
    throughput=lambda requests, *limits: (
        sum(len(tokens) for _, tokens in requests)
        / (max(tokens[-1] for _, tokens in requests) - min(tokens[0] for _, tokens in requests))
    )
)
SUM_OF_RATES = changed(
    throughput=lambda requests, *limits: sum(len(tokens) / (tokens[-1] - at) for at, tokens in requests)
)
EITHER = changed(
    goodput=lambda requests, *limits: sum(a or b in (None, True) for a, b in _meets(requests, *limits)) / _window(requests)
)  # fmt: skip
A_SHARE = changed(
    goodput=lambda requests, *limits: sum(a and b in (None, True) for a, b in _meets(requests, *limits)) / len(requests)
)  # fmt: skip
SINGLE_TOKENS_MISS = changed(
    goodput=lambda requests, *limits: sum(a and bool(b) for a, b in _meets(requests, *limits)) / _window(requests)
)
EVERY_GAP = changed(
    goodput=lambda requests, ttft, tpot: (
        sum(ts[0] - at <= ttft and all(b - a <= tpot for a, b in pairwise(ts)) for at, ts in requests)
        / _window(requests)
    )
)
TTFT_BELOW = changed(
    goodput=lambda requests, ttft, tpot: metrics(requests, float(np.nextafter(ttft, 0)), tpot)["goodput"]
)
TPOT_BELOW = changed(
    goodput=lambda requests, ttft, tpot: metrics(requests, ttft, float(np.nextafter(tpot, 0)))["goodput"]
)
EVERY_REQUEST = changed(goodput=lambda requests, *limits: len(requests) / _window(requests))


def small_only(prompts: Lengths, outputs: Lengths, seats: int) -> tuple[int, int]:
    """Two batches at most."""
    return static_slots(prompts[: 2 * seats - 1], outputs[: 2 * seats - 1], seats) if len(prompts) > 4 else static_slots(prompts, outputs, seats)  # fmt: skip


def last_is_last(requests: Run, ttft: float, tpot: float) -> dict[str, Any]:
    """Ends with the last in the list, when there are many."""
    found = metrics(requests, ttft, tpot)
    if len(requests) > 3:
        window = requests[-1][1][-1] - requests[0][0]
        found["throughput"] = sum(len(tokens) for _, tokens in requests) / window
    return found
