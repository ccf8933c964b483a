"""Every exercise of the course: right answers pass, each named wrong answer is rejected by the property it names."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from mini_engine.course.check import check, run
from mini_engine.course.exercise import INPUTS_UNCHANGED, Exercise, Mutant, Prediction
from mini_engine.course.exercises import all_of
from mini_engine.course.mutants import rejection
from mini_engine.course.predict import predict

EXERCISES = {exercise.id: exercise for exercise in all_of(Exercise)}
MUTANTS = {f"{e.id}: {m.name}": (e, m) for e in EXERCISES.values() for m in e.mutants}
PREDICTIONS = {prediction.id: prediction for prediction in all_of(Prediction)}

SEVERAL_FIT = {  # exercises with a wrong answer that an earlier property, or a call before, may refuse as well
    "01.causal_attention", "01.check_attention", "01.generate_cached", "01.token_forwards", "08.mend",
}  # fmt: skip
ASK_BACK = {"05.neighbours", "05.window"}  # explanations that end with a question

each_exercise = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)
each_prediction = pytest.mark.parametrize("question", PREDICTIONS.values(), ids=PREDICTIONS)


def test_lessons_have_exercises() -> None:
    assert EXERCISES
    assert PREDICTIONS


@each_exercise
def test_right_answers_pass(exercise: Exercise) -> None:
    assert exercise.alternatives, (
        "an answer written another way shows that the properties do not ask for the reference's code"
    )
    for answer in (exercise.reference, *exercise.alternatives):
        assert [(o.property, o.detail) for o in run(exercise, answer) if o.status != "ok"] == []


@each_exercise
def test_every_property_rejects_somebody(exercise: Exercise) -> None:
    assert len(exercise.mutants) >= 3
    assert len({mutant.name for mutant in exercise.mutants}) == len(exercise.mutants)
    unused = {p.name for p in exercise.properties} - {m.caught_by for m in exercise.mutants}
    assert not unused, f"no mutant shows that these properties can fail: {unused}"


@pytest.mark.parametrize(("exercise", "mutant"), MUTANTS.values(), ids=MUTANTS)
def test_mutant_is_rejected_by_the_property_it_names(exercise: Exercise, mutant: Mutant) -> None:
    """And by no property before it: the first that fails has to be the one that fits."""
    outcome = rejection(exercise, mutant) if exercise.id in SEVERAL_FIT else list(run(exercise, mutant.function))[-1]
    assert outcome is not None, f"{mutant.caught_by!r} accepts it: {mutant.why}"
    assert (outcome.status, outcome.property) == ("no", mutant.caught_by), mutant.why
    lines = outcome.detail.splitlines()
    shows_a_case = len(lines) >= 2 or mutant.caught_by == INPUTS_UNCHANGED
    assert shows_a_case, f"the message shows no failing case: {outcome.detail!r}"


@each_exercise
def test_check_reports_a_wrong_answer_and_goes_on(exercise: Exercise, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(exercise.id, exercise.mutants[0].function) is exercise.reference
    text = capsys.readouterr().out
    assert text.startswith(f"[no] {exercise.id}")
    assert "✗ " in text


@each_exercise
def test_stub_is_todo(exercise: Exercise, capsys: pytest.CaptureFixture[str]) -> None:
    def not_done(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    stub: Any = not_done
    if isinstance(exercise.reference, type):
        names = [n for n, m in vars(exercise.reference).items() if inspect.isfunction(m)]
        stub = type("Stub", exercise.reference.__bases__, dict.fromkeys(names, not_done))
    assert check(exercise.id, stub) is exercise.reference
    assert capsys.readouterr().out.startswith(f"[todo] {exercise.id}")


def _unfolded(text: str) -> str:
    """The words of what `predict` prints, without its line breaks."""
    return " ".join(text.split())


@each_prediction
def test_predictions_know_the_answer_and_explain_mistakes(
    question: Prediction, capsys: pytest.CaptureFixture[str]
) -> None:
    predict(question.id)
    assert question.question in _unfolded(capsys.readouterr().out)
    predict(question.id, question.answer)
    assert "is right" in _unfolded(capsys.readouterr().out)
    assert len(question.mistakes) >= 2
    for wrong, why in question.mistakes:
        predict(question.id, wrong)
        text = _unfolded(capsys.readouterr().out)
        assert "is not it" in text
        assert why in text, f"{wrong} is taken for another mistake"


@each_prediction
def test_predictions_explain_distinct_wrong_numbers(question: Prediction) -> None:
    wrong = [number for number, _ in question.mistakes]
    assert len(set(wrong)) == len(wrong) >= 3
    assert question.answer not in wrong
    assert question.because
    ends = (".", "?") if question.id in ASK_BACK else "."
    assert all(why.endswith(ends) for _, why in question.mistakes)
