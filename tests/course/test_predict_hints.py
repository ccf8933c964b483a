"""What `predict` says of a wrong number: too large or too small, by how much where a factor may be forgotten, and in which unit it would be right."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from mini_engine.course.exercise import Prediction
from mini_engine.course.exercises import all_of
from tests.course.predict_cases import KV, PASSES


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (19, "one too few. Look at where you start, where you stop, and how you round."),
        (21, "one too many. Look at where you start, where you stop, and how you round."),
        (18, "It is too small. Write down a small case step by step."),
        (20.5, "20.5 passes is not it. The answer is a whole number. Does this one round down or up?"),
        (20.0000001, "20.0000001 passes is not it."),
        (22.5, "It is too large. Write down"),
        (101, "It is too large. Write down"),
        (60, "It is 3 times too large. If a factor is wrong, which one?"),
        (5, "It is 4 times too small. If a factor is wrong, which one?"),
        (1, "It is too small. Write down"),
    ],
)
def test_counts_are_off_by_a_sum_unless_the_factor_is_whole(
    value: Any, words: str, said: Callable[..., str], defined: Callable[..., None]
) -> None:
    defined(PASSES)
    assert words in " ".join(said("99.passes", value).split())


def test_a_size_close_by_is_not_off_by_a_factor(said: Callable[..., str], defined: Callable[..., None]) -> None:
    defined(KV)
    assert "It is a little too large. Check each number that goes in." in said("99.kv", 2.6)
    assert "1.5 times too large. Which factor is that?" in said("99.kv", 3.75)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (2.76, "It is too large. Check each number"),  # 1.104 times: no factor that anybody forgets
        (9.2, "It is 3.7 times too large. Check each number"),
        (1.9, "It is too small. Check each number"),
        (40, "It is 16 times too large. Which factor is that?"),
        (0.0125, "It is 200 times too small. Which factor is that?"),
        (32.5, "It is 13 times too large. Check each number"),
    ],
)
def test_a_factor_is_asked_for_where_one_may_be_forgotten(
    value: Any, words: str, said: Callable[..., str], defined: Callable[..., None]
) -> None:
    defined(KV)
    assert words in " ".join(said("99.kv", value).split())


@pytest.mark.parametrize("unit", ["", "tokens", "%", "ms", "B", "GiB"])
@pytest.mark.parametrize("value", [1, 2, 13, 17, 20, 2.5, -1])
def test_a_right_answer_of_zero_is_never_a_matter_of_units(
    value: Any, unit: str, said: Callable[..., str], defined: Callable[..., None]
) -> None:
    for rtol in (0, 0.05):
        defined(Prediction(f"99.zero{rtol}", "?", 0, unit, rtol=rtol))
        text = said(f"99.zero{rtol}", value)
        assert re.search("one too (many|few)|too (large|small)|whole number", text)
        assert not re.search("would be right in|number of|bits", text)
        assert "0 is right" not in text
        assert "is right" in said(f"99.zero{rtol}", 0)


@pytest.mark.parametrize("question", all_of(Prediction), ids=lambda question: question.id)
def test_no_number_of_the_course_is_one_times_too_large(question: Prediction, said: Callable[..., str]) -> None:
    for guess in {question.answer + step for step in (-1, 1, -2, 2)} | {
        int(question.answer * r) for r in (0.7, 0.99, 1.3, 5.05)
    }:
        assert not re.search(r"It is [01](\.0\d*)? times|(?<![-.,\d])1 \w+s is", said(question.id, guess))
