"""Run every named wrong answer against the properties that must reject it: `python -m mini_engine.course.mutants`."""

from __future__ import annotations

import sys

from mini_engine.course.check import Outcome, run, run_property
from mini_engine.course.exercise import INPUTS_UNCHANGED, Exercise, Mutant
from mini_engine.course.exercises import all_of


def rejection(exercise: Exercise, mutant: Mutant) -> Outcome | None:
    """The failing outcome of the property that the mutant names, or None when that property accepts it."""
    if mutant.caught_by == INPUTS_UNCHANGED:
        outcomes = list(run(exercise, mutant.function))
    else:
        prop = next(p for p in exercise.properties if p.name == mutant.caught_by)
        outcomes = [run_property(exercise, prop, mutant.function)]
    return next((o for o in outcomes if o.status == "no" and o.property == mutant.caught_by), None)


def main() -> int:
    """Print one line a mutant with the first line of its failing case; exit status 1 if any survives."""
    alive = 0
    for exercise in all_of(Exercise):
        print(f"{exercise.id}  {exercise.title}")
        for mutant in exercise.mutants:
            outcome = rejection(exercise, mutant)
            alive += outcome is None
            case = outcome.detail.splitlines()[0] if outcome else mutant.why
            print(f"    {'caught  ' if outcome else 'SURVIVES'}  {mutant.name}: {mutant.caught_by} ({case})")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
