"""Lesson 14, exercise 3: ways to preempt by recompute, right and wrong. Those that differ in a line are planted by the exercise."""

from __future__ import annotations

from typing import Any

from mini_engine.scheduling import Recompute, Request, RequestStatus, Scheduler


class Recomputes(Scheduler):
    """Drop the K/V, keep the tokens, wait in front."""

    def preempt(self, victim: Request, draft: Any) -> None:
        self.running.remove(victim)
        self.kv.free(victim)
        victim.num_computed_tokens = 0
        victim.status = RequestStatus.PREEMPTED
        self.waiting.add(victim)
        draft.preempted.append(victim)
        self.counters.num_preemptions += 1


class RecomputesByPart(Scheduler):
    def preempt(self, victim: Request, draft: Any) -> None:
        draft.preempted += [victim]
        draft.cache_ops += Recompute().preempt(victim, self.kv)
        self.counters.num_preemptions += 1
        self.waiting.add(victim)
        del self.running[self.running.index(victim)]


class StaysInRunning(Recomputes):
    def preempt(self, victim: Request, draft: Any) -> None:
        at = self.running.index(victim)
        super().preempt(victim, draft)
        self.running.insert(at, victim)


class AnotherList(Recomputes):
    def preempt(self, victim: Request, draft: Any) -> None:
        rest = [request for request in self.running if request is not victim]
        super().preempt(victim, draft)
        self.running = rest


class Forgotten(Recomputes):
    def preempt(self, victim: Request, draft: Any) -> None:
        super().preempt(victim, draft)
        self.waiting.remove(victim)


class BackOfTheQueue(Recomputes):
    def preempt(self, victim: Request, draft: Any) -> None:
        victim.arrival = 1 + max(request.arrival for request in self.requests.values())
        super().preempt(victim, draft)


class BeforeAllOthers(Recomputes):
    def preempt(self, victim: Request, draft: Any) -> None:
        victim.arrival = 0
        super().preempt(victim, draft)


class ForgetsTheFirst(Recomputes):
    def preempt(self, victim: Request, draft: Any) -> None:
        super().preempt(victim, draft)
        draft.preempted = [victim]


class CountsTheSteps(Recomputes):
    def preempt(self, victim: Request, draft: Any) -> None:
        super().preempt(victim, draft)
        self.counters.num_preemptions = len(draft.preempted)


class LosesTheAnswer(Recomputes):
    def preempt(self, victim: Request, draft: Any) -> None:
        super().preempt(victim, draft)
        del victim.token_ids[victim.num_prompt_tokens :]


class LosesTheLastToken(Recomputes):
    def preempt(self, victim: Request, draft: Any) -> None:
        super().preempt(victim, draft)
        victim.token_ids.pop()


class AnswerBecomesPrompt(Recomputes):
    """Counts the answer as prompt: the length of the prompt is what the caller sent."""

    def preempt(self, victim: Request, draft: Any) -> None:
        super().preempt(victim, draft)
        victim.num_prompt_tokens = len(victim.token_ids)


class KeepsTheCount(Recomputes):
    def preempt(self, victim: Request, draft: Any) -> None:
        computed = victim.num_computed_tokens
        super().preempt(victim, draft)
        victim.num_computed_tokens = computed


class StillRunning(Recomputes):
    def preempt(self, victim: Request, draft: Any) -> None:
        super().preempt(victim, draft)
        victim.status = RequestStatus.RUNNING


class NeverStarted(Recomputes):
    def preempt(self, victim: Request, draft: Any) -> None:
        super().preempt(victim, draft)
        victim.status = RequestStatus.WAITING


class Silent(Recomputes):
    def preempt(self, victim: Request, draft: Any) -> None:
        super().preempt(victim, draft)
        draft.preempted.remove(victim)


class TellsItsName(Recomputes):
    def preempt(self, victim: Request, draft: Any) -> None:
        super().preempt(victim, draft)
        draft.preempted[-1] = victim.request_id


class Uncounted(Recomputes):
    def preempt(self, victim: Request, draft: Any) -> None:
        super().preempt(victim, draft)
        self.counters.num_preemptions -= 1


class WrongTheSecondTime(Recomputes):
    def preempt(self, victim: Request, draft: Any) -> None:
        again = victim.num_starts > 1
        super().preempt(victim, draft)
        if again:
            victim.token_ids.pop()
