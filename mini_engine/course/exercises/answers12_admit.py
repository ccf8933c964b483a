"""Answers to lesson 12's admission, Orca's reservation: right ones, and the wrong ones that people write."""

from __future__ import annotations

from mini_engine.course.own_scheduler import SchedulerLab
from mini_engine.scheduling import Request


class Reserves(SchedulerLab):
    """Orca's admission: prompt and answer have room from the start, so that nobody is ever preempted."""

    def admit(self, request: Request) -> bool:
        return self.most(request) + self.promised() <= self.kv.num_free_blocks

    def most(self, request: Request) -> int:
        """Blocks of a request at its longest. Its last token is never stored."""
        return -(-(request.max_num_tokens - 1) // self.config.block_size)

    def promised(self) -> int:
        """Blocks that those who run have not taken yet."""
        return sum(self.most(other) - len(other.block_table) for other in self.running)


class ReservesByPool(Reserves):
    """Right: adds up all reservations and compares with the whole pool."""

    def admit(self, request: Request) -> bool:
        size = self.config.block_size
        blocks = [(each.max_num_tokens + size - 2) // size for each in [*self.running, request]]
        return sum(blocks) <= self.config.num_blocks


class WholePrompt(Reserves):
    def most(self, request: Request) -> int:
        return -(-request.num_tokens // self.config.block_size)


class ForgetsThePromised(Reserves):
    def promised(self) -> int:
        return 0


class ForgetsTheOldest(Reserves):
    def promised(self) -> int:
        return sum(self.most(other) - len(other.block_table) for other in self.running[-1:])


class CountsTakenTwice(Reserves):
    def promised(self) -> int:
        return sum(self.most(other) for other in self.running)


class RoundsDown(Reserves):
    def most(self, request: Request) -> int:
        return (request.max_num_tokens - 1) // self.config.block_size


class StoresTheLast(Reserves):
    def most(self, request: Request) -> int:
        return -(-request.max_num_tokens // self.config.block_size)


class CountsTokens(Reserves):
    """Free tokens against tokens: no room is lost in last blocks."""

    def admit(self, request: Request) -> bool:
        tokens = sum(each.max_num_tokens - 1 for each in [*self.running, request])
        return tokens <= self.config.num_blocks * self.config.block_size


class TheAnswerOnly(Reserves):
    def most(self, request: Request) -> int:
        return -(-(request.max_num_tokens - request.num_prompt_tokens) // self.config.block_size)


class AlwaysTheLongest(Reserves):
    """As static reservations did: as long as a request may ever get."""

    def most(self, request: Request) -> int:
        return max(4, self.config.num_blocks // 2)


class OneAtATime(Reserves):
    def admit(self, request: Request) -> bool:
        return False


class PromptAndOne(Reserves):
    """Room for the prompt, and a block or two for any answer."""

    def most(self, request: Request) -> int:
        size = self.config.block_size
        return min(super().most(request), -(-request.num_prompt_tokens // size) + 1)
