"""Answers to lesson 15's `step`: right ones, and wrong ones. Those that differ in a line or two are planted by the exercise."""

from __future__ import annotations

from typing import Any

from mini_engine import RequestOutput
from mini_engine.course.own_engine import EngineLab


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


class AsksTwice(Steps):
    """Asks for news before the step too, and drops them."""

    def step(self) -> list[RequestOutput]:
        if self.scheduler.requests:
            self.told()
        return super().step()


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
