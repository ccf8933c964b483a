"""Lesson 14, exercise 2: blocks for the next tokens, if need be somebody else's."""

from __future__ import annotations

import random
from typing import Any

from mini_engine.cache.ops import CacheOp
from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers14_room as answers
from mini_engine.course.exercises.preemption_cases import Requests, same_answers, served, told
from mini_engine.course.expect import expect, expect_equal, fail, show
from mini_engine.course.planted import planted
from mini_engine.course.tight_pool import NAMES, serve
from mini_engine.scheduling import Request, Scheduler, StepPlan

TRIES = 40  # more than there are requests in any case here


def watched(kind: type[Scheduler]) -> type[Scheduler]:
    """The learner's, with what it asks and returns looked at on the spot."""

    class Watched(kind):  # type: ignore[valid-type, misc]
        def pick_victim(self, running: list[Request]) -> Request:
            expect(bool(running), f"{self.asking} needs a block", expected="a choice", got="pick_victim([])")
            return super().pick_victim(running)  # type: ignore[no-any-return]

        def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
            self.asking, tries, append = request.request_id, 0, type(self.kv).append

            def counted(request: Request, num_tokens: int) -> Any:
                nonlocal tries
                tries += 1
                if tries > TRIES:
                    fail(f"{self.asking} needs a block", expected="an end", got=f"append was tried {TRIES} times")
                return append(self.kv, request, num_tokens)

            self.kv.append = counted
            try:
                made = super().make_room(request, num_tokens, position, draft)
            finally:
                del self.kv.append
            words = f"{self.asking} needs a block"
            odd = [op for op in draft.cache_ops if not isinstance(op, CacheOp)]
            draft.cache_ops[:] = [op for op in draft.cache_ops if isinstance(op, CacheOp)]  # the plan is taken back
            expect(
                not odd, f"{words}; draft.cache_ops", expected="copies, one after the other", got=f"in it {show(odd)}"
            )
            expect(
                made is True or made is False, f"{words}; make_room returned", expected="True or False", got=show(made)
            )
            blocks = len(request.block_table) if request in self.running else 0
            enough = blocks * self.kv.block_size >= request.num_computed_tokens + num_tokens
            if made and not enough:
                fail(
                    f"{words}; make_room returned True",
                    expected="it runs, with blocks for its tokens",
                    got=f"{blocks} blocks",
                )
            return made

    return Watched


def _free_first(kind: type[Scheduler]) -> None:
    same_answers(watched(kind), [(6, 5)], 12, n=2)
    for requests, num_blocks in (([(4, 4)], 2), ([(5, 3), (5, 3)], 4), ([(8, 9), (4, 5)], 6)):
        run = same_answers(kind, requests, num_blocks)
        expect_equal(
            run.num_preemptions, 0, f"{told(requests, num_blocks, {})}; preemptions: all of it fits\n{run.trace()}"
        )


def _not_served_yet(kind: type[Scheduler]) -> None:
    class Watched(kind):  # type: ignore[valid-type, misc]
        def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
            self.position, self.asking = position, request.request_id
            return super().make_room(request, num_tokens, position, draft)  # type: ignore[no-any-return]

        def pick_victim(self, running: list[Request]) -> Request:
            want = [request.request_id for request in self.running[self.position :]]
            asked.append((self.asking, [request.request_id for request in running], want))
            return running[len(running) - 1]

    cases: list[tuple[Requests, int]] = [([(8, 8), (8, 8)], 5), ([(8, 8), (4, 8), (4, 8)], 5)]
    for requests, num_blocks in cases:
        asked: list[tuple[str, list[str], list[str]]] = []
        case = told(requests, num_blocks, {})
        try:
            serve(Watched, requests, num_blocks)
        finally:
            for who, got, want in asked:
                expect_equal(got, want, f"{case}; {who} needs a block: pick_victim chooses among")
        expect(bool(asked), f"{case}; the pool gets full: pick_victim is asked", expected="at least once", got="never")


def _until_it_fits(kind: type[Scheduler]) -> None:
    class InBursts(kind):  # type: ignore[valid-type, misc]
        """4 tokens at a time in the first two steps, then as many as there are."""

        num_steps = 0

        def schedule(self) -> StepPlan:
            self.num_steps += 1
            return super().schedule()

        def chunk_size(self, num_missing: int, budget: int, num_behind: int) -> int:
            return min(num_missing, 4 if self.num_steps < 3 else budget)

    for length, num_blocks, victims in ((12, 4, 1), (16, 5, 2)):
        requests = [(length, 2), *[(2, 6)] * (num_blocks - 2)]
        words = "prompts in chunks of 4, but from step 2 on whole"
        run = same_answers(InBursts, requests, num_blocks, words=words, admission="first_chunk")
        case = f"{told(requests, num_blocks, {})}; {words}: preempted in step 2"
        expect_equal(run.steps[2][1], list(NAMES[: num_blocks - 1][::-1][:victims]), f"{case}\n{run.trace()}")


def _itself(kind: type[Scheduler]) -> None:
    for requests, num_blocks in (([(7, 8), (5, 8)], 4), ([(7, 9), (7, 9), (8, 9)], 6)):
        run = same_answers(watched(kind), requests, num_blocks)
        want = serve(Scheduler, requests, num_blocks)
        expect_equal(run.ended, want.ended, f"{told(requests, num_blocks, {})}; why each ended\n{run.trace()}")


def _alone(kind: type[Scheduler]) -> None:
    for requests, num_blocks, why in (([(4, 8)], 2, ["capacity"]), ([(6, 20), (6, 4)], 4, ["capacity", "length"])):
        case = told(requests, num_blocks, {})
        run = served(watched(kind), requests, num_blocks)
        expect_equal(list(run.ended.values()), why, f"{case}; why each ended\n{run.trace()}")
        expect_equal(len(run.tokens["a"]), num_blocks * 4 - requests[0][0] + 1, f"{case}; tokens that a was given")
        expect_equal(run.num_free, num_blocks, f"{case}; free blocks when all is over")


def _whole_runs(kind: type[Scheduler]) -> None:
    draw = random.Random(14)
    choices: list[dict[str, Any]] = [{}, {"preemption": "swap", "num_swap_blocks": 6}]
    for size in (2, 3, 4, 5):
        for options in choices:
            requests = [(draw.randrange(2, 14), draw.randrange(2, 12)) for _ in range(size)]
            same_answers(kind, requests, 7, admission="first_chunk", max_num_batched_tokens=8, **options)
    same_answers(kind, [(2, 2), (2, 3)], 4, n=3, preemption="swap", num_swap_blocks=8)
    same_answers(kind, [(5, 8), (5, 8)], 4, n=2)


FREE, ASKED, UNTIL, ITSELF, ALONE, WHOLE = (
    "free blocks are taken first, and nobody goes",
    "pick_victim chooses among those not served yet",
    "it goes on until there is room",
    "who has to go itself gets no tokens",
    "who has the whole pool and needs more is ended",
    "everybody gets the answer that a large pool gives",
)

# Lines of answers.CountsBlocks, and of answers.MakesRoom.
NEED = "self.kv.num_blocks_to_append(request, num_tokens)"
VICTIM = "            victim = self.pick_victim(self.running[position:])\n            self.preempt(victim, draft)\n            if"
STOP = "            if request not in self.running:\n                return False\n"
END = "                    self.end(request)\n                    return False\n"


def _counts(old: str, new: str) -> Any:
    return planted(answers.CountsBlocks, (old, new))


MAKE_ROOM = Exercise(
    id="14.make_room",
    title="Blocks for the next tokens",
    reference=answers.MakesRoom,
    methods=("make_room",),
    budget=400_000,
    properties=[
        Property(FREE, _free_first),
        Property(ITSELF, _itself),
        Property(ASKED, _not_served_yet),
        Property(UNTIL, _until_it_fits),
        Property(ALONE, _alone),
        Property(WHOLE, _whole_runs),
    ],
    mutants=[
        Mutant("drops the copies", answers.DropsTheCopies, FREE, "append may return a copy that has to come before the write."),
        Mutant("blocks for all tokens", answers.BlocksForAllTokens, FREE, "The last block may have room."),
        Mutant("asks all", answers.AsksAll, ASKED, "Who was served in this step computes in this step, on those blocks."),
        Mutant("never itself", answers.NeverItself, ASKED, "It may be the one that started last."),
        Mutant("the last, without asking", _counts(VICTIM, VICTIM.replace("self.pick_victim(self.running[position:])", "self.running[-1]")), ASKED, "Who goes is pick_victim's business."),
        Mutant("one victim", _counts(f"while {NEED}", f"if {NEED}"), UNTIL, "One victim may hold fewer blocks than are needed."),
        Mutant("True for itself", answers.TrueForItself, ITSELF, "True says that it has blocks."),
        Mutant("goes on without blocks", _counts(STOP, ""), ITSELF, "A sequence that waits holds no blocks."),
        Mutant("ends in place of going", answers.EndsInPlaceOfGoing, ITSELF, "It can come back when the others are done."),
        Mutant("goes alone", answers.PreemptsTheLast, ALONE, "It would come back to the same pool, and go again, for ever."),
        Mutant("only its own copies", answers.OnlyItsOwnCopies, WHOLE, "preempt may plan copies too: those of a swap."),
        Mutant("forgets the copy", _counts(f"while {NEED}", "while -(-(request.num_computed_tokens + num_tokens) // self.kv.block_size) - len(request.block_table)"), WHOLE, "A write to a shared block copies it, and a copy takes a block too."),
        Mutant("tries for ever", planted(answers.MakesRoom, (END, "                    continue\n")), ALONE, "Alone, it can take nothing from anybody."),
        Mutant("asks nobody", answers.AsksNobody, ITSELF, "The request itself can be chosen."),
        Mutant("a list in the list", answers.ListInAList, FREE, "Copies are added one by one: += or extend."),
        Mutant("own copies first", answers.OwnCopiesFirst, WHOLE, "They are made in order: a victim's K/V leaves a block before a copy goes in."),
        Mutant("replaces the list", answers.ReplacesTheList, FREE, "Those served before have put copies into it."),
        Mutant("room for one", answers.RoomForOne, UNTIL, "A chunk of a prompt has many tokens."),
    ],
    alternatives=[answers.CountsBlocks, answers.OneAtATime, Scheduler],
)  # fmt: skip
