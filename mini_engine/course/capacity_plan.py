"""The service that lesson 15 plans for: what it has to hold, what machines cost, and the simulator as the judge of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from mini_engine import get_gpu, get_model
from mini_engine.simulator import SimulationSummary, simulate, summarize
from mini_engine.sizing import size
from mini_engine.workload import Trace, load_trace, profiles, synthesize

MODEL, BLOCK_SIZE = "llama-3-8b", 16
RATE, WINDOW = 40, 30
"""Requests per second in the busy half minute, and its seconds."""
TTFT, TPOT, SHARE = 1.0, 0.05, 0.9
"""The promise: this share of requests gets the first token and the next ones within so many seconds."""
PRICES: Mapping[str, float] = {"l40s": 1.0, "a100-80gb-sxm": 1.8, "h100-sxm": 3.5}
"""An hour of each GPU in hours of an L40S. Made up: put in what you pay."""
TOLERANCE = 0.1
LEAST_COST = 7.0
"""Of all plans; a test searches for a cheaper one."""
DAYS = ("this day", "another day")


@dataclass(frozen=True)
class Plan:
    """So many GPUs of one kind, each with a copy of the model; the router gives each an equal part of the requests."""

    gpu: str
    gpus: int
    num_blocks: int
    max_num_batched_tokens: int

    @property
    def cost(self) -> float:
        """Dollars an hour."""
        return PRICES[self.gpu] * self.gpus

    def __str__(self) -> str:
        return f"{self.gpus} x {self.gpu}, {self.num_blocks:,} blocks and a budget of {self.max_num_batched_tokens:,} tokens each"


def plan_of(given: Plan | Mapping[str, Any]) -> Plan:
    """A plan, or the fields of one."""
    return given if isinstance(given, Plan) else Plan(**given)


def most_blocks(gpu: str) -> int:
    """Blocks that fit beside the weights on one GPU, by the formulas of lesson 02."""
    sizing = size(get_model(MODEL), get_gpu(gpu), block=BLOCK_SIZE)
    return sizing.budget // (sizing.kv_per_token_per_gpu * BLOCK_SIZE)


@cache
def trace(day: str) -> Trace:
    """Requests with the lengths and the bursts of chats; made up, like every trace of this course."""
    if day == DAYS[0]:
        return load_trace("synthetic_azure_conv.csv")
    return synthesize(profiles()["azure_conv"], 1000, seed=1)


@cache
def one_gpu(
    day: str, rate: float, gpu: str, num_blocks: int, budget: int, *, seconds: float = WINDOW, **options: Any
) -> SimulationSummary:
    """The busy half minute, or so many seconds, of one GPU that gets `rate` requests a second."""
    requests = trace(day).head(max(2, round(rate * seconds))).at_rate(rate)
    result = simulate(
        requests,
        model=MODEL,
        gpu=gpu,
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        max_num_batched_tokens=budget,
        prefix_cache=False,
        **options,
    )
    return summarize(result, ttft=TTFT, tpot=TPOT)


def simulated(plan: Plan, day: str = DAYS[0]) -> SimulationSummary:
    """One of the plan's GPUs: the others have the same to do. ValueError for a plan without GPUs."""
    if plan.gpus < 1:
        raise ValueError(f"gpus={plan.gpus}: a plan has at least one GPU")
    return one_gpu(day, RATE / plan.gpus, plan.gpu, plan.num_blocks, plan.max_num_batched_tokens)


def share_met(plan: Plan, day: str = DAYS[0]) -> float:
    """The share of requests, those turned away included, for which the promise is kept."""
    goodput = simulated(plan, day).goodput
    assert goodput is not None
    return goodput.share


def holds(plan: Plan) -> bool:
    """Whether the promised share is met on every day."""
    return all(share_met(plan, day) >= SHARE for day in DAYS)


def least_gpus(plan: Plan, most: int = 32) -> int | None:
    """The fewest GPUs with which this kind and these settings keep the promise on both days; None beyond `most`. By bisection."""

    def with_gpus(number: int) -> Plan:
        return Plan(plan.gpu, number, plan.num_blocks, plan.max_num_batched_tokens)

    if not holds(with_gpus(most)):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(with_gpus(middle)) else (middle, high)
    return high
