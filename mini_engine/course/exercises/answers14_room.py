"""Lesson 14, exercise 2: right ways to make room, and wrong ones. Those that differ in a line are planted by the exercise."""

from __future__ import annotations

from typing import Any

from mini_engine.cache import NoFreeBlocksError
from mini_engine.scheduling import Request, Scheduler


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


class ListInAList(MakesRoom):
    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        here = len(draft.cache_ops)
        made = super().make_room(request, num_tokens, position, draft)
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


class TrueForItself(MakesRoom):
    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        super().make_room(request, num_tokens, position, draft)
        return True


class PreemptsTheLast(MakesRoom):
    """Alone with the whole pool it goes itself, and comes back, and goes."""

    def make_room(self, request: Request, num_tokens: int, position: int, draft: Any) -> bool:
        if self.running == [request] and self.kv.num_blocks_to_append(request, num_tokens) > self.kv.num_free_blocks:
            self.preempt(request, draft)
            return False
        return super().make_room(request, num_tokens, position, draft)


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
