"""Answers to lesson 15's `execute`: right ones, written another way, and the wrong ones that people write."""

from __future__ import annotations

from dataclasses import replace

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
