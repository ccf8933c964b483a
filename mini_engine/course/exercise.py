"""What an exercise is: a reference, properties that any right answer has, and named wrong answers that they must reject."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

INPUTS_UNCHANGED = "leaves its inputs unchanged"
"""The property that `check` tests by itself, for every exercise that is a function."""


class NotDoneYet(NotImplementedError):
    """Raised by a property for a stub that fails before its own code runs, such as a kernel that cannot be compiled."""


@dataclass(frozen=True)
class Property:
    """Something that holds for every right answer.

    name: what a learner reads, e.g. "row t ignores the keys after t".
    run:  run(candidate) returns, or raises AssertionError whose text shows the smallest failing case. Try small cases
          first, and compare with the helpers in `mini_engine.course.expect`: they cannot be fooled by odd objects.
    """

    name: str
    run: Callable[[Any], None]


@dataclass(frozen=True)
class Mutant:
    """A wrong answer that somebody would write. `caught_by` names the property that must reject it."""

    name: str
    function: Any
    caught_by: str
    why: str


@dataclass(frozen=True)
class Exercise:
    """One exercise of a lesson. Written as a module global in `mini_engine/course/exercises/eNN_*.py`.

    id:           "NN.name"; NN is the lesson.
    reference:    a right answer: what `check` goes on with while the learner's is not right yet.
    alternatives: right answers written another way; the properties must accept them too.
    methods:      for a class, the methods the learner writes (default: every public method of the reference).
    may_change:   names of the arguments that the function is meant to change in place, such as a pool.
    budget:       steps (bytecode instructions and lines) that the learner's code may take for one property.
    seconds:      for code that spends its time elsewhere; far above what any right answer needs.
    """

    id: str
    title: str
    reference: Any
    properties: Sequence[Property]
    mutants: Sequence[Mutant] = ()
    alternatives: Sequence[Any] = ()
    methods: Sequence[str] | None = None
    may_change: Sequence[str] = ()
    budget: int = 2_000_000
    seconds: float = 20.0

    def __post_init__(self) -> None:
        for name in ("properties", "mutants", "alternatives", "may_change"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        names = [p.name for p in self.properties]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"exercise {self.id}: properties need distinct names, got {names}")
        for mutant in self.mutants:
            if mutant.caught_by not in (*names, INPUTS_UNCHANGED):
                raise ValueError(f"exercise {self.id}: mutant {mutant.name!r} names no property: {mutant.caught_by!r}")


@dataclass(frozen=True)
class Prediction:
    """A number that the learner guesses before a cell computes it. A module global beside the exercises.

    answer:   the right number, in `unit`, computed by code.
    mistakes: (wrong number in `unit`, the error it stems from), computed by code as well.
    because:  one sentence with the arithmetic, shown with a right answer.
    rtol:     how close counts as right; 0 for counts.
    """

    id: str
    question: str
    answer: int | float
    unit: str = ""
    mistakes: Sequence[tuple[int | float, str]] = ()
    because: str = ""
    rtol: float = 0.01
