"""Schedulers with one bug each in how they preempt: the engine's own, with one method of it overridden."""

from __future__ import annotations

from typing import Any

from mini_engine.cache import NoFreeBlocksError
from mini_engine.course.bug_bank import Bug, BugBank, hand_out_class
from mini_engine.course.exercises.answers14_recompute import BackOfTheQueue, LosesTheAnswer, LosesTheLastToken
from mini_engine.course.exercises.answers14_room import CountsBlocks, DropsTheCopies, OneAtATime, PreemptsTheLast
from mini_engine.scheduling import Request, RequestStatus, Scheduler


class WaitsForAllOthers(Scheduler):
    """Right, and slower: a victim comes back when nobody runs any more."""

    def schedule_waiting(self, draft: Any) -> None:
        if not (self.running and self.waiting and self.waiting.first().num_starts > 0):
            super().schedule_waiting(draft)


class _LeaksABlock(Scheduler):
    def preempt(self, victim: Request, draft: Any) -> None:
        self.kv.pool.touch(victim.block_table[-1:])
        super().preempt(victim, draft)


class _GoesOnWhereItStopped(Scheduler):
    def preempt(self, victim: Request, draft: Any) -> None:
        self._computed = {**getattr(self, "_computed", {}), victim: victim.num_computed_tokens}
        super().preempt(victim, draft)

    def start(self, request: Request, draft: Any) -> bool:
        computed = getattr(self, "_computed", {}).pop(request, 0)
        if not computed or request.status is RequestStatus.SWAPPED:
            return super().start(request, draft)
        try:
            self.kv.allocate(request, request.num_tokens)
        except NoFreeBlocksError:
            self._computed[request] = computed
            return False
        request.num_computed_tokens = computed
        draft.started.append((request, request.status))
        self.waiting.remove(request)
        self._run(request)
        draft.add_chunk(request, request.num_tokens - computed)
        return True


class _TakesFromTheFirst(Scheduler):
    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        while (
            self.kv.num_blocks_to_append(request, num_tokens) > self.kv.num_free_blocks
            and self.running[0] is not request
        ):
            self.preempt(self.running[0], draft)
        return super().make_room(request, num_tokens, min(position, len(self.running) - 1), draft)


class AfterYou(Scheduler):
    """Whoever waits gets the blocks of whoever runs."""

    def schedule_running(self, draft: Any) -> None:
        if self.waiting and self.running and not self.admit(self.waiting.first()):
            next_one = self.waiting.first()
            for request in list(self.running):
                self.preempt(request, draft)
            self.start(next_one, draft)
        else:
            super().schedule_running(draft)


class _KeepsSomeFree(Scheduler):
    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        while self.kv.num_free_blocks < 2 and len(self.running) > position + 1:
            self.preempt(self.running[-1], draft)
        return super().make_room(request, num_tokens, position, draft)


class _TheFirstGoes(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return running[0]


class _SwapsWithoutCopies(Scheduler):
    def preempt(self, victim: Request, draft: Any) -> None:
        before = len(draft.cache_ops)
        super().preempt(victim, draft)
        del draft.cache_ops[before:]


class _NeedsHostRoom(Scheduler):
    def preempt(self, victim: Request, draft: Any) -> None:
        super().preempt(victim, draft)
        if victim.status is RequestStatus.PREEMPTED and self.config.preemption == "swap":
            raise NoFreeBlocksError(len(victim.block_table), self.kv.num_free_swap_blocks, where="host")


class _EndsTheVictim(Scheduler):
    def preempt(self, victim: Request, draft: Any) -> None:
        if victim.num_starts > 1:
            draft.preempted.append(victim)
            self.end(victim)
        else:
            super().preempt(victim, draft)


RIGHT = {
    "the engine's own": Scheduler,
    "it counts blocks": CountsBlocks,
    "one victim at a time": OneAtATime,
    "its victims wait": WaitsForAllOthers,
}

WRONG = {
    "back of the queue": Bug(BackOfTheQueue, "Three requests and max_num_seqs=2: who starts first, the victim or the third?"),
    "loses the answer": Bug(LosesTheAnswer, "The tokens sampled before the preemption: compare with a run in a large pool."),
    "loses the last token": Bug(LosesTheLastToken, "Compare the tokens, each of them, with a run in a large pool."),
    "leaks a block": Bug(_LeaksABlock, "How many blocks are free when all is over?"),
    "goes on where it stopped": Bug(
        _GoesOnWhereItStopped, "A victim that returns has no K and V. Let the others take its blocks, then look at its answer."
    ),
    "takes from one already served": Bug(_TakesFromTheFirst, "Let the second need a block when the first has none to spare."),
    "after you": Bug(
        AfterYou,
        "Two prompts of several chunks that do not fit together: max_num_batched_tokens=4, enable_prefix_caching=False.",
    ),
    "keeps some free": Bug(_KeepsSomeFree, "A pool in which all only just fit: how many preemptions are there?"),
    "the first goes": Bug(_TheFirstGoes, "Who is preempted: the one that started first, or last?"),
    "the copies are dropped": Bug(
        DropsTheCopies, "A sequence that shares a block copies it before it writes: n=2 in a pool with room."
    ),
    "swaps without copies": Bug(
        _SwapsWithoutCopies, "Run it with preemption='swap', num_swap_blocks=8, and look at the answers."
    ),
    "needs host room": Bug(_NeedsHostRoom, "preemption='swap' with fewer num_swap_blocks than the victim has blocks."),
    "twice is once too often": Bug(
        _EndsTheVictim, "Let one request be preempted twice: three that grow. Why did each end, with how many tokens?"
    ),
    "preempts the last one": Bug(
        PreemptsTheLast, "One request, alone, that grows beyond the pool: it should end with 'capacity'."
    ),
}  # fmt: skip

PREEMPTION_BUGS = BugBank("scheduler", RIGHT, WRONG, lambda kind: hand_out_class(kind, "Scheduler"), crash_counts=True)
