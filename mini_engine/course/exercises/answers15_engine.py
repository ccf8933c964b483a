"""Classes for lesson 15: `execute` and `step` of the engine in several right ways, and the wrong ones that people write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mini_engine import RequestOutput
from mini_engine.course.own_engine import EngineLab, Tokens
from mini_engine.scheduling import Request, StepPlan


class Executes(EngineLab):
    """Moves blocks, computes all chunks in one pass, samples for those whose every token is now computed."""

    def execute(self, plan: StepPlan) -> Tokens:
        self.move(plan)
        if not plan.chunks:
            return {}
        return self.sample(self.backend.execute(self.build(plan)), self.complete(plan))

    def move(self, plan: StepPlan) -> None:
        if plan.cache_ops:
            self.backend.apply_ops(plan.cache_ops)

    def complete(self, plan: StepPlan) -> list[Request]:
        """The sequences of the plan that are computed to their last token."""
        chosen = []
        for request_id, index, start, num_tokens in plan.chunks:
            request = self.scheduler.requests[request_id, index]
            if start + num_tokens == request.num_tokens:
                chosen.append(request)
        return chosen


class ExecutesByRows(EngineLab):
    """Right: asks the batch which of its tokens have logits."""

    def execute(self, plan: StepPlan) -> Tokens:
        self.backend.apply_ops(plan.cache_ops)
        if len(plan.chunks) == 0:
            return {}
        batch = self.build(plan)
        wanted = set(batch.logits_rows.tolist())
        ends = batch.query_start_loc[1:].tolist()
        rows = [chunk for chunk, end in zip(plan.chunks, ends) if end - 1 in wanted]
        return self.sample(self.backend.execute(batch), [self.scheduler.requests[c[:2]] for c in rows])


class SamplesAll(Executes):
    def complete(self, plan: StepPlan) -> list[Request]:
        return [self.scheduler.requests[chunk[:2]] for chunk in plan.chunks]


class SamplesDecodesOnly(Executes):
    def complete(self, plan: StepPlan) -> list[Request]:
        return [self.scheduler.requests[chunk[:2]] for chunk in plan.chunks if chunk.num_tokens == 1]


class SamplesAfterThePrompt(Executes):
    """Asks whether the prompt ends here: right for the first token only."""

    def complete(self, plan: StepPlan) -> list[Request]:
        requests = ((chunk, self.scheduler.requests[chunk[:2]]) for chunk in plan.chunks)
        return [r for c, r in requests if c.start + c.num_tokens == r.num_prompt_tokens]


class LooksBackwards(Executes):
    def complete(self, plan: StepPlan) -> list[Request]:
        return super().complete(plan)[::-1]


class LooksByName(Executes):
    def complete(self, plan: StepPlan) -> list[Request]:
        return sorted(super().complete(plan), key=lambda request: request.key)


class OneTokenIsADecode(Executes):
    def complete(self, plan: StepPlan) -> list[Request]:
        requests = ((chunk, self.scheduler.requests[chunk[:2]]) for chunk in plan.chunks)
        return [r for c, r in requests if c.num_tokens == 1 or c.start + c.num_tokens == r.num_tokens]


class MovesForChunksOnly(Executes):
    def move(self, plan: StepPlan) -> None:
        if plan.chunks:
            super().move(plan)


class MovesNothing(Executes):
    def move(self, plan: StepPlan) -> None:
        pass


class MovesAfterwards(Executes):
    def execute(self, plan: StepPlan) -> Tokens:
        result = self.backend.execute(self.build(plan)) if plan.chunks else None
        self.backend.apply_ops(plan.cache_ops)
        return {} if result is None else self.sample(result, self.complete(plan))


class MovesInReverse(Executes):
    def move(self, plan: StepPlan) -> None:
        self.backend.apply_ops(plan.cache_ops[::-1])


class ComputesNothing(Executes):
    """Runs a pass over no tokens where a plan has no chunks."""

    def execute(self, plan: StepPlan) -> Tokens:
        self.move(plan)
        return self.sample(self.backend.execute(self.build(plan)), self.complete(plan))


class OnePassEach(Executes):
    """Computes the chunks one after the other: every token is right, and the weights are read for each of them."""

    def execute(self, plan: StepPlan) -> Tokens:
        self.move(plan)
        tokens: Tokens = {}
        for chunk in plan.chunks:
            part = replace(plan, chunks=(chunk,))
            tokens |= self.sample(self.backend.execute(self.build(part)), self.complete(part))
        return tokens


class Steps(EngineLab):
    """Plan, execute, and then commit or roll back."""

    def step(self) -> list[RequestOutput]:
        if self.scheduler.requests:
            plan = self.plan()
            try:
                tokens = self.execute(plan)
            except BaseException as error:
                self.rollback(plan, error)
                raise
            self.commit(plan, tokens)
        return self.told()


class StepsWithElse(EngineLab):
    """Right: an early return, and `else`."""

    def step(self) -> list[RequestOutput]:
        if not self.scheduler.requests:
            return self.told()
        plan = self.plan()
        try:
            tokens = self.execute(plan)
        except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit) as error:
            self.rollback(plan, error)
            raise error
        else:
            self.commit(plan, tokens)
        return self.told()


class NeverRollsBack(EngineLab):
    def step(self) -> list[RequestOutput]:
        if self.scheduler.requests:
            plan = self.plan()
            self.commit(plan, self.execute(plan))
        return self.told()


class SwallowsTheError(EngineLab):
    def step(self) -> list[RequestOutput]:
        if self.scheduler.requests:
            plan = self.plan()
            try:
                tokens = self.execute(plan)
            except BaseException as error:
                self.rollback(plan, error)
                return []
            self.commit(plan, tokens)
        return self.told()


class TriesAgain(EngineLab):
    def step(self) -> list[RequestOutput]:
        if self.scheduler.requests:
            plan = self.plan()
            try:
                tokens = self.execute(plan)
            except BaseException as error:
                self.rollback(plan, error)
                plan = self.plan()
                tokens = self.execute(plan)
            self.commit(plan, tokens)
        return self.told()


class CommitsAnyway(EngineLab):
    """What was not computed counts as computed."""

    def step(self) -> list[RequestOutput]:
        if self.scheduler.requests:
            plan, tokens = self.plan(), {}
            try:
                tokens = self.execute(plan)
            finally:
                self.commit(plan, tokens)
        return self.told()


class ExceptionsOnly(EngineLab):
    def step(self) -> list[RequestOutput]:
        if self.scheduler.requests:
            plan = self.plan()
            try:
                tokens = self.execute(plan)
            except Exception as error:
                self.rollback(plan, error)
                raise
            self.commit(plan, tokens)
        return self.told()


class NotForExit(EngineLab):
    """Knows Ctrl-C, and not that a process may be told to end."""

    def step(self) -> list[RequestOutput]:
        if self.scheduler.requests:
            plan = self.plan()
            try:
                tokens = self.execute(plan)
            except (Exception, KeyboardInterrupt) as error:
                self.rollback(plan, error)
                raise
            self.commit(plan, tokens)
        return self.told()


class RollsBackACommit(EngineLab):
    """Commits inside of the `try`: what is true already is to be taken back, and the error of that hides the first."""

    def step(self) -> list[RequestOutput]:
        if self.scheduler.requests:
            plan = self.plan()
            try:
                self.commit(plan, self.execute(plan))
            except BaseException as error:
                self.rollback(plan, error)
                raise
        return self.told()


class RollsBackWhatIsPlanned(EngineLab):
    """Right: everything inside of the `try`, and a look whether there is a plan to take back."""

    def step(self) -> list[RequestOutput]:
        if self.scheduler.requests:
            plan: Any = None
            try:
                plan = self.plan()
                self.commit(plan, self.execute(plan))
            except BaseException as error:
                if self.scheduler.has_plan:
                    self.rollback(plan, error)
                raise
        return self.told()


class CommitsChunksOnly(EngineLab):
    """A plan without chunks is not committed: whoever asked for no token never leaves."""

    def step(self) -> list[RequestOutput]:
        if self.scheduler.requests:
            plan = self.plan()
            try:
                tokens = self.execute(plan)
            except BaseException as error:
                self.rollback(plan, error)
                raise
            if plan.chunks:
                self.commit(plan, tokens)
        return self.told()


class AsksTwice(Steps):
    """Asks for news before the step too, and drops them."""

    def step(self) -> list[RequestOutput]:
        if self.scheduler.requests:
            self.told()
        return super().step()


class RollsBackNoPlan(EngineLab):
    """Plans inside of the `try`, and rolls back what was never planned: another error hides the one that matters."""

    def step(self) -> list[RequestOutput]:
        plan: Any = None
        if self.scheduler.requests:
            try:
                plan = self.plan()
                tokens = self.execute(plan)
            except BaseException as error:
                self.rollback(plan, error)
                raise
            self.commit(plan, tokens)
        return self.told()


class PlansWhenIdle(EngineLab):
    def step(self) -> list[RequestOutput]:
        plan = self.plan()
        try:
            tokens = self.execute(plan)
        except BaseException as error:
            self.rollback(plan, error)
            if not self.scheduler.requests:
                return self.told()
            raise
        self.commit(plan, tokens)
        return self.told()


class TellsOfRunningOnly(Steps):
    def step(self) -> list[RequestOutput]:
        return super().step() if self.scheduler.requests else []


class TellsNothing(Steps):
    def step(self) -> list[RequestOutput]:
        super().step()
        return []


class TellsOfTheFinished(Steps):
    def step(self) -> list[RequestOutput]:
        return [output for output in super().step() if output.finished]
