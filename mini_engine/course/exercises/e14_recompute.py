"""Lesson 14, exercise 3: to go means to give up the blocks, keep the tokens, and wait in front."""

from __future__ import annotations

import contextlib
import random
from typing import Any

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers14_recompute as answers
from mini_engine.course.exercises.preemption_cases import same_answers
from mini_engine.course.expect import expect_equal
from mini_engine.course.planted import planted
from mini_engine.course.tight_pool import serve
from mini_engine.scheduling import Request, Scheduler

CASE = (
    "6 blocks of 4, two seats; a, b and c: prompt 8, answer 12. In step 5 a needs a block, b has to go, c never started"
)
BEFORE = "b had 3 blocks, 8 tokens of its prompt and 5 of its answer, 12 of them computed"


class _Seen(Exception):
    """Enough: the first preemption is over."""


def _names(requests: Any) -> list[Any]:
    """Whose; what is no request stands for itself."""
    return [one.request_id if isinstance(one, Request) else f"{one!r}, not a request" for one in requests]


def first_preemption(kind: type[Scheduler]) -> dict[str, Any]:
    """What is true right after the first preemption of the case."""
    seen: dict[str, Any] = {}

    class Watched(kind):  # type: ignore[valid-type, misc]
        def preempt(self, victim: Request, draft: Any) -> None:
            free = self.kv.num_free_blocks
            seen["counted"], running = self.counters.num_preemptions, self.running
            super().preempt(victim, draft)
            seen["freed"] = self.kv.num_free_blocks - free
            seen["table"] = list(victim.block_table)
            seen["running"] = [request.request_id for request in self.running]
            seen["waiting"] = sorted(request.request_id for request in self.waiting)
            seen["next"] = self.waiting.first().request_id
            seen["same list"] = self.running is running
            seen["tokens"] = (victim.num_prompt_tokens, len(victim.token_ids))
            seen["computed"], seen["status"] = victim.num_computed_tokens, victim.status.value
            seen["told"] = _names(draft.preempted)
            seen["counted"] = self.counters.num_preemptions - seen["counted"]
            draft.preempted[:] = [one for one in draft.preempted if isinstance(one, Request)]  # the plan is taken back
            raise _Seen

    with contextlib.suppress(_Seen):
        serve(Watched, [(8, 12)] * 3, 6, max_num_seqs=2)
    return seen


def _after(kind: type[Scheduler], what: dict[str, tuple[Any, str]]) -> None:
    seen = first_preemption(kind)
    for name, (want, words) in what.items():
        expect_equal(seen[name], want, f"{CASE}; {BEFORE}\n{words}")


def _blocks(kind: type[Scheduler]) -> None:
    _after(kind, {"freed": (3, "free blocks more than before"), "table": ([], "b's block table")})


def preempted(kind: type[Scheduler], names: str) -> dict[str, Any]:
    """What is true when all of `names` had to go in one step, one after the other, whoever was chosen."""
    seen: dict[str, Any] = {}

    class Watched(kind):  # type: ignore[valid-type, misc]
        def preempt(self, victim: Request, draft: Any) -> None:
            by_name = {request.request_id: request for request in self.running}
            arrivals = {name: by_name[name].arrival for name in names}
            self.counters.num_preemptions = 5
            for name in names:
                super().preempt(by_name[name], draft)
            seen["running"] = [request.request_id for request in self.running]
            seen["waiting"] = sorted(request.request_id for request in self.waiting)
            seen["next"] = self.waiting.first().request_id
            seen["moved"] = [name for name in names if by_name[name].arrival != arrivals[name]]
            seen["told"] = _names(draft.preempted)
            seen["counted"] = self.counters.num_preemptions
            draft.preempted[:] = [one for one in draft.preempted if isinstance(one, Request)]  # the plan is taken back
            raise _Seen

    with contextlib.suppress(_Seen):
        serve(Watched, [(8, 12)] * 3, 7)
    return seen


def _several(kind: type[Scheduler], names: str, what: dict[str, tuple[Any, str]]) -> None:
    seen = preempted(kind, names)
    for name, (want, words) in what.items():
        expect_equal(
            seen[name], want, f"a, b and c run, in this order. Preempted in one step: {', '.join(names)}\n{words}"
        )


def _queues(kind: type[Scheduler]) -> None:
    _after(
        kind,
        {
            "running": (["a"], "who runs"),
            "waiting": (["b", "c"], "who waits"),
            "next": ("b", "who starts next"),
            "same list": (True, "self.running is still the same list, which others hold too"),
        },
    )
    _several(kind, "b", {"running": (["a", "c"], "who runs"), "waiting": (["b"], "who waits")})
    moved: tuple[list[str], str] = ([], "whose request.arrival has changed")
    _several(kind, "cb", {"running": (["a"], "who runs"), "next": ("b", "who starts next"), "moved": moved})


def _tokens(kind: type[Scheduler]) -> None:
    _after(kind, {"tokens": ((8, 13), "tokens of its prompt, and tokens in all")})
    same_answers(kind, [(8, 12), (8, 12)], 6)


def _nothing_computed(kind: type[Scheduler]) -> None:
    _after(kind, {"computed": (0, "b.num_computed_tokens"), "status": ("preempted", "b.status.value")})


def _is_told(kind: type[Scheduler]) -> None:
    _after(kind, {"told": (["b"], "draft.preempted"), "counted": (1, "self.counters.num_preemptions grew by")})
    both = {"told": (["c", "b"], "draft.preempted"), "counted": (7, "self.counters.num_preemptions, which was 5")}
    _several(kind, "cb", both)


def _whole_runs(kind: type[Scheduler]) -> None:
    draw = random.Random(3)
    for size in (2, 3, 4, 5):
        for caching in (True, False):
            requests = [(draw.randrange(2, 12), draw.randrange(4, 14)) for _ in range(size)]
            same_answers(
                kind, requests, 7, enable_prefix_caching=caching, admission="first_chunk", max_num_batched_tokens=8
            )


BLOCKS, QUEUES, TOKENS, COMPUTED, TOLD, WHOLE = (
    "its blocks are free at once",
    "it runs no longer, and waits in front of those that never started",
    "no token is lost",
    "nothing of it counts as computed, and its status says so",
    "the plan and the counter say so",
    "everybody gets the answer that a large pool gives",
)


def _instead(old: str, new: str) -> Any:
    return planted(answers.Recomputes, (old, new))


RECOMPUTE = Exercise(
    id="14.recompute",
    title="Preempt by recompute",
    reference=answers.Recomputes,
    methods=("preempt",),
    budget=400_000,
    properties=[
        Property(BLOCKS, _blocks),
        Property(QUEUES, _queues),
        Property(COMPUTED, _nothing_computed),
        Property(TOLD, _is_told),
        Property(TOKENS, _tokens),
        Property(WHOLE, _whole_runs),
    ],
    mutants=[
        Mutant("keeps the blocks", _instead("        self.kv.free(victim)\n", ""), BLOCKS, "Then a finds no block either."),
        Mutant("keeps the table", _instead("self.kv.free(victim)", "self.kv.pool.release(list(victim.block_table))"), BLOCKS, "kv.free gives the blocks back and clears the table."),
        Mutant("stays in running", answers.StaysInRunning, QUEUES, "A sequence is in one queue."),
        Mutant("another list", answers.AnotherList, QUEUES, "The scheduler is walking through that list."),
        Mutant("forgotten", answers.Forgotten, QUEUES, "In no queue, it would never be answered."),
        Mutant("back of the queue", answers.BackOfTheQueue, QUEUES, "It came before those that never started."),
        Mutant("pops the last", _instead("self.running.remove(victim)", "self.running.pop()"), QUEUES, "The victim may stand anywhere: with priorities it does."),
        Mutant("before all others", answers.BeforeAllOthers, QUEUES, "waiting.add sorts by arrival. Two victims keep their order."),
        Mutant("loses the answer", answers.LosesTheAnswer, TOKENS, "The user has read these tokens."),
        Mutant("loses the last token", answers.LosesTheLastToken, TOKENS, "The last token is sampled, though it has no K and V."),
        Mutant("answer becomes prompt", answers.AnswerBecomesPrompt, TOKENS, "They are computed like a prompt. But the prompt is what was sent."),
        Mutant("keeps the count", answers.KeepsTheCount, COMPUTED, "The K and V are gone."),
        Mutant("still running", answers.StillRunning, COMPUTED, "The status says which queue it is in."),
        Mutant("never started", answers.NeverStarted, COMPUTED, "WAITING is for those that have not started."),
        Mutant("silent", answers.Silent, TOLD, "Then somebody starts on its blocks in the same step."),
        Mutant("tells its name", answers.TellsItsName, TOLD, "The plan holds requests, not names."),
        Mutant("uncounted", answers.Uncounted, TOLD, "Preemptions are what an operator looks at first."),
        Mutant("forgets the first", answers.ForgetsTheFirst, TOLD, "Several may have to go in one step."),
        Mutant("counts the step's", answers.CountsTheSteps, TOLD, "The counter counts all preemptions, not those of a step."),
        Mutant("wrong the second time", answers.WrongTheSecondTime, WHOLE, "One request can be preempted many times."),
    ],
    alternatives=[answers.RecomputesByPart, Scheduler],
)  # fmt: skip
