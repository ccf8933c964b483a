"""The simulator: the engine's own scheduler and cache, on a virtual clock that a `SimulatedBackend` moves on.

    arrive    requests whose time has come are queued, or turned away where the engine would raise
    plan      Scheduler.schedule(), the very one of the engine
    execute   the backend says how long the step takes; nothing is computed
    commit    Scheduler.commit(): every sequence that is computed to its end gets a token

When nothing is left to run, the clock jumps to the next arrival. Wall time has no influence: a trace and its options always
give the same result. Memory: a request's tokens are made when it arrives and dropped when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mini_engine.backends.simulated import SimulatedBackend
from mini_engine.cache import KVCacheManager
from mini_engine.config import EngineConfig
from mini_engine.engine.parts import make_parts
from mini_engine.scheduling import Chunk, Request, SampledToken, Scheduler, StepPlan
from mini_engine.scheduling.own import check_own_changes, check_own_plan
from mini_engine.scheduling.watch import NoProgressError, Watch
from mini_engine.simulator.prompts import output_token, prompt_maker
from mini_engine.simulator.result import Rejected, Served, SimulationResult, Step
from mini_engine.simulator.static_batch import StaticBatch
from mini_engine.workload import Trace


class Simulator:
    """One run of a trace. `scheduler` and `kv_manager` take classes of your own, as `LLMEngine` does."""

    def __init__(
        self,
        config: EngineConfig,
        backend: SimulatedBackend,
        *,
        scheduler: type[Scheduler] = Scheduler,
        kv_manager: type[KVCacheManager] = KVCacheManager,
        record: bool = False,
    ) -> None:
        self.backend = backend
        self.config, self.kv_manager, self.scheduler = make_parts(config, backend, scheduler, kv_manager)
        assert self.config.max_model_len is not None  # make_parts fills it in
        self.max_model_len = self.config.max_model_len
        self._is_own = type(self.scheduler) not in (Scheduler, StaticBatch)  # somebody's first try
        self._record = record
        self._live: dict[str, Served] = {}
        self._tokens: dict[str, tuple[SampledToken, SampledToken]] = {}  # a request's next token, and its last one

    def run(self, trace: Trace, progress: Callable[[int], object] = lambda num_ended: None) -> SimulationResult:
        """Serve a trace to its end; `progress` is told how many requests each step ended.

        NoProgressError when the scheduler plans nothing, or computes the same tokens over and over.
        """
        backend, scheduler = self.backend, self.scheduler
        self.result = SimulationResult(
            trace.name,
            len(trace),
            self.config.num_blocks,
            self.config.block_size,
            float(backend.cost.peak_flops),
            float(backend.cost.gpu.memory_bandwidth),
            limits=self._limits(),
            least_step=backend.cost.seconds(backend.cost.work([Chunk("", 0, 0, 1)], 1), 1),
        )
        self._prompt = prompt_maker(trace, compared=self.config.enable_prefix_caching)
        self._trace, self._next = trace.requests, 0
        self._watch = Watch()
        while self._next < len(trace) or scheduler.requests:
            if not scheduler.requests:
                backend.wait_until(trace.requests[self._next].arrival)
            num_turned_away = self._arrive()
            progress(num_turned_away + (self._step() if scheduler.requests else 0))
        result, usage = self.result, self.result.usage
        result.end = result.step_ends[-1] if result.step_ends else 0.0
        result.counters = scheduler.counters
        usage.busy, usage.moving = backend.busy_seconds, backend.move_seconds
        usage.flops, usage.bytes_read = backend.flops, backend.bytes_read
        usage.num_again = usage.num_tokens - sum(each.num_computed_once for each in result.served)
        moved = scheduler.counters.num_swapped_out_blocks + scheduler.counters.num_swapped_in_blocks
        usage.swapped_bytes = moved * self.config.block_size * backend.kv_bytes_per_token
        return result

    # -- arrivals ------------------------------------------------------------------------------------------------------

    def _arrive(self) -> int:
        """Queue those whose time has come; the number of those that were turned away."""
        now, before = self.backend.now, len(self.result.rejected)
        while self._next < len(self._trace) and self._trace[self._next].arrival <= now:
            number, wanted = self._next, self._trace[self._next]
            self._next += 1
            reason = self._impossible(wanted.num_prompt_tokens)
            if reason:
                self.result.rejected.append(Rejected(number, reason))
                continue
            most = min(wanted.num_output_tokens, self.max_model_len - wanted.num_prompt_tokens)
            request = Request(str(number), self._prompt(number, wanted), most)
            self._live[request.request_id] = Served(
                number, wanted.arrival, wanted.num_prompt_tokens, wanted.num_output_tokens
            )
            token = output_token(number)
            self._tokens[request.request_id] = (SampledToken(token), SampledToken(token, "length"))
            self.result.usage.in_system += now - wanted.arrival  # it was there since, though nobody had looked
            self.scheduler.add_request(request)
        return len(self.result.rejected) - before

    def _impossible(self, num_tokens: int) -> str:
        """Why a prompt could never run, in the same cases in which `LLMEngine.add_request` raises; "" for one that can."""
        config = self.config
        if num_tokens > self.max_model_len:
            return "longer than max_model_len"
        if -(-num_tokens // config.block_size) > config.num_blocks:
            return "larger than the pool"
        if not config.enable_chunked_prefill and num_tokens > config.max_num_batched_tokens:
            return "over the token budget"
        return ""

    def _limits(self) -> dict[str, str]:
        """What the reasons of `_impossible` mean here, and the remedy."""
        blocks, size = self.config.num_blocks, self.config.block_size
        return {
            "longer than max_model_len": f"which is {self.max_model_len:,}: raise it, or what is reserved for a request",
            "larger than the pool": f"which has {blocks:,} blocks of {size:,} tokens: give it more",
            "over the token budget": f"of {self.config.max_num_batched_tokens:,}: raise it, or compute prompts in chunks",
        }

    # -- one step ------------------------------------------------------------------------------------------------------

    def _step(self) -> int:
        """Plan, execute, commit; the number of requests that ended."""
        scheduler, backend, usage = self.scheduler, self.backend, self.result.usage
        plan = scheduler.schedule()
        if self._is_own:
            check_own_plan(scheduler, plan)
        if not plan.chunks and not plan.finished:
            raise NoProgressError("the plan computes nothing and ends nobody: the scheduler makes no progress")
        begin, num_live, held = backend.now, len(self._live), self.config.num_blocks - self.kv_manager.num_free_blocks
        tokens, num_empty = self._sample(plan, begin)
        num_computed = 0
        if plan.chunks or plan.cache_ops:
            chunks = self._computed(plan)
            backend.step(chunks, len(tokens), plan.cache_ops)
            num_computed = plan.num_tokens if chunks is plan.chunks else sum(chunk.num_tokens for chunk in chunks)
        changed = scheduler.commit(plan, tokens)
        if self._is_own:
            check_own_changes(changed)

        seconds, size = backend.now - begin, self.config.block_size
        usage.num_steps += 1
        usage.num_tokens += plan.num_tokens
        usage.num_padding += num_computed - plan.num_tokens
        usage.in_system += num_live * seconds
        usage.held_blocks += held * seconds
        usage.held_slots += held * size * seconds
        usage.used_slots += (held * size - num_empty) * seconds
        usage.most_blocks = max(usage.most_blocks, held)
        if self._record:
            step = Step(begin, backend.now, plan.chunks, num_computed, plan.preempted, plan.cache_ops)
            self.result.steps.append(step)
        for request_id, _ in plan.preempted:
            self._live[request_id].num_preemptions += 1
        self._watch.step(plan, bool(changed), scheduler.requests.values())
        return self._note(plan, changed)

    def _computed(self, plan: StepPlan) -> Sequence[Chunk]:
        """The chunks that the machine computes: those of the plan, padded where the scheduler pads."""
        padded: Callable[[StepPlan], Sequence[Chunk]] | None = getattr(self.scheduler, "padded", None)
        return plan.chunks if padded is None or not plan.chunks else padded(plan)

    def _sample(self, plan: StepPlan, begin: float) -> tuple[dict[tuple[str, int], SampledToken], int]:
        """A token for every sequence that is computed to its end, and the slots that stay empty in their last blocks."""
        requests, next_tokens, size = self.scheduler.requests, self._tokens, self.config.block_size
        tokens: dict[tuple[str, int], SampledToken] = {}
        num_empty = 0
        for request_id, index, start, n in plan.chunks:
            key = (request_id, index)
            request, end = requests[key], start + n
            num_empty += -end % size
            if end == len(request.token_ids):
                tokens[key] = next_tokens[request_id][end + 1 >= request.max_num_tokens]
            if start < request.num_prompt_tokens:
                served = self._live[request_id]
                if served.start is None:
                    served.start, served.num_cached_tokens = begin, request.num_cached_tokens
        return tokens, num_empty

    def _note(self, plan: StepPlan, changed: Sequence[Request]) -> int:
        """Write down who got a token in this step and who ended with it."""
        step = len(self.result.step_ends)
        self.result.step_ends.append(self.backend.now)
        num_ended = 0
        for request in changed:
            served = self._live[request.request_id]
            if not plan.finished or request.key not in plan.finished:
                served.add_token(step)
            if request.finish_reason is not None:
                served.finish_reason = request.finish_reason
                self.result.served.append(served)
                del self._live[request.request_id], self._tokens[request.request_id]
                num_ended += 1
        return num_ended
