"""A table of scenarios that fills itself: each is entered under the defect that it shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Scenario = Callable[[Any], None]


class Scenarios(dict[str, Scenario]):
    """Scenarios by defect. `errors` has those that end, where the defect is, in another error than AssertionError."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[str, type[Exception]] = {}

    def shows(self, defect: str, error: type[Exception] = AssertionError) -> Callable[[Scenario], Scenario]:
        """Decorates the scenario of a defect."""

        def enter(scenario: Scenario) -> Scenario:
            self[defect] = scenario
            if error is not AssertionError:
                self.errors[defect] = error
            return scenario

        return enter
