"""`Film`: what an engine did, event by event, as plain dicts that a picture can be drawn from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mini_engine.scheduling import StepPlan

if TYPE_CHECKING:
    from mini_engine.engine import LLMEngine


class Film:
    """Every event has "kind" and "step", the number of committed steps before it. Kinds and their further keys:

    pool       num_blocks, block_size, num_swap_blocks, kv_bytes_per_token (None for a backend without bytes)
    add        request_id, prompt_token_ids, priority
    step       chunks, cache_ops, preempted, finished (the plan), chunk_tables (the block table that each chunk ran on)
    rollback   error
    abort      request_id, index
    fork       request_id, index, new_index
    reset      done

    All but the first two end with the state that they left behind: sequences (each with its queue, tokens, computed
    tokens, blocks and host blocks), free_blocks in the order of reuse, cached_blocks, and ref_counts of blocks 1, 2, ...
    """

    def __init__(self, engine: LLMEngine) -> None:
        self.events: list[dict[str, Any]] = []
        self._engine = engine
        self._num_steps = 0
        self._chunk_tables: list[list[int]] = []
        config = engine.config
        self.record(
            "pool",
            num_blocks=config.num_blocks,
            block_size=config.block_size,
            num_swap_blocks=config.num_swap_blocks,
            kv_bytes_per_token=getattr(engine.backend, "kv_bytes_per_token", None),
        )

    def before_commit(self, plan: StepPlan) -> None:
        """Keep the tables that the plan ran on: a sequence that ends in the commit has none afterwards."""
        requests = self._engine.scheduler.requests
        self._chunk_tables = [list(requests[chunk.request_id, chunk.index].block_table) for chunk in plan.chunks]

    def record(self, kind: str, plan: StepPlan | None = None, **fields: Any) -> None:
        """Append an event: what was planned, if there is a plan, and the state that it left behind."""
        event = {"kind": kind, "step": self._num_steps, **fields}
        if plan is not None:
            event |= self._plan(plan)
            self._num_steps += 1
        if kind not in ("pool", "add"):
            event |= self._state()
        self.events.append(event)

    def _plan(self, plan: StepPlan) -> dict[str, Any]:
        return {
            "chunks": [chunk._asdict() for chunk in plan.chunks],
            "chunk_tables": self._chunk_tables,
            "cache_ops": [op._asdict() for op in plan.cache_ops],
            "preempted": [list(key) for key in plan.preempted],
            "finished": [list(key) for key in plan.finished],
        }

    def _state(self) -> dict[str, Any]:
        manager = self._engine.kv_manager
        pool = manager.pool
        host_blocks: Callable[[Any], list[int]] = getattr(manager, "host_blocks", lambda request: [])
        return {
            "sequences": [
                {
                    "request_id": request.request_id,
                    "index": request.index,
                    "status": request.status.value,
                    "token_ids": list(request.token_ids),
                    "num_prompt_tokens": request.num_prompt_tokens,
                    "num_computed_tokens": request.num_computed_tokens,
                    "block_table": list(request.block_table),
                    "host_blocks": list(host_blocks(request)),
                }
                for request in self._engine.scheduler.requests.values()
            ],
            "free_blocks": pool.free_blocks(),
            "cached_blocks": pool.published_blocks(),
            "ref_counts": [pool.ref_count(block) for block in range(1, pool.num_blocks + 1)],
        }
