"""`Film`: what an engine did, event by event, as plain dicts that a picture can be drawn from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mini_engine.scheduling import StepPlan

if TYPE_CHECKING:
    from mini_engine.engine import LLMEngine


class Film:
    """Every event has "kind" and "step", the number of committed steps before it. Kinds and their further keys:

    add        request_id, prompt_token_ids, priority
    step       chunks, cache_ops, preempted, finished (the plan), sequences (each with its queue, tokens, computed tokens
               and blocks), free_blocks in the order of reuse, cached_blocks
    rollback   error
    abort      request_id, index
    fork       request_id, index, new_index
    reset      done
    """

    def __init__(self, engine: LLMEngine) -> None:
        self.events: list[dict[str, Any]] = []
        self._engine = engine
        self._num_steps = 0

    def record(self, kind: str, plan: StepPlan | None = None, **fields: Any) -> None:
        event = {"kind": kind, "step": self._num_steps, **fields}
        if plan is not None:
            event |= self._snapshot(plan)
            self._num_steps += 1
        self.events.append(event)

    def _snapshot(self, plan: StepPlan) -> dict[str, Any]:
        scheduler, pool = self._engine.scheduler, self._engine.kv_manager.pool
        return {
            "chunks": [chunk._asdict() for chunk in plan.chunks],
            "cache_ops": [op._asdict() for op in plan.cache_ops],
            "preempted": [list(key) for key in plan.preempted],
            "finished": [list(key) for key in plan.finished],
            "sequences": [
                {
                    "request_id": request.request_id,
                    "index": request.index,
                    "status": request.status.value,
                    "token_ids": list(request.token_ids),
                    "num_prompt_tokens": request.num_prompt_tokens,
                    "num_computed_tokens": request.num_computed_tokens,
                    "block_table": list(request.block_table),
                }
                for request in scheduler.requests.values()
            ],
            "free_blocks": pool.free_blocks(),
            "cached_blocks": pool.published_blocks(),
        }
