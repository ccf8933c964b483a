"""Lesson 14, exercises 1 to 3: right and wrong ways to choose a victim, to make room, and to preempt by recompute."""

from __future__ import annotations

from typing import Any

from mini_engine.cache import NoFreeBlocksError
from mini_engine.scheduling import Recompute, Request, RequestStatus, Scheduler

# -- who goes ----------------------------------------------------------------------------------------------------------


class LeastImportant(Scheduler):
    """The least important goes, and of equals the one that started last."""

    def pick_victim(self, running: list[Request]) -> Request:
        return max(reversed(running), key=lambda request: request.priority)


class LeastImportantByLoop(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        victim = running[0]
        for request in running[1:]:
            if request.priority >= victim.priority:
                victim = request
        return victim


class LeastImportantSorted(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return sorted(running, key=lambda request: request.priority)[-1]


class MostBlocks(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return max(reversed(running), key=lambda request: (request.priority, len(request.block_table)))


class FewestTokens(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return max(reversed(running), key=lambda request: (request.priority, -len(request.token_ids)))


class MarksIt(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        victim = LeastImportant.pick_victim(self, running)  # type: ignore[arg-type]
        victim.status = RequestStatus.PREEMPTED
        return victim


class LatestArrival(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return sorted(running, key=lambda request: (request.priority, request.arrival))[-1]


class LastByName(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return max(running, key=lambda request: (request.priority, request.request_id))


class FirstGoes(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return min(running, key=lambda request: -request.priority)


class FirstOfEquals(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return max(running, key=lambda request: request.priority)


class MostComputed(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return max(reversed(running), key=lambda request: (request.priority, request.num_computed_tokens))


class LastAlways(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return running[-1]


class MostImportant(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        return min(reversed(running), key=lambda request: request.priority)


class TakesItOut(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        victim = LeastImportant.pick_victim(self, running)  # type: ignore[arg-type]
        running.remove(victim)
        return victim


class SortsTheQueue(Scheduler):
    def pick_victim(self, running: list[Request]) -> Request:
        running.sort(key=lambda request: request.priority)
        return running[-1]


class ItsName(Scheduler):
    def pick_victim(self, running: list[Request]) -> Any:
        return max(reversed(running), key=lambda request: request.priority).request_id


# -- room --------------------------------------------------------------------------------------------------------------


class MakesRoom(Scheduler):
    """Blocks for the next tokens, if need be from those not served yet."""

    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        while True:
            try:
                draft.cache_ops += self.kv.append(request, num_tokens)
                return True
            except NoFreeBlocksError:
                if len(self.running) == 1:
                    self.end(request)
                    return False
                victim = self.pick_victim(self.running[position:])
                self.preempt(victim, draft)
                if victim is request:
                    return False


class CountsBlocks(Scheduler):
    """Another right one: it counts in place of trying."""

    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        while self.kv.num_blocks_to_append(request, num_tokens) > self.kv.num_free_blocks:
            if self.running == [request]:
                self.end(request)
                return False
            victim = self.pick_victim(self.running[position:])
            self.preempt(victim, draft)
            if request not in self.running:
                return False
        draft.cache_ops.extend(self.kv.append(request, num_tokens))
        return True


class OneAtATime(Scheduler):
    """Another right one: after each victim it hands back, and is asked again."""

    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        try:
            draft.cache_ops += self.kv.append(request, num_tokens)
        except NoFreeBlocksError:
            if len(self.running) > 1:
                self.preempt(self.pick_victim(self.running[position:]), draft)
            else:
                self.end(request)
            return False
        return True


class DropsTheCopies(MakesRoom):
    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        before = len(draft.cache_ops)
        made = super().make_room(request, num_tokens, position, draft)
        del draft.cache_ops[before:]
        return made


class ForgetsTheCopy(Scheduler):
    """Counts blocks, but not the one that a copy on write takes."""

    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        size = self.kv.block_size
        need = -(-(request.num_computed_tokens + num_tokens) // size) - len(request.block_table)
        while need > self.kv.num_free_blocks:
            if len(self.running) == 1:
                self.end(request)
                return False
            victim = self.pick_victim(self.running[position:])
            self.preempt(victim, draft)
            if victim is request:
                return False
        draft.cache_ops += self.kv.append(request, num_tokens)
        return True


class TriesForEver(Scheduler):
    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        while True:
            try:
                draft.cache_ops += self.kv.append(request, num_tokens)
                return True
            except NoFreeBlocksError:
                if len(self.running) > 1:
                    victim = self.pick_victim(self.running[position:])
                    self.preempt(victim, draft)
                    if victim is request:
                        return False


class ListInAList(Scheduler):
    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        here = len(draft.cache_ops)
        made = MakesRoom.make_room(self, request, num_tokens, position, draft)  # type: ignore[arg-type]
        draft.cache_ops[here:] = [draft.cache_ops[here:]]
        return made


class AsksNobody(MakesRoom):
    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        return super().make_room(request, num_tokens, position + 1, draft)


class BlocksForAllTokens(MakesRoom):
    """Forgets that the last block has room."""

    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        while self.kv.num_free_blocks < -(-num_tokens // self.kv.block_size) and len(self.running) > position + 1:
            self.preempt(self.pick_victim(self.running[position:]), draft)
        return super().make_room(request, num_tokens, position, draft) if request in self.running else False


class RoomForOne(MakesRoom):
    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        return super().make_room(request, 1, position, draft)


class AsksAll(MakesRoom):
    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        return super().make_room(request, num_tokens, 0, draft)


class NeverItself(MakesRoom):
    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        return super().make_room(request, num_tokens, min(position + 1, len(self.running) - 1), draft)


class TheLastWithoutAsking(Scheduler):
    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        while self.kv.num_blocks_to_append(request, num_tokens) > self.kv.num_free_blocks:
            if len(self.running) == 1:
                self.end(request)
                return False
            victim = self.running[-1]
            self.preempt(victim, draft)
            if victim is request:
                return False
        draft.cache_ops += self.kv.append(request, num_tokens)
        return True


class OneVictim(Scheduler):
    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        if self.kv.num_blocks_to_append(request, num_tokens) > self.kv.num_free_blocks:
            if len(self.running) == 1:
                self.end(request)
                return False
            victim = self.pick_victim(self.running[position:])
            self.preempt(victim, draft)
            if victim is request:
                return False
        draft.cache_ops += self.kv.append(request, num_tokens)
        return True


class TrueForItself(Scheduler):
    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        MakesRoom.make_room(self, request, num_tokens, position, draft)  # type: ignore[arg-type]
        return True


class GoesOnWithoutBlocks(Scheduler):
    """Forgets to stop when it is its own victim: it takes blocks while it waits."""

    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        while self.kv.num_blocks_to_append(request, num_tokens) > self.kv.num_free_blocks:
            if len(self.running) == 1:
                self.end(request)
                return False
            self.preempt(self.pick_victim(self.running[position:]), draft)
        draft.cache_ops += self.kv.append(request, num_tokens)
        return True


class PreemptsTheLast(Scheduler):
    """Alone with the whole pool it goes itself, and comes back, and goes."""

    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        while True:
            try:
                draft.cache_ops += self.kv.append(request, num_tokens)
                return True
            except NoFreeBlocksError:
                victim = self.pick_victim(self.running[position:])
                self.preempt(victim, draft)
                if victim is request:
                    return False


class EndsInPlaceOfGoing(MakesRoom):
    """Ends whoever is its own victim, and not only who has the whole pool."""

    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        if (
            position == len(self.running) - 1
            and self.kv.num_blocks_to_append(request, num_tokens) > self.kv.num_free_blocks
        ):
            self.end(request)
            return False
        return super().make_room(request, num_tokens, position, draft)


class ReplacesTheList(MakesRoom):
    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        before = len(draft.cache_ops)
        made = super().make_room(request, num_tokens, position, draft)
        draft.cache_ops = draft.cache_ops[before:]
        return made


class OnlyItsOwnCopies(MakesRoom):
    """Plans the copies that append returned, and forgets those that preempt planned."""

    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        before = list(draft.cache_ops)
        made = super().make_room(request, num_tokens, position, draft)
        draft.cache_ops[:] = before + [op for op in draft.cache_ops[len(before) :] if op.kind == "copy"]
        return made


class OwnCopiesFirst(MakesRoom):
    """Plans its own copies in front: into a block that a victim's K/V has not left yet."""

    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        made = super().make_room(request, num_tokens, position, draft)
        draft.cache_ops.sort(key=lambda op: op.kind != "copy")
        return made


# -- recompute ---------------------------------------------------------------------------------------------------------


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


class KeepsBlocks(Scheduler):
    def preempt(self, victim: Request, draft: Any) -> None:
        self.running.remove(victim)
        victim.num_computed_tokens = 0
        victim.status = RequestStatus.PREEMPTED
        self.waiting.add(victim)
        draft.preempted.append(victim)
        self.counters.num_preemptions += 1


class ReleasesAndKeepsTheTable(KeepsBlocks):
    def preempt(self, victim: Request, draft: Any) -> None:
        super().preempt(victim, draft)
        self.kv.pool.release(list(victim.block_table))


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


class PopsTheLast(Scheduler):
    def preempt(self, victim: Request, draft: Any) -> None:
        self.running.pop()
        self.kv.free(victim)
        victim.num_computed_tokens = 0
        victim.status = RequestStatus.PREEMPTED
        self.waiting.add(victim)
        draft.preempted.append(victim)
        self.counters.num_preemptions += 1


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
