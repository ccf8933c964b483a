"""Serve requests from a pool that may be too small for them, and write down who computed what in which step.

run = serve(Scheduler, [(8, 12), (8, 12)], num_blocks=6)   # two prompts of 8 tokens, answers of 12
run.tokens["b"], run.ended["b"]                             # what b was answered, and why it ended
run.steps[5]                                                # ({"a": 1}, ["b"]): a computed a token, b was preempted
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mini_engine.backends import AuditBackend
from mini_engine.config import EngineConfig
from mini_engine.engine import LLMEngine
from mini_engine.sampling import SamplingParams
from mini_engine.scheduling import Scheduler

NAMES = "abcdefghijklmnopqrstuvwxyz"
PATIENCE = 60  # steps without a token for anybody, after which nobody will ever get one


class Stuck(RuntimeError):
    """The scheduler goes round in circles."""


@dataclass
class Run:
    """What came of the requests, which are called a, b, c and so on, in the order of their arrival."""

    tokens: dict[str, list[int]] = field(default_factory=dict)
    """The answer of each; with n branches a name holds them all, one after the other."""
    ended: dict[str, str | None] = field(default_factory=dict)
    """"length", "capacity" and so on; None while it is not at its end."""
    steps: list[tuple[dict[str, int], list[str]]] = field(default_factory=list)
    """For each step: the tokens that each computed in it, and who was preempted in it."""
    num_free: int = 0
    """Free blocks when all was over."""
    engine: Any = None

    @property
    def num_preemptions(self) -> int:
        """How often somebody was preempted."""
        return sum(len(preempted) for _, preempted in self.steps)

    @property
    def num_computed(self) -> int:
        """Tokens computed in all, again and again where it was necessary."""
        return sum(sum(computed.values()) for computed, _ in self.steps)

    def trace(self, last: int = 6) -> str:
        """The last steps, a line each."""
        lines = []
        for number, (computed, preempted) in list(enumerate(self.steps))[-last:]:
            who = ", ".join(f"{name} computes {n}" for name, n in computed.items()) or "nobody computes"
            lines.append(f"step {number}: {who}" + "".join(f", {name} is preempted" for name in preempted))
        return "\n".join(lines)


def prompt_of(name: str, length: int) -> list[int]:
    """A prompt that no other name's begins with."""
    draw = random.Random(name)
    return [NAMES.index(name), *(draw.randrange(64) for _ in range(length - 1))][:length]


def serve(
    scheduler: type[Scheduler],
    requests: Sequence[tuple[int, ...]],
    num_blocks: int,
    block_size: int = 4,
    *,
    n: int = 1,
    check: bool = False,
    run: Run | None = None,
    **options: Any,
) -> Run:
    """Serve requests that all arrive at once: (tokens of the prompt, tokens of the answer[, priority]) each.

    The K/V is checked by an AuditBackend: reading a slot that another wrote raises KVCorruption. check=True asks after each
    step whether the books are right. Stuck, instead of a run without end, when nobody gains a token in many steps, or one step never ends.
    `run` is filled while it goes, for whoever wants to see how far it came. Options are those of EngineConfig.
    """
    run = Run() if run is None else run
    config = EngineConfig(num_blocks=num_blocks, block_size=block_size, **options)
    engine = run.engine = LLMEngine(config, AuditBackend(), scheduler=scheduler, record=True)
    for name, (length, answer, *priority) in zip(NAMES, requests):
        params = SamplingParams(temperature=0, max_tokens=answer, ignore_eos=True, n=n, seed=0)
        engine.add_request(name, prompt_of(name, length), params, priority=priority[0] if priority else 0)
        run.tokens[name], run.ended[name] = [], None
    make_room = engine.scheduler.make_room
    asked: dict[int, int] = {}

    def counted(request: Any, *rest: Any) -> bool:
        step = len(run.steps)
        asked[step] = asked.get(step, 0) + 1
        if asked[step] > 10 * PATIENCE:
            raise Stuck(f"step {step} never ends: {request.request_id} is served again and again")
        return make_room(request, *rest)

    engine.scheduler.make_room = counted  # type: ignore[method-assign, assignment]
    idle = 0
    while engine.has_unfinished_requests():
        idle += 1
        for output in engine.step():
            answers = [token for branch in output.outputs for token in branch.token_ids]
            if len(answers) > len(run.tokens[output.request_id]):
                idle = 0
            run.tokens[output.request_id] = answers
            run.ended[output.request_id] = output.outputs[0].finish_reason if output.finished else None
        event = engine.film[-1]
        computed: dict[str, int] = {}
        for chunk in event["chunks"]:
            computed[chunk["request_id"]] = computed.get(chunk["request_id"], 0) + chunk["num_tokens"]
        run.steps.append((computed, [name for name, _ in event["preempted"]]))
        if check:
            engine.check_invariants()
        if idle > PATIENCE:
            waits = ", ".join(name for name, reason in run.ended.items() if reason is None)
            raise Stuck(f"{idle} steps without a token for anybody; {waits} would wait for ever")
    run.num_free = engine.stats().num_free_blocks
    return run
