"""`check` runs an exercise's properties on what the learner wrote, says what holds, and hands back something that works."""

from __future__ import annotations

import difflib
import inspect
import os
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mini_engine.course.budget import OutOfSteps, StepBudget, globals_of
from mini_engine.course.exercise import INPUTS_UNCHANGED, Exercise, NotDoneYet, Property
from mini_engine.course.exercises import find
from mini_engine.course.guard import InputChanged, Originals, Watched, printed_text


class CheckFailed(AssertionError):
    """An exercise is not right, and COURSE_STRICT=1 or nbgrader asked for an error."""


@dataclass(frozen=True)
class Outcome:
    """What became of one property. `status` is "ok", "no" or "todo"; `detail` shows the smallest failing case."""

    property: str
    status: str
    detail: str = ""
    printed: str = ""


@dataclass(frozen=True)
class _NotRight:
    """What `check` last said of an exercise, and the reference that it handed out instead."""

    reference: Any
    report: str
    reason: str


_not_right: dict[str, _NotRight] = {}


def check(id: str, candidate: Any) -> Any:
    """Check the learner's function or class; returns it when every property holds, and the reference otherwise.

    So a notebook always runs to its end, with a working version under the learner's name. Printed lines start with
    [ok], [no], [todo] or a space. With COURSE_STRICT=1, or under nbgrader, raises `CheckFailed` unless all is ok.
    Raises KeyError for an unknown id. Run again on the reference that it handed out, it says the same again.

    Mistakes are caught, and most of mischief: endless code, also where it swallows every exception, changed inputs,
    replaced functions. Out of scope, because it runs in the notebook's own process: one call into C that never returns,
    code that turns the tracer and the timer off, kills the process or uses up the memory, and code that reads the
    checker's frames and closures to find the answer.
    """
    exercise = find(Exercise, id)
    return settle(exercise, candidate, lambda: _judged(exercise, candidate))


def settle(exercise: Exercise, candidate: Any, judge: Callable[[], tuple[str, str]]) -> Any:
    """Print what `judge()` reports, and hand on the candidate, or the reference when there is a reason against it.

    judge() -> (report, reason); it is not asked again about the reference that was handed out.
    """
    reference, earlier = exercise.reference, _not_right.get(exercise.id)
    strict = is_strict()  # asked before the candidate runs, which could change the answer
    if earlier is not None and earlier.reference is candidate:
        text, reason = earlier.report, earlier.reason  # the cell is run again: its name holds the reference by now
    else:
        text, reason = judge()
    print(text)
    if not reason:
        _not_right.pop(exercise.id, None)
        return candidate
    _not_right[exercise.id] = _NotRight(reference, text, reason)
    if strict:
        raise CheckFailed(f"{exercise.id}: {reason}")
    return reference


def _judged(exercise: Exercise, candidate: Any) -> tuple[str, str]:
    outcomes = list(run(exercise, candidate))
    status = next((o.status for o in outcomes if o.status != "ok"), "ok")
    reason = {"ok": "", "todo": "not done yet"}.get(status, outcomes[-1].property)
    return report(exercise, status, outcomes), reason


def is_strict() -> bool:
    """Whether an exercise that is not right is an error: COURSE_STRICT is set, or nbgrader runs the notebook."""
    return os.environ.get("COURSE_STRICT", "0") not in ("", "0") or "NBGRADER_EXECUTION" in os.environ


def run(exercise: Exercise, candidate: Any) -> Iterator[Outcome]:
    """The outcome of each property in order, up to the first that does not hold."""
    misfit = looked_at(exercise, candidate)
    if misfit:
        yield Outcome("is what the exercise asks for", "no", misfit)
        return
    for prop in exercise.properties:
        outcome = run_property(exercise, prop, candidate)
        yield outcome
        if outcome.status != "ok":
            return


def run_property(exercise: Exercise, prop: Property, candidate: Any) -> Outcome:
    """Run one property on a candidate that may do anything: loop, exit, print, raise, or replace the checker's functions."""
    is_class = isinstance(exercise.reference, type)
    budget = StepBudget(candidate, exercise.budget, exercise.seconds)
    subject = candidate
    originals = Originals()
    name, status, detail = prop.name, "ok", ""
    with printed_text() as printed:
        try:
            with budget:
                if not is_class:
                    subject = Watched(candidate, exercise, budget)
                prop.run(subject)
        except OutOfSteps:
            pass
        except InputChanged as error:
            name, status, detail = INPUTS_UNCHANGED, "no", str(error)
        except BaseException as error:
            if budget.interrupted:
                raise
            status, detail = _explain(error, candidate, prop)
        replaced = originals.restore()
    if budget.interrupted:
        raise KeyboardInterrupt
    if budget.exceeded:
        status, detail = "no", f"your code {budget.exceeded}"
    if replaced:
        status, detail = "no", f"your code replaced {', '.join(replaced[:3])} while it ran; it has been put back"
    raised_or_endless = detail.startswith("your code") and not replaced
    if raised_or_endless and isinstance(subject, Watched) and subject.last_call:
        detail += f"\nin the call {subject.last_call}"
    more = f"... and {printed.dropped:,} characters more" if printed.dropped else ""
    return Outcome(name, status, detail, "\n".join(filter(None, [printed.text.rstrip(), more])))


def _explain(error: BaseException, candidate: Any, prop: Property) -> tuple[str, str]:
    """The status and the words for what came out of a property."""
    frames = list(traceback.walk_tb(error.__traceback__))
    learners = {id(g) for g in globals_of(candidate)}
    checkers = getattr(inspect.unwrap(prop.run), "__code__", None)
    theirs = [
        (frame, line) for frame, line in frames if id(frame.f_globals) in learners and frame.f_code is not checkers
    ]
    innermost = bool(theirs) and theirs[-1][0] is frames[-1][0]
    if isinstance(error, NotDoneYet) or (isinstance(error, NotImplementedError) and innermost):
        return "todo", ""
    if type(error) is AssertionError and not innermost:
        return "no", _text(error, candidate)
    what = f"{type(error).__name__}: {_text(error, candidate)}".removesuffix(": ")
    if not theirs:
        return "no", f"the check cannot use what your code returned ({what})"
    frame, line = theirs[-1]
    source = traceback.extract_tb(error.__traceback__)[[f for f, _ in frames].index(frame)].line
    return "no", f"your code raised {what}\nin line {line} of {frame.f_code.co_name}: {source}"


def _text(error: BaseException, candidate: Any) -> str:
    """The error's message, which is the learner's code too when the error's class is."""
    try:
        with StepBudget(candidate, 100_000, 1.0):
            return str.__str__(str(error))  # a plain str, whatever __str__ has made
    except BaseException:
        return "(its message cannot be shown)"


def looked_at(exercise: Exercise, candidate: Any) -> str:
    """Why the candidate is not the kind of thing that the exercise asks for, "" if it is; also for one that runs code of its own when it is asked for its signature or an attribute."""
    budget, misfit = StepBudget(candidate, exercise.budget, exercise.seconds), ""
    with printed_text():
        try:
            with budget:
                misfit = _misfit(exercise.reference, candidate, exercise.methods)
        except BaseException as error:
            misfit = f"this {type(candidate).__name__} cannot be looked at: {type(error).__name__}"
    if budget.interrupted:
        raise KeyboardInterrupt
    if budget.exceeded:
        return f"this {type(candidate).__name__} cannot be looked at: it {budget.exceeded}"
    return misfit


def _misfit(reference: Any, candidate: Any, methods: Any) -> str:
    """Why the candidate is not the kind of thing that the exercise asks for; "" if it is."""
    if isinstance(reference, type):
        if not isinstance(candidate, type):
            return f"the exercise asks for a class, this is {_kind(candidate)}"
        public = [n for n, m in vars(reference).items() if inspect.isfunction(m) and not n.startswith("_")]
        wanted = list(methods) if methods is not None else public
        missing = [name for name in wanted if not callable(getattr(candidate, name, None))]
        if missing:
            return f"the class has no method {', '.join(missing)}"
        if inherited := _not_written(candidate, wanted):
            return inherited
        pairs = [(name, getattr(reference, name), getattr(candidate, name)) for name in ("__init__", *wanted)]
    else:
        if not callable(candidate):
            return f"the exercise asks for a function, this is {_kind(candidate)}"
        pairs = [(getattr(reference, "__name__", "it"), reference, candidate)]
    for name, right, given in pairs:
        try:
            asked, offered = inspect.signature(right), inspect.signature(given)
        except (TypeError, ValueError):
            continue  # written in C: it has no signature to look at
        required = [p for p in asked.parameters.values() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        try:
            offered.bind(*required)
        except TypeError:
            return f"{name} takes {offered}, the exercise asks for {asked}"
    return ""


def _not_written(candidate: type, wanted: Sequence[str]) -> str:
    """Which of the methods a learner's class only inherits from this package: a typo in a name leaves the right answer in place."""
    own = [
        vars(base)
        for base in candidate.__mro__
        if base is not object and not base.__module__.startswith("mini_engine.")
    ]
    names = {name for written in own for name in written}
    for name in wanted:
        if own and name not in names:
            near = difflib.get_close_matches(name, sorted(names - set(wanted)), n=1, cutoff=0.8)
            return f"the class does not write {name}" + (f"; is {near[0]} meant to be it?" if near else "")
    return ""


def _kind(candidate: Any) -> str:
    return "None" if candidate is None else f"of type {type(candidate).__name__}"


def report(exercise: Exercise, status: str, outcomes: list[Outcome]) -> str:
    """The lines that a learner reads."""
    head = f"[{status}] {exercise.id}  {exercise.title}"
    if status == "todo":
        return f"{head}: not done yet, going on with the reference version"
    lines = [head]
    for outcome in outcomes:
        lines.append(f"     {'✓' if outcome.status == 'ok' else '✗'} {outcome.property}")
        lines += _indented(outcome.detail, "         ")
    printed = next((o.printed for o in reversed(outcomes) if o.printed), "")
    if printed:
        lines += ["     Your code printed:", *_indented(printed, "       | ", limit=5)]
    if status != "ok":
        lines.append("     Going on with the reference version.")
    return "\n".join(lines)


def _indented(text: str, margin: str, limit: int = 14) -> list[str]:
    """The first lines behind a margin, long ones folded; only what is very long is cut."""
    lines = [line if len(line) <= 600 else line[:600] + " ..." for line in text.splitlines()]
    hidden = len(lines) - limit
    shown = lines if hidden <= 0 else [*lines[:limit], f"... {hidden} lines more"]
    return [margin + part for line in shown for part in _folded(line)]


def _folded(line: str) -> list[str]:
    """The line as it is, or folded between words, the rest further in."""
    if len(line) <= 120:
        return [line]
    inner = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, 120, subsequent_indent=inner, break_on_hyphens=False, replace_whitespace=False)
