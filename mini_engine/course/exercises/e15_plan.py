"""Lesson 15, the last exercise: a plan for a service, judged by the simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from mini_engine.course import capacity_plan as service
from mini_engine.course.capacity_plan import DAYS, LEAST_COST, PRICES, SHARE, TOLERANCE, TPOT, TTFT, Plan
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers15_plan as answers
from mini_engine.course.expect import expect, fail

FIELDS = {"gpu": str, "gpus": int, "num_blocks": int, "max_num_batched_tokens": int}
MOST_GPUS = 1000


def read(make: Callable[[], Any]) -> Plan:
    """What the learner's function returns, as a plan."""
    given = make()
    if type(given) is Plan:
        given = asdict(given)
    if type(given) is not dict or sorted(map(str, given)) != sorted(FIELDS):
        fail("my_plan()", expected=f"a service.Plan, or a dict with {', '.join(FIELDS)}", got=given)
    for name, kind in FIELDS.items():
        if type(given[name]) is not kind or (kind is int and not 1 <= given[name] <= 10**9):
            fail(
                f"my_plan(): {name}", expected="a word" if kind is str else "a whole number, 1 or more", got=given[name]
            )
    if given["gpu"] not in PRICES:
        fail("my_plan(): gpu", expected=f"one of {', '.join(PRICES)}", got=given["gpu"])
    expect(given["gpus"] <= MOST_GPUS, "my_plan(): gpus", expected=f"at most {MOST_GPUS}", got=given["gpus"])
    return Plan(**given)


def _is_a_plan(make: Callable[[], Any]) -> None:
    read(make)


def _fits(make: Callable[[], Any]) -> None:
    plan = read(make)
    most = service.most_blocks(plan.gpu)
    if plan.num_blocks > most:
        fail(
            f"{plan.num_blocks:,} blocks on {plan.gpu}",
            expected=f"at most {most:,}: the card, less the weights and 2 GB, in blocks of {service.BLOCK_SIZE} tokens",
            got=f"{plan.num_blocks:,}",
        )


def _keeps(day: str) -> Callable[[Callable[[], Any]], None]:
    def run(make: Callable[[], Any]) -> None:
        plan = read(make)
        share = service.share_met(plan, day)
        if share >= SHARE:
            return
        told = service.simulated(plan, day)
        enough = service.least_gpus(plan)
        fail(
            f"{plan}; {day}: {service.RATE / plan.gpus:.3g} requests/s for each",
            expected=f"{SHARE:.0%} of requests with TTFT <= {TTFT:g} s and TPOT <= {TPOT * 1000:g} ms",
            got=f"{share:.1%}; 90% have TTFT <= {told.ttft.p90 if told.ttft else 0:.2f} s and TPOT <= {1000 * told.tpot.p90 if told.tpot else 0:.0f} ms",
            with_these_settings="no number of GPUs will do"
            if enough is None
            else f"{enough} of them keep it on both days",
        )

    return run


def _cheap(make: Callable[[], Any]) -> None:
    plan = read(make)
    if plan.cost <= LEAST_COST * (1 + TOLERANCE):
        return
    enough = service.least_gpus(plan)
    fail(
        f"{plan} cost {plan.cost:.1f} an hour",
        expected=f"at most {LEAST_COST * (1 + TOLERANCE):.1f}, within {TOLERANCE:.0%} of the cheapest that we know",
        got=f"{plan.cost:.1f}",
        with_these_settings=f"{enough} GPUs keep the promise" if enough else "no number of GPUs will do",
    )


PLAN_, FITS, KEEPS, AGAIN, CHEAP = (
    "is a plan",
    "the blocks fit on the card",
    "keeps the promise on this day",
    "keeps it on another day",
    "costs little more than the least",
)

PLAN = Exercise(
    id="15.plan",
    title="Plan the service",
    reference=answers.seven_l40s,
    properties=[
        Property(PLAN_, _is_a_plan),
        Property(FITS, _fits),
        Property(KEEPS, _keeps(DAYS[0])),
        Property(AGAIN, _keeps(DAYS[1])),
        Property(CHEAP, _cheap),
    ],
    mutants=[
        Mutant("half a GPU", answers.changed(gpus=6.5), PLAN_, "Nobody rents half of one."),
        Mutant("no budget", answers.no_budget, PLAN_, "The budget of a step decides whether the promise is kept."),
        Mutant("the whole card", answers.changed(num_blocks=22_800), FITS, "The weights lie on the card, too: 48 GB are not all for K and V."),
        Mutant("GiB for GB", answers.changed(num_blocks=15_900), FITS, "48 GiB are more than the 48 GB of the card."),
        Mutant("half of the GPUs", answers.changed(gpus=3), KEEPS, "The queue grows for as long as the rush lasts."),
        Mutant("the usual budget", answers.changed(max_num_batched_tokens=2048), KEEPS, "Decodes wait for prompt chunks of 2,048 tokens."),
        Mutant("the smallest budget", answers.changed(max_num_batched_tokens=128), KEEPS, "Prompts take too many steps: the queue grows."),
        Mutant("few blocks", answers.changed(num_blocks=1_000), KEEPS, "Requests wait for blocks."),
        Mutant("made for this day", answers.changed(gpus=6), AGAIN, "91.5% on one day, less than 90% on the next."),
        Mutant("ten of them", answers.changed(gpus=10, max_num_batched_tokens=2048), CHEAP, "Three GPUs pay for a budget that nobody tuned."),
        Mutant("the wrong kind", answers.changed(gpu="a100-80gb-sxm", num_blocks=29_000), CHEAP, "It keeps the promise, and costs 12.6."),
    ],
    alternatives=[answers.two_h100, answers.seven_l40s_half_the_blocks, lambda: Plan(**answers.seven_l40s())],
    seconds=60.0,
)  # fmt: skip
