"""The check of lesson 00 names the fault that an answer has, not one that follows from it."""

from __future__ import annotations

import pytest

from mini_engine.course.check import run
from mini_engine.course.exercise import INPUTS_UNCHANGED
from mini_engine.course.exercises.answers00_start_here import generate
from mini_engine.course.exercises.e00_start_here import GENERATE, CountingModel


@pytest.mark.parametrize("mutant", GENERATE.mutants, ids=lambda mutant: mutant.name)
def test_the_case_shows_its_prompt(mutant):
    outcome = list(run(GENERATE, mutant.function))[-1]
    if mutant.caught_by != INPUTS_UNCHANGED:
        assert "prompt [" in outcome.detail


def test_the_message_shows_what_a_forgetful_loop_gave_the_model():
    """No knowledge of the stand-in model is needed to read it."""
    last_only = next(m for m in GENERATE.mutants if m.name == "feeds only the last token")
    detail = list(run(GENERATE, last_only.function))[-1].detail
    assert detail.splitlines() == [
        "prompt [5]: what the model was given in call 2",
        "expected: [5, 10]",
        "got:      [10]",
    ]


def test_the_stand_in_can_say_zero_and_never_repeats_the_prompt():
    assert generate(CountingModel(), [0], 2) == [0, 0]
    for prompt in ([5], [3, 1], [2, 7, 1, 8]):
        assert generate(CountingModel(), prompt, 1) != prompt[:1]
