"""What a scheduler of one's own may get wrong, named at once: the answers of its methods, and the plan it makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mini_engine.arguments import count, shown
from mini_engine.scheduling.plan import StepPlan
from mini_engine.scheduling.request import Request, RequestStatus

if TYPE_CHECKING:
    from mini_engine.scheduling.scheduler import Scheduler


def yes(method: str, answer: Any) -> bool:
    """The answer of a method that says yes or no. ValueError for another one, such as None where `return` is missing."""
    if answer is True or answer is False:
        return answer
    if type(answer).__name__ in ("bool", "bool_"):  # NumPy's
        return bool(answer)
    raise ValueError(f"{method} returned {shown(answer)}: return True or False")


def whole(method: str, answer: Any) -> int:
    """The answer of a method that says how many. ValueError for another one."""
    return answer if type(answer) is int else count(method, answer)


def check_preempted(scheduler: Scheduler, victim: Request, num_tokens: int) -> None:
    """ValueError when `preempt` left its victim running, with blocks, in no queue, or without some of its tokens."""
    swapped = victim.status is RequestStatus.SWAPPED
    if victim in scheduler.running or victim.status is RequestStatus.RUNNING:
        raise ValueError(f"preempt: {victim} still runs; take it out of `running` and set its status")
    if victim.block_table or (victim.num_computed_tokens and not swapped):
        raise ValueError(f"preempt: {victim} gave up its K/V; free its blocks and set num_computed_tokens to 0")
    if victim not in scheduler.waiting:
        raise ValueError(f"preempt: {victim} is in no queue; add it to `waiting`, or it never comes back")
    if victim.num_tokens != num_tokens:
        raise ValueError(f"preempt: {victim} had {num_tokens} tokens; keep them all, sampled ones too")


def check_own_plan(scheduler: Scheduler, plan: Any) -> None:
    """ValueError for a plan that cannot be executed: not a plan, over the budget, a chunk twice, or without its blocks.

    The engine's own scheduler makes no such plan, and is not watched: this takes time in every step.
    """
    if not isinstance(plan, StepPlan):
        raise ValueError(f"schedule returned {shown(plan)}: return a StepPlan, such as super().schedule() makes")
    budget, size = scheduler.config.max_num_batched_tokens, scheduler.kv.block_size
    if plan.num_tokens > budget:
        raise ValueError(f"the plan computes {plan.num_tokens} tokens, max_num_batched_tokens is {budget}")
    seen = set()
    for request_id, index, start, num_tokens in plan.chunks:
        key = (request_id, index)
        request = scheduler.requests.get(key)
        if key in seen:
            raise ValueError(f"the plan has two chunks of {request}: one step computes one chunk of a sequence")
        if request is None or request.status is not RequestStatus.RUNNING:
            raise ValueError(f"the plan has a chunk of {request or key}, which does not run: start it first")
        if start != request.num_computed_tokens:
            raise ValueError(f"the plan has a chunk of {request} from {start} on: begin where its computed tokens end")
        if len(request.block_table) * size < start + num_tokens:
            raise ValueError(
                f"the plan computes tokens {start} to {start + num_tokens - 1} of {request}, whose blocks hold "
                f"{len(request.block_table) * size}: make_room comes before add_chunk"
            )
        seen.add(key)


def check_own_changes(changed: Any) -> None:
    """ValueError unless `commit` returned the sequences that gained a token or ended."""
    if not isinstance(changed, list):
        raise ValueError(f"commit returned {shown(changed)}: return the list that super().commit(plan, result) returns")
