"""Schedulers with one bug each: the engine's own, or its loops written out, with one thing done wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from mini_engine.course.bug_bank import Bug, BugBank, hand_out_class
from mini_engine.course.exercises import answers12_schedule as answers
from mini_engine.course.own_scheduler import make_scheduler
from mini_engine.outputs import FinishReason
from mini_engine.scheduling import Request, SampledToken, Scheduler, StepPlan
from mini_engine.scheduling.plan import Draft

Make = Callable[..., Scheduler]


class OtherOrder(Scheduler):
    """Right: within a step the order of the chunks says nothing."""

    def schedule(self) -> StepPlan:
        plan = super().schedule()
        return replace(plan, chunks=plan.chunks[::-1])


class _LosesSeats(Scheduler):
    """The seat of whoever has ended stays taken."""

    _num_ended = 0

    def finish(self, request: Request, reason: FinishReason) -> None:
        super().finish(request, reason)
        self._num_ended += 1

    @property
    def num_seats_taken(self) -> int:
        return super().num_seats_taken + self._num_ended


class _KeepsBlocks(Scheduler):
    """One block of whoever has ended stays taken."""

    def finish(self, request: Request, reason: FinishReason) -> None:
        self.kv.pool.touch(request.block_table[-1:])
        super().finish(request, reason)


class _EndsOneAStep(Scheduler):
    def commit(self, plan: StepPlan, result: Mapping[tuple[str, int], SampledToken]) -> list[Request]:
        given, ended = dict(result), 0
        for key, token in result.items():
            ended += token.finish_reason is not None
            if ended > 1:
                given[key] = SampledToken(token.token_id)
        return super().commit(plan, given)


class _BudgetForEach(answers.Loops):
    """Compares each prompt with the whole budget, not with what is left of it."""

    def schedule_waiting(self, draft: Draft) -> None:
        while (request := self.next_in_line()) is not None:
            draft.budget = self.config.max_num_batched_tokens
            if not self.may_start(request) or not self.start(request, draft):
                return


class _RestsAfterThePrompt(answers.Loops):
    def schedule_running(self, draft: Draft) -> None:
        rested: set[Request] = getattr(self, "_rested", set())
        new = {request for request in self.running if request.num_output_tokens == 1} - rested
        self._rested = rested | new
        if len(new) < len(self.running):
            for request in new:
                self.running.remove(request)
            super().schedule_running(draft)
            self.running += new
        else:
            super().schedule_running(draft)


class _ForgetsTheEmpty(Scheduler):
    """Who asks for no token never ends."""

    def schedule(self) -> StepPlan:
        return replace(super().schedule(), finished=())


RIGHT = {"the engine's own": Scheduler, "written another way": answers.ServedSet, "chunks in another order": OtherOrder}

WRONG = {
    "nobody joins": Bug(answers.WholeBatch, "Let one come while another runs. There is a seat for it."),
    "one start a step": Bug(answers.OneStart, "Two come at once, and two seats are free."),
    "prompts first": Bug(answers.PromptsFirst, "Somebody decodes, and a new one comes: both belong into the step."),
    "the last is not served": Bug(answers.SkipsTheLast, "Three run. Does each of them get a token in every step?"),
    "rests after its prompt": Bug(
        _RestsAfterThePrompt, "One comes while another decodes. Does it decode in the step after its prompt?"
    ),
    "one seat too many": Bug(answers.OneSeatMore, "More requests than max_num_seqs: how many run in one step?"),
    "a seat a request": Bug(
        answers.CountsRequests, "Two seats, and one that wants two answers, (4, 2, 0, 2): who starts beside it?"
    ),
    "loses seats": Bug(_LosesSeats, "Let more come than there are seats, one after the other. How many run later on?"),
    "keeps a block": Bug(_KeepsBlocks, "At the end everybody has gone: scheduler.kv.num_free_blocks is all there are."),
    "ends one a step": Bug(_EndsOneAStep, "Two get their last token in the same step. Count the steps of each."),
    "overtakes": Bug(
        answers.OvertakesByBudget, "The first in line does not fit into the step, and a short one behind it would."
    ),
    "last come first": Bug(answers.LastComeFirst, "One seat, three requests: in which order do they start?"),
    "a budget for each": Bug(
        _BudgetForEach, "Two prompts that fit into max_num_batched_tokens one by one, and not together."
    ),
    "waits when alone": Bug(
        answers.AlwaysAsks, "make(num_blocks=4, watermark=0.25) and a prompt that needs all four blocks."
    ),
    "forgets the empty": Bug(_ForgetsTheEmpty, 'One that asks for no token, "a": (4, 0), ends too.'),
}


def _hand_out(kind: type[Scheduler]) -> Make:
    def make(**options: Any) -> Scheduler:
        return make_scheduler(hand_out_class(kind, "Scheduler"), **options)

    return make


SCHEDULER_BUGS = BugBank("scheduler", RIGHT, WRONG, _hand_out, crash_counts=True)
