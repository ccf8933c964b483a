"""The scheduler: at every step it decides anew which sequences run, and on which tokens (Orca, Yu et al. 2022, OSDI).

    plan      schedule()              who runs, who waits, who makes room: blocks change hands, nothing is computed
    execute   (a backend)             the cache operations in order, then one forward pass over all chunks
    commit    commit(plan, result)    tokens count as computed, full blocks can be found, sampled tokens are appended
    or        rollback(plan)          execution failed: whatever it may have spoilt is given up

There is no prefill phase and no decode phase. Every running sequence has computed tokens that chase known ones, and one
token budget is shared by all (Sarathi-Serve, Agrawal et al. 2024, OSDI). Integers only: no tensor comes in here.
"""

from __future__ import annotations

from collections.abc import Mapping

from mini_engine.arguments import shown
from mini_engine.cache import KVCacheManager, NoFreeBlocksError
from mini_engine.config import EngineConfig
from mini_engine.scheduling.admission import Admission
from mini_engine.scheduling.counters import Counters
from mini_engine.scheduling.own import check_preempted, whole, yes
from mini_engine.scheduling.plan import Draft, SampledToken, StepPlan
from mini_engine.scheduling.policies import POLICIES
from mini_engine.scheduling.preemption import PREEMPTIONS, Recompute
from mini_engine.scheduling.queues import Queues
from mini_engine.scheduling.request import Request, RequestStatus

IN_VAIN = 1000  # times that make_room may find no room in one step, although nobody leaves


class Scheduler(Queues):
    """Iteration-level scheduling of requests over the blocks of a KVCacheManager.

    For a scheduler of your own, override one method:

        schedule_running   serve the running sequences, in order      chunk_size    how many tokens one of them gets
        schedule_waiting   start waiting ones with what is left       admit         who may start beside the running
        make_room          blocks for the next tokens                 start         first blocks and first chunk
        pick_victim        who gives up its blocks                    preempt       what giving up means

    Progress: while anything is unfinished, every step computes a token or ends a sequence. The first in `running` can
    take the blocks of all others, and a sequence that has the pool to itself starts without further conditions.
    """

    def __init__(self, config: EngineConfig, kv: KVCacheManager) -> None:
        super().__init__(config, kv, POLICIES[config.policy]())
        self.preemption: Recompute = PREEMPTIONS[config.preemption]()
        self.admission = Admission(config, kv)
        self.counters = Counters()
        self._draft: Draft | None = None  # behind the plan that awaits its commit or rollback

    # -- plan ----------------------------------------------------------------------------------------------------------

    def schedule(self) -> StepPlan:
        """Decide one step. RuntimeError while the last plan awaits its commit or rollback."""
        if self._draft is not None:
            raise RuntimeError("the last plan was neither committed nor rolled back: do one of them first")
        draft = self._draft = Draft(self.config.max_num_batched_tokens)
        try:
            self.schedule_running(draft)
            if not draft.preempted:  # nobody starts on blocks that somebody has just had to give up
                self.schedule_waiting(draft)
        except BaseException:
            self._undo()
            raise
        return draft.plan(finished=self.ending)

    def schedule_running(self, draft: Draft) -> None:
        """Give every running sequence its next tokens, in the order in which they started."""
        running, position, num_vain = self.running, 0, 0
        while position < len(running) and draft.budget > 0:
            request = running[position]
            num_missing = len(request.token_ids) - request.num_computed_tokens
            num_tokens = whole("chunk_size", self.chunk_size(num_missing, draft.budget, len(running) - position - 1))
            draft.check(request, num_tokens, num_missing)
            num_running = len(running)
            if yes("make_room", self.make_room(request, num_tokens, position, draft)):
                draft.add_chunk(request, num_tokens)
                position += 1
            elif len(running) == num_running and (num_vain := num_vain + 1) == IN_VAIN:
                raise ValueError(
                    f"make_room returned False for {request}, and nobody left: preempt one, or return True"
                )

    def chunk_size(self, num_missing: int, budget: int, num_behind: int) -> int:
        """How many of a sequence's `num_missing` tokens this step computes, with `budget` left and others still behind.

        Each of those is owed one token: a long prompt in front never holds up the decodes.
        """
        return min(num_missing, max(1, budget - num_behind))

    def make_room(self, request: Request, num_tokens: int, position: int, draft: Draft) -> bool:
        """Get blocks for the next tokens, if need be from those not served yet. False: it had to go itself."""
        while True:
            try:
                draft.cache_ops += self.kv.append(request, num_tokens)
                return True
            except NoFreeBlocksError:
                if len(self.running) == 1:  # it has the whole pool, and needs more
                    self.end(request)
                    return False
            not_served = self.running[position:]
            victim = self.pick_victim(not_served)
            if victim not in not_served:
                raise ValueError(f"pick_victim returned {victim}: choose one of {not_served}")
            num_tokens_before = victim.num_tokens
            self.preempt(victim, draft)
            check_preempted(self, victim, num_tokens_before)
            if victim is request:
                return False

    def pick_victim(self, running: list[Request]) -> Request:
        """Which of `running` (the sequences not served yet in this step, in order of service) gives up its blocks."""
        return self.policy.pick_victim(running)

    def preempt(self, victim: Request, draft: Draft) -> None:
        """Take the blocks of a running sequence; it waits in front of those that have not started yet."""
        self.running.remove(victim)
        draft.cache_ops += self.preemption.preempt(victim, self.kv)
        draft.preempted.append(victim)
        self.waiting.add(victim)
        self.counters.num_preemptions += 1

    def schedule_waiting(self, draft: Draft) -> None:
        """Start sequences in the policy's order until one does not fit: nobody overtakes it."""
        while self.waiting and draft.budget > 0:
            request = self.waiting.first()
            if self.admission.num_blocks(request.num_tokens) > self.config.num_blocks:  # outgrew the pool, then lost it
                self.end(request)
            elif not self._may_start(request) or not yes("start", self.start(request, draft)):
                return
            elif request in self.waiting:
                raise ValueError(f"start returned True, and {request} still waits: take it out, or return False")

    def _may_start(self, request: Request) -> bool:
        if not self.running:
            return True
        has_seat = self.num_seats_taken + request.num_seqs <= self.config.max_num_seqs
        return has_seat and yes("admit", self.admit(request))

    def admit(self, request: Request) -> bool:
        """Whether a waiting sequence may start beside the running ones. Not asked when nothing runs."""
        budget = self._draft.budget if self._draft is not None else self.config.max_num_batched_tokens
        return self.admission.fits(request, self.running, budget)

    def start(self, request: Request, draft: Draft) -> bool:
        """Give a waiting sequence its first blocks and its first chunk. The cache is asked now: an older hit is stale."""
        if request not in self.waiting:
            raise ValueError(f"start: {shown(request)} does not wait; start only who waits, and once")
        swapped = request.status is RequestStatus.SWAPPED
        computed = request.num_computed_tokens if swapped else len(self.kv.match(request)) * self.config.block_size
        remaining = request.num_tokens - computed
        num_tokens = whole("chunk_size", self.chunk_size(remaining, draft.budget, 0))
        if num_tokens < remaining <= self.config.max_num_batched_tokens and not self.config.enable_chunked_prefill:
            return False  # one that can never be computed in one step has grown while it ran: it is cut all the same
        draft.check(request, num_tokens, remaining)
        try:
            if swapped:
                if self.admission.num_blocks(computed + num_tokens) > self.kv.num_free_blocks:
                    return False
                draft.cache_ops += self.kv.swap_in(request)
                draft.cache_ops += self.kv.append(request, num_tokens)
            else:
                self.kv.allocate(request, computed + num_tokens)
                request.num_computed_tokens = computed
                draft.num_hit_tokens += computed
        except NoFreeBlocksError:
            return False
        if request.status is RequestStatus.WAITING:
            request.num_cached_tokens = computed
        draft.started.append((request, request.status))
        self.waiting.remove(request)
        self._run(request)
        draft.add_chunk(request, num_tokens)
        return True

    # -- commit, or roll back ------------------------------------------------------------------------------------------

    def commit(self, plan: StepPlan, result: Mapping[tuple[str, int], SampledToken]) -> list[Request]:
        """Make an executed plan true; returns the sequences that gained a token or ended.

        `result` holds a token for every sequence that the plan computes to its end, and for the branches it waits to
        fork. A sequence that was aborted in between is skipped: its late token belongs to nobody.
        """
        draft = self._take_draft()
        changed: list[Request] = []
        num_decodes = 0
        for request_id, index, start, num_tokens in plan.chunks:
            request = self.requests.get((request_id, index))
            if request is None or request.status is not RequestStatus.RUNNING or request.num_computed_tokens != start:
                continue
            end = request.num_computed_tokens = start + num_tokens
            num_decodes += num_tokens == 1 and start >= request.num_prompt_tokens
            if end // self.kv.block_size > start // self.kv.block_size:
                self.kv.publish(request)
            if end == len(request.token_ids):
                branches = [request, *self._fork_pending(request)] if request.num_pending_branches else [request]
                for branch in branches:
                    token_id, finish_reason = result[branch.key]
                    branch.token_ids.append(token_id)
                    if finish_reason is not None:
                        self.finish(branch, finish_reason)
                changed += branches
        for key in plan.finished:
            ended = self.requests.get(key)
            if ended in self.ending:
                self.finish(ended, "length" if ended.num_tokens >= ended.max_num_tokens else "capacity")
                changed.append(ended)
        self.counters.num_decode_tokens += num_decodes
        self.counters.num_prefill_tokens += plan.num_tokens - num_decodes
        self.counters.num_prefix_hit_tokens += draft.num_hit_tokens
        self.counters.add_ops(plan.cache_ops)
        return changed

    def _fork_pending(self, request: Request) -> list[Request]:
        num_branches, request.num_pending_branches = request.num_pending_branches, 0
        return [self.fork(request, index) for index in range(1, num_branches + 1)]

    @property
    def has_plan(self) -> bool:
        """Whether a plan awaits its commit or rollback."""
        return self._draft is not None

    def rollback(self, plan: StepPlan | None = None) -> None:
        """Take back a plan whose execution failed: nothing counts as computed, and no block may hold a doubtful K/V.

        Who started in this step waits again. Who was preempted stays so, as its blocks may be overwritten. The others
        keep what they had, except where a copy or a swap may not have happened: those are computed again.
        """
        self._undo()

    def _undo(self) -> None:
        draft = self._take_draft()
        if self.is_torn:
            self.start_over()
            return
        for request, before in draft.started:
            if request.status is RequestStatus.RUNNING:
                self._requeue(request, before if before is RequestStatus.WAITING else RequestStatus.PREEMPTED)
        copied = {op.dst for op in draft.cache_ops if op.kind == "copy"}
        for request in list(self.running):
            if copied and not copied.isdisjoint(request.block_table):
                self._requeue(request, RequestStatus.PREEMPTED)
            else:
                self.kv.trim(request)
        for request in draft.preempted:
            if request.status is RequestStatus.SWAPPED:
                self.kv.free(request)
                request.num_computed_tokens = 0
                request.status = RequestStatus.PREEMPTED

    def _take_draft(self) -> Draft:
        if self._draft is None:
            raise RuntimeError("there is no plan to commit or roll back: call schedule() first")
        draft, self._draft = self._draft, None
        return draft
