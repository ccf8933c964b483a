"""`LLMEngine`: requests in, tokens out. Each `step()` plans, executes and commits once.

The life of a request: `add_request` checks it and queues it; `Scheduler.schedule` gives it blocks and a chunk of each step;
the backend computes the chunk; a token is sampled when the last known token has been computed; `Scheduler.commit` appends
it; and when it ends, its blocks are free before `step` returns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from mini_engine.arguments import COUNT_LIMIT, count
from mini_engine.backends.base import Backend
from mini_engine.backends.batch import BatchBuilder
from mini_engine.cache import KVCacheManager
from mini_engine.config import EngineConfig
from mini_engine.engine.film import Film
from mini_engine.engine.interrupts import interrupts_held
from mini_engine.engine.invariants import check_all
from mini_engine.engine.output_processor import Branch, OutputProcessor, RequestState
from mini_engine.engine.parts import make_parts
from mini_engine.engine.request_checks import check_names, checked_prompt
from mini_engine.engine.stats import EngineStats
from mini_engine.outputs import RequestOutput
from mini_engine.sampling import SamplingParams
from mini_engine.scheduling import Request, RequestStatus, SampledToken, Scheduler, StepPlan
from mini_engine.scheduling.own import check_own_changes, check_own_plan
from mini_engine.scheduling.watch import Watch


class LLMEngine:
    """A paged, continuously batched engine over any backend. `scheduler` and `kv_manager` take classes of your own.

    Without a tokenizer texts stay empty. With `record=True`, `film` is a list of plain dicts, one per event.
    """

    def __init__(
        self,
        config: EngineConfig,
        backend: Backend,
        *,
        tokenizer: Any = None,
        scheduler: type[Scheduler] = Scheduler,
        kv_manager: type[KVCacheManager] = KVCacheManager,
        record: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.backend = backend
        self.tokenizer = tokenizer
        self.clock = clock
        self.config, self.kv_manager, self.scheduler = make_parts(config, backend, scheduler, kv_manager)
        self._is_own = type(self.scheduler) is not Scheduler  # somebody's first try: its plans are looked at
        self._watch = Watch()
        self._batches = BatchBuilder(config.block_size)
        self._outputs = OutputProcessor()
        self._film = Film(self) if record else None

    # -- requests ------------------------------------------------------------------------------------------------------

    @interrupts_held()
    def add_request(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        sampling_params: SamplingParams | None = None,
        *,
        prompt: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
        adapter: str | None = None,
    ) -> None:
        """Queue a request. ValueError, and nothing changed, for one that could never run.

        A smaller priority number is served first (policy="priority"). Only requests with equal `cache_salt` and
        `adapter` share cached K/V. `prompt` is handed back in the outputs.
        """
        params = (SamplingParams() if sampling_params is None else sampling_params).seeded()
        if request_id in self._outputs.states:
            raise ValueError(f"request id {request_id!r} is in use: choose another, or wait for its last output")
        token_ids = self.check_request(prompt_token_ids, params)
        check_names({"request_id": request_id, "cache_salt": cache_salt, "adapter": adapter})
        assert self.config.max_model_len is not None
        max_tokens = min(params.max_tokens, self.config.max_model_len - len(token_ids))
        request = Request(
            request_id,
            token_ids,
            max_tokens,
            n=params.n,
            priority=count("priority", priority, minimum=-COUNT_LIMIT),
            cache_salt=cache_salt,
            adapter=adapter,
        )
        state = RequestState(
            request_id,
            prompt,
            token_ids,
            params,
            max_tokens=max_tokens,
            eos_token_ids=self.backend.eos_token_ids,
            tokenizer=self.tokenizer,
            arrival_time=self.clock(),
        )
        self.scheduler.add_request(request)
        self._outputs.states[request_id] = state
        self._record("add", request_id=request_id, prompt_token_ids=list(token_ids), priority=priority)

    def check_request(self, prompt_token_ids: Sequence[int], sampling_params: SamplingParams) -> list[int]:
        """The prompt as plain integers. ValueError for a request that could never run, with the limit and the remedy."""
        longest = self.config.max_model_len == self.backend.max_model_len
        note = getattr(self.backend, "window_note", "") if longest else ""
        return checked_prompt(prompt_token_ids, sampling_params, self.config, self.backend.vocab_size, note)

    @interrupts_held()
    def abort(self, request_id: str, index: int | None = None) -> bool:
        """End a request, or one branch of it, and free its blocks at once; the next step() returns its output.

        False when there is nothing to end: the id is unknown, or finished.
        """
        state = self._outputs.states.get(request_id)
        if state is None:
            return False
        ended = False
        for branch in state.branches if index is None else [self._branch(request_id, index)]:
            key = (request_id, branch.completion.index)
            if branch.completion.finished:
                continue
            request = self.scheduler.requests.get(key)
            if index is not None and (request is None or request.num_pending_branches):
                raise ValueError(f"branch {index} of {request_id!r} cannot be told apart before the prompt is computed")
            if request is not None:
                self.scheduler.finish(request, "abort")
                self._batches.forget(key)
            branch.end("abort")
            ended = True
        if ended:
            self._outputs.changed(state, self.clock())
            self._record("abort", request_id=request_id, index=index)
        return ended

    @interrupts_held()
    def fork(self, request_id: str, index: int = 0, *, last_token_id: int | None = None) -> int:
        """Start a new branch from a branch's tokens so far; returns its index. Every block is shared until written to.

        last_token_id: what the new branch has in place of the token that was sampled last. ValueError when the branch
        is unknown or finished, has no such token, or would end with it. While all seats are taken the new branch waits without blocks.
        """
        source = self.scheduler.requests.get((request_id, index))
        if source is None:
            raise ValueError(f"request {request_id!r} has no live branch {index} to fork")
        output_token_ids = source.token_ids[source.num_prompt_tokens :]
        if last_token_id is not None:
            last_token_id = count("last_token_id", last_token_id, minimum=0)
            if not output_token_ids or last_token_id >= self.backend.vocab_size:
                raise ValueError(
                    f"last_token_id={last_token_id}: needs a sampled token to replace, and one of the vocabulary"
                )
            output_token_ids[-1] = last_token_id
        new_index = self._outputs.fork(request_id, index, output_token_ids)
        self.scheduler.fork(source, new_index, last_token_id)
        self._record("fork", request_id=request_id, index=index, new_index=new_index)
        return new_index

    def _branch(self, request_id: str, index: int) -> Branch:
        branches = self._outputs.states[request_id].branches
        if not 0 <= index < len(branches):
            raise ValueError(f"request {request_id!r} has branches 0 to {len(branches) - 1}, not {index}")
        return branches[index]

    def has_unfinished_requests(self) -> bool:
        """Whether step() has anything left to do or to tell."""
        return bool(self._outputs.states)

    # -- the step ------------------------------------------------------------------------------------------------------

    def step(self) -> list[RequestOutput]:
        """Plan, execute, commit; the outputs so far of every request that changed. [] when there is nothing to do.

        When the backend raises, so does step(): the plan is rolled back and the next step works.
        """
        if self.scheduler.requests:
            plan = None
            try:
                with interrupts_held():
                    plan = self.scheduler.schedule()
                    if self._is_own:
                        check_own_plan(self.scheduler, plan)
                scheduled = self.clock()
                tokens = self._execute(plan)
                with interrupts_held():
                    self._commit(plan, tokens, scheduled)
            except BaseException as error:
                self._roll_back(plan, error)
                raise
        with interrupts_held():
            return self._outputs.take_unseen()

    def _commit(self, plan: StepPlan, tokens: dict[tuple[str, int], SampledToken], scheduled: float) -> None:
        if self._film is not None:
            self._film.before_commit(plan)
        changed = self.scheduler.commit(plan, tokens)
        if self._is_own:
            check_own_changes(changed)
            self._watch.step(plan, bool(changed), self.scheduler.requests.values())
        for request in changed:
            if request.finish_reason is not None:
                self._batches.forget(request.key)
        self._outputs.commit(plan, changed, scheduled, self.clock())
        self._record("step", plan=plan)

    def _execute(self, plan: StepPlan) -> dict[tuple[str, int], SampledToken]:
        """Run a plan on the backend and sample; a token for every sequence whose known tokens are now all computed."""
        if plan.cache_ops:
            self.backend.apply_ops(plan.cache_ops)
        if not plan.chunks:
            if not plan.finished:
                raise RuntimeError("the plan computes nothing and ends nobody: the scheduler makes no progress")
            return {}
        requests = self.scheduler.requests
        batch = self._batches.build(plan, requests)
        sampled = []
        for request_id, index, start, num_tokens in plan.chunks:
            request = requests[request_id, index]
            if start + num_tokens == len(request.token_ids):
                sampled.append(request)
        return self._outputs.sample(self.backend.execute(batch), sampled)

    @interrupts_held()
    def _roll_back(self, plan: StepPlan | None, error: BaseException) -> None:
        if not self.scheduler.has_plan:  # an interrupt that waited until the step was committed
            return
        self.scheduler.rollback(plan)
        self._outputs.rewind(list(self.scheduler.requests.values()))
        self._batches.clear()
        self._record("rollback", error=type(error).__name__)

    # -- looking in ----------------------------------------------------------------------------------------------------

    def stats(self) -> EngineStats:
        """Counts since the engine was made, and gauges of this moment."""
        waiting = [*self.scheduler.waiting, *self.scheduler.ending]
        num_swapped = sum(request.status is RequestStatus.SWAPPED for request in waiting)
        return EngineStats(
            **asdict(self.scheduler.counters),
            num_free_blocks=self.kv_manager.num_free_blocks,
            num_cached_blocks=self.kv_manager.num_cached_blocks,
            num_running=len(self.scheduler.running),
            num_waiting=len(waiting) - num_swapped,
            num_swapped=num_swapped,
        )

    def reset_prefix_cache(self) -> bool:
        """Forget all cached K/V, as after a change of weights. False, and nothing done, while any block is in use."""
        done = self.kv_manager.reset_prefix_cache()
        self._record("reset", done=done)
        return done

    def check_invariants(self) -> None:
        """AssertionError naming the invariant, the block and the request, if anything is inconsistent."""
        check_all(self)

    @property
    def film(self) -> list[dict[str, Any]]:
        """What happened, event by event; empty unless the engine was made with record=True."""
        return [] if self._film is None else self._film.events

    def _record(self, kind: str, **fields: Any) -> None:
        if self._film is not None:
            self._film.record(kind, **fields)
