"""SamplingParams refuses what it cannot honour, and says which field, value and range."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mini_engine.sampling import SamplingParams


def test_defaults():
    assert dataclasses.asdict(SamplingParams()) == {
        "n": 1,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_tokens": 0,
        "max_tokens": 16,
        "stop": (),
        "stop_token_ids": (),
        "ignore_eos": False,
        "seed": None,
        "logprobs": None,
    }


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("n", 0, ">= 1"),
        ("n", True, ">= 1"),
        ("n", 2.0, ">= 1"),
        ("temperature", -0.1, ">= 0"),
        ("temperature", float("nan"), ">= 0"),
        ("temperature", float("inf"), ">= 0"),
        ("temperature", "hot", ">= 0"),
        ("temperature", None, ">= 0"),
        ("temperature", 10**400, ">= 0"),
        ("top_k", -1, ">= 0"),
        ("top_p", 0.0, "(0, 1]"),
        ("top_p", 1.0001, "(0, 1]"),
        ("top_p", float("nan"), "(0, 1]"),
        ("min_tokens", -1, ">= 0"),
        ("max_tokens", -1, ">= 0"),
        ("max_tokens", None, ">= 0"),
        ("stop", ("ok", ""), "non-empty"),
        ("stop", "", "non-empty"),
        ("stop", (b"bytes",), "non-empty"),
        ("stop", 7, "sequence"),
        ("stop_token_ids", (-1,), ">= 0"),
        ("stop_token_ids", ("a",), ">= 0"),
        ("stop_token_ids", 3, "sequence"),
        ("ignore_eos", 1, "True or False"),
        ("seed", -1, f"[0, {2**64 - 1}]"),
        ("seed", 2**64, f"[0, {2**64 - 1}]"),
        ("logprobs", -1, ">= 0"),
        ("logprobs", True, ">= 0"),
    ],
)
def test_a_bad_value_is_named(field, value, allowed):
    with pytest.raises(ValueError, match=f"^{field}=") as error:
        SamplingParams(**{field: value})
    assert allowed in str(error.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 0),
        ("top_p", 1),
        ("top_p", 5e-324),
        ("max_tokens", 0),
        ("seed", 0),
        ("seed", 2**64 - 1),
        ("logprobs", 0),
    ],
)
def test_the_ends_of_each_range_are_allowed(field, value):
    assert getattr(SamplingParams(**{field: value}), field) == value


def test_min_tokens_cannot_pass_max_tokens():
    assert SamplingParams(min_tokens=3, max_tokens=3).min_tokens == 3
    with pytest.raises(ValueError, match="min_tokens=4 is more than max_tokens=3"):
        SamplingParams(min_tokens=4, max_tokens=3)


def test_values_are_normalised_to_plain_immutable_ones():
    params = SamplingParams(stop="end", stop_token_ids=[np.int64(3)], top_k=np.int32(5), temperature=np.float32(0.5))
    assert params.stop == ("end",)
    assert params.stop_token_ids == (3,)
    assert type(params.top_k) is int
    assert type(params.stop_token_ids[0]) is int
    assert type(params.temperature) is float
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.n = 2


def test_a_given_seed_is_kept_and_a_missing_one_is_drawn_afresh():
    fixed = SamplingParams(seed=0)
    assert fixed.seeded() is fixed
    free = SamplingParams(top_k=7)
    first, second = free.seeded(), free.seeded()
    assert first.seed != second.seed  # equal once in 2**64
    assert dataclasses.replace(first, seed=None) == free


def test_the_tokens_that_stop():
    assert SamplingParams(stop_token_ids=(5,)).all_stop_token_ids((2, 3)) == {2, 3, 5}
    assert SamplingParams(stop_token_ids=(5,), ignore_eos=True).all_stop_token_ids((2, 3)) == {5}
    # asked for by hand, the model's own token stops even with ignore_eos
    assert SamplingParams(stop_token_ids=(2,), ignore_eos=True).all_stop_token_ids((2, 3)) == {2}
