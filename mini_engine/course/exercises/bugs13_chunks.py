"""Chunked prefill with one bug each: the engine's own scheduler, with one or two of its methods overridden."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from mini_engine.cache import KVCacheManager
from mini_engine.config import EngineConfig
from mini_engine.course.bug_bank import Bug, BugBank
from mini_engine.course.chunk_requests import ChunkRun
from mini_engine.course.exercises.answers13_chunk_size import by_sorting, greedy, scheduler_with
from mini_engine.scheduling import Chunk, Request, SampledToken, Scheduler, StepPlan
from mini_engine.scheduling.plan import Draft

Tokens = Mapping[tuple[str, int], SampledToken]


class OnATree(Scheduler):
    """Right: its prefix cache is a radix tree."""

    def __init__(self, config: EngineConfig, kv: KVCacheManager) -> None:
        super().__init__(config, KVCacheManager(config.num_blocks, config.block_size, prefix_index="radix"))


class ListedBackwards(Scheduler):
    """Right: who is served last stands first in the list of a step."""

    def schedule(self) -> StepPlan:
        plan = super().schedule()
        return replace(plan, chunks=plan.chunks[::-1])


RIGHT = {
    "the engine's own": Scheduler,
    "chunk_size written another way": scheduler_with(by_sorting),
    "with a radix tree": OnATree,
    "listed the other way round": ListedBackwards,
}


def missing(request: Request) -> int:
    return len(request.token_ids) - request.num_computed_tokens


class SamplesEveryChunk(Scheduler):
    """Takes a token from the logits of every chunk."""

    def commit(self, plan: StepPlan, result: Tokens) -> list[Request]:
        changed = super().commit(plan, result)
        for name, index, _, _ in plan.chunks:
            request = self.requests.get((name, index))
            if request is not None and request not in changed:
                request.token_ids.append(result[request.key].token_id)
        return changed


def _shifted(by: int) -> type[Scheduler]:
    class Shifted(Scheduler):
        """Starts the next chunk of a prompt beside the end of the last one."""

        def commit(self, plan: StepPlan, result: Tokens) -> list[Request]:
            changed = super().commit(plan, result)
            for request in self.running:
                if missing(request) > 1 and request not in changed:
                    if by > 0:
                        self.kv.append(request, by)
                    request.num_computed_tokens += by
            return changed

    return Shifted


class _DecodesOnTop(Scheduler):
    def schedule(self) -> StepPlan:
        own, num_decodes = self.config, sum(missing(request) == 1 for request in self.running)
        self.config = replace(own, max_num_batched_tokens=own.max_num_batched_tokens + num_decodes)
        try:
            return super().schedule()
        finally:
            self.config = own


class _ServesOnly(Scheduler):
    """Serves some of the running, and gives the others nothing in this step."""

    def among(self, running: list[Request]) -> list[Request]:
        return running

    def schedule_running(self, draft: Draft) -> None:
        everybody, self.running = self.running, self.among(self.running)
        served = list(self.running)
        try:
            super().schedule_running(draft)
        finally:
            gone = [request for request in served if request not in self.running]
            self.running = [request for request in everybody if request not in gone]


class _PromptsAlone(_ServesOnly):
    def among(self, running: list[Request]) -> list[Request]:
        return [request for request in running if missing(request) > 1] or list(running)


class _EmptyLastChunk(_ServesOnly):
    """A prompt whose last chunk fills the budget is told apart from one that goes on only by a further, empty chunk."""

    def among(self, running: list[Request]) -> list[Request]:
        return [request for request in running if missing(request) > 0]

    def schedule_running(self, draft: Draft) -> None:
        draft.chunks += [Chunk(*r.key, r.num_computed_tokens, 0) for r in self.running if not missing(r)]
        super().schedule_running(draft)

    def commit(self, plan: StepPlan, result: Tokens) -> list[Request]:
        full = [
            self.requests[name, index]
            for name, index, start, n in plan.chunks
            if n == self.config.max_num_batched_tokens > 1 and start + n == self.requests[name, index].num_prompt_tokens
        ]
        for request in full:
            request.token_ids.append(0)  # so that it does not look computed to its end
        changed = super().commit(plan, result)
        for request in full:
            request.token_ids.pop()
        return changed


class _ComputesHitsAgain(Scheduler):
    def start(self, request: Request, draft: Draft) -> bool:
        if request.num_tokens <= draft.budget:
            return super().start(request, draft)
        self.kv.match = lambda request: []  # type: ignore[method-assign]
        try:
            return super().start(request, draft)
        finally:
            del self.kv.match  # type: ignore[method-assign]


class _WaitsForRoom(Scheduler):
    def start(self, request: Request, draft: Draft) -> bool:
        whole = request.num_tokens <= draft.budget
        return super().start(request, draft) if whole or not self.running else False


WRONG = {
    "samples after every chunk": Bug(
        SamplesEveryChunk,
        "Send a prompt longer than the budget: is its answer the right one, and as long as it should be?",
    ),
    "the next chunk starts one too late": Bug(
        _shifted(1), "A token was never computed. Does the answer show it? Do the chunks join?"
    ),
    "the next chunk starts one too early": Bug(
        _shifted(-1), "A token is computed twice. The answer does not show it: add up the chunks."
    ),
    "decodes come on top of the budget": Bug(
        _DecodesOnTop, "Let somebody decode, then send a long prompt: how many tokens has a step?"
    ),
    "a prompt in front takes all": Bug(
        scheduler_with(greedy), "Let somebody decode, then send a long prompt with priority=-1: who gets a token?"
    ),
    "prompts go alone": Bug(
        _PromptsAlone, "Let somebody decode while a long prompt is computed: who is in every step?"
    ),
    "an empty last chunk": Bug(
        _EmptyLastChunk, "Send a prompt of exactly twice the budget. How many steps, and how many tokens in each?"
    ),
    "a prefix hit is computed again": Bug(
        _ComputesHitsAgain, "Send a prompt longer than the budget twice. Where does the second one start?"
    ),
    "a prompt waits until it fits whole": Bug(
        _WaitsForRoom, "Let somebody decode, then send a prompt longer than the budget: does it start in the next step?"
    ),
}


def _make(kind: Any) -> Callable[[int], ChunkRun]:
    return partial(ChunkRun, kind)


CHUNK_BUGS = BugBank("scheduler", RIGHT, WRONG, _make, crash_counts=True)
"""Each is handed out as make(budget), which gives a `ChunkRun`."""
