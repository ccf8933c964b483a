"""The sampler against exact probabilities, computed here by plain loops that share nothing with it."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_engine.sampling import Sampler, SamplingParams, largest, nucleus, uniform

INF = float("inf")


def exact_probabilities(logits, temperature=1.0, top_k=0, top_p=1.0):
    """Token -> probability, from the definitions: sort, cut, renormalise."""
    peak = max(logits)
    weight = {token: math.exp((logit - peak) / temperature) for token, logit in enumerate(logits)}
    order = sorted(weight, key=lambda token: (-logits[token], token))
    if top_k:
        order = order[:top_k]
    total = sum(weight[token] for token in order)
    kept, mass = [], 0.0
    for token in order:
        if kept and mass >= top_p * total:
            break
        kept.append(token)
        mass += weight[token]
    total = sum(weight[token] for token in kept)
    return {token: weight[token] / total for token in kept if weight[token] > 0}


def draws(logits, count, *, seed=7, **options):
    sampler = Sampler(SamplingParams(seed=seed, max_tokens=count, **options))
    logits = np.array(logits, dtype=np.float32)
    return [sampler.sample(logits, position) for position in range(count)]


def chi_square(counts, probabilities, total):
    return sum((counts[token] - total * p) ** 2 / (total * p) for token, p in probabilities.items())


LOGITS = [0.5, 1.0, -0.5, 0.75, 0.0, 0.75, -1.0, 0.25]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"top_k": 1},
        {"top_k": 2},  # cuts between two equal logits: the smaller id stays
        {"top_k": 3},
        {"top_k": 8},
        {"top_k": 100},
        {"top_p": 0.3},
        {"top_p": 0.6},
        {"top_p": 0.95},
        {"top_p": 1e-9},
        {"top_k": 4, "top_p": 0.7},
        {"temperature": 1.7, "top_k": 6, "top_p": 0.9},
    ],
    ids=str,
)
def test_draws_follow_the_exact_distribution(options):
    total = 4000
    expected = exact_probabilities(LOGITS, **options)
    counts = Counter(draws(LOGITS, total, **options))
    assert set(counts) == set(expected), "a token outside the allowed set, or one never drawn"
    # 99.9 % of right samplers stay below this bound with at most 7 degrees of freedom; the seed is fixed
    assert chi_square(counts, expected, total) < 24.3


def test_the_chi_square_bound_rejects_a_slightly_wrong_temperature():
    wrong = exact_probabilities(LOGITS, temperature=1.3)
    assert chi_square(Counter(draws(LOGITS, 4000)), wrong, 4000) > 24.3


@settings(max_examples=200)
@given(
    logits=st.lists(st.integers(-8, 8).map(lambda n: n / 2), min_size=1, max_size=12),
    top_k=st.integers(0, 14),
    top_p=st.floats(0.01, 1.0),
    seed=st.integers(0, 2**64 - 1),
)
def test_every_draw_is_one_of_the_allowed_tokens(logits, top_k, top_p, seed):
    allowed = exact_probabilities(logits, top_k=top_k, top_p=top_p + 1e-9)  # a hair wider: sums round differently
    sampler = Sampler(SamplingParams(seed=seed, top_k=top_k, top_p=top_p, max_tokens=20))
    assert {sampler.sample(np.array(logits), position) for position in range(20)} <= set(allowed)


@settings(max_examples=200)
@given(
    values=st.lists(st.sampled_from([-INF, -2.0, -1.0, 0.0, 0.5, 3.0]), min_size=1, max_size=30),
    count=st.integers(0, 35),
)
def test_largest_is_a_sort_cut_short(values, count):
    expected = sorted(range(len(values)), key=lambda i: (-values[i], i))[:count]
    assert largest(np.array(values), count).tolist() == expected


@settings(max_examples=300)
@given(
    weights=st.lists(st.integers(0, 6), min_size=1, max_size=40).filter(any),
    sixteenths=st.integers(1, 15),
)
def test_nucleus_is_the_smallest_set_that_reaches_top_p(weights, sixteenths):
    chosen = nucleus(np.array(weights, dtype=float), sixteenths / 16).tolist()
    expected, mass = [], 0
    for token in sorted(range(len(weights)), key=lambda i: (-weights[i], i)):
        expected.append(token)
        mass += weights[token]
        if 16 * mass >= sixteenths * sum(weights):  # integers: no rounding
            break
    assert chosen == expected


def test_top_p_keeps_one_token_even_when_the_best_is_unlikely():
    logits = np.zeros(1000)
    assert set(draws(logits, 20, top_p=1e-12)) == {0}


def test_greedy_takes_the_largest_and_the_first_among_equals():
    assert draws([1.0, 3.0, 2.0], 1, temperature=0) == [1]
    assert draws([1.0, 3.0, 3.0], 1, temperature=0) == [1]
    assert draws([-INF, -5.0, -INF], 1, temperature=0) == [1]


def test_a_tiny_temperature_is_greedy_without_overflow(recwarn):
    for temperature in (1e-3, 1e-30, 1e-300, 5e-324):
        assert set(draws([1.0, 3.0, 2.9], 20, temperature=temperature)) == {1}
    assert not recwarn.list


def test_a_huge_temperature_is_uniform():
    counts = Counter(draws([5.0, -5.0, 0.0, 1.0], 4000, temperature=1e9))
    assert chi_square(counts, dict.fromkeys(range(4), 0.25), 4000) < 16.3


def test_a_token_at_minus_infinity_is_never_drawn():
    logits = [0.0, -INF, 0.0, -INF, -INF]
    assert set(draws(logits, 200)) == {0, 2}
    assert set(draws(logits, 200, top_k=4)) == {0, 2}
    assert set(draws(logits, 200, top_p=0.99)) == {0, 2}
    assert draws([-INF, 4.0], 3, temperature=0.7) == [1, 1, 1]


@pytest.mark.parametrize(("draw", "token"), [(0.0, 1), (0.5 - 2**-53, 1), (0.5, 3), (1 - 2**-53, 3)])
@pytest.mark.parametrize("options", [{}, {"top_k": 4}, {"top_p": 0.9999}], ids=str)
def test_the_ends_of_the_unit_interval_fall_on_tokens_that_have_weight(monkeypatch, draw, token, options):
    monkeypatch.setattr("mini_engine.sampling.uniform", lambda *_: draw)
    assert draws([-INF, 0.0, -INF, 0.0, -INF], 1, **options) == [token]


@pytest.mark.parametrize("options", [{"temperature": 0}, {}, {"top_k": 2}, {"top_p": 0.5}], ids=str)
@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([0.0, float("nan"), 1.0], "logit 1 is nan"),
        ([0.0, 1.0, INF], "logit 2 is inf"),
        ([-INF, -INF, -INF], "every logit is -inf"),
    ],
)
def test_broken_logits_are_refused(options, logits, message):
    with pytest.raises(ValueError, match=message):
        draws(logits, 1, **options)


# -- one draw depends on seed, branch, position and logits, and on nothing else -------------------------------------


def test_a_draw_does_not_depend_on_the_draws_before_it():
    logits = np.random.default_rng(0).normal(size=(50, 300))
    params = SamplingParams(seed=11, max_tokens=50)
    forwards = Sampler(params)
    in_order = [forwards.sample(logits[position], position) for position in range(50)]
    backwards = Sampler(params)
    reverse = [backwards.sample(logits[position], position) for position in reversed(range(50))]
    assert in_order == reverse[::-1]
    assert [Sampler(params).sample(logits[p], p) for p in range(50)] == in_order


@pytest.mark.parametrize("other", [{"seed": 12}, {"seed": 2**63}, {"index": 1}])
def test_seed_and_branch_each_change_the_stream(other):
    logits = np.zeros(1000)
    base = {"seed": 11, "index": 0}

    def stream(seed, index):
        sampler = Sampler(SamplingParams(seed=seed, max_tokens=40), index=index)
        return [sampler.sample(logits, position) for position in range(40)]

    assert stream(**base) == stream(**base)
    same = sum(a == b for a, b in zip(stream(**base), stream(**base | other)))
    assert same <= 2, "two independent streams of 40 draws among 1,000 tokens hardly ever meet"


@pytest.mark.parametrize("axis", ["seed", "index", "position"])
def test_uniform_is_uniform_along_each_argument(axis):
    values = [uniform(**({"seed": 3, "index": 0, "position": 0} | {axis: i})) for i in range(4000)]
    assert min(values) >= 0
    assert max(values) < 1
    counts = Counter(int(value * 16) for value in values)
    assert chi_square(counts, dict.fromkeys(range(16), 1 / 16), 4000) < 37.7  # 99.9 %, 15 degrees of freedom
    neighbours = np.corrcoef(values[:-1], values[1:])[0, 1]
    assert abs(neighbours) < 0.05


def test_the_stream_is_fixed_for_ever():
    # Philox's output is part of NumPy's compatibility promise: a seed written down today gives the same text tomorrow
    sampler = Sampler(SamplingParams(seed=42, max_tokens=8), index=1)
    assert [sampler.sample(np.zeros(1000), position) for position in range(8)] == [
        443,
        24,
        975,
        281,
        367,
        516,
        362,
        864,
    ]


# -- min_tokens masks what would stop ---------------------------------------------------------------------------------


@pytest.mark.parametrize("min_tokens", [0, 1, 2, 5])
def test_stop_tokens_cannot_come_in_the_first_min_tokens_draws(min_tokens):
    logits = np.array([9.0, 8.0, 7.0, 0.0])  # 0 ends the text by the model's wish, 1 by the caller's
    params = SamplingParams(temperature=0, min_tokens=min_tokens, stop_token_ids=(1,), max_tokens=9)
    sampler = Sampler(params, eos_token_ids=(0,))
    taken = [sampler.sample(logits, position) for position in range(7)]
    assert taken == [2] * min_tokens + [0] * (7 - min_tokens)
    assert [sampler.is_argmax(position) for position in range(7)] == [p >= min_tokens for p in range(7)]


def test_an_ignored_end_token_is_an_ordinary_one():
    params = SamplingParams(temperature=0, min_tokens=5, ignore_eos=True, max_tokens=9)
    sampler = Sampler(params, eos_token_ids=(0,))
    assert sampler.sample(np.array([9.0, 8.0]), 0) == 0
    assert sampler.is_argmax(0)


def test_masking_leaves_the_callers_logits_alone():
    logits = np.array([9.0, 8.0])
    Sampler(SamplingParams(min_tokens=1, seed=0), eos_token_ids=(0,)).sample(logits, 0)
    assert logits.tolist() == [9.0, 8.0]


def test_masking_everything_is_an_error():
    sampler = Sampler(SamplingParams(min_tokens=1, seed=0), eos_token_ids=(0, 1))
    with pytest.raises(ValueError, match="min_tokens masks"):
        sampler.sample(np.array([9.0, 8.0]), 0)


# -- logprobs -----------------------------------------------------------------------------------------------------------


def test_logprobs_are_the_models_own():
    logits = [1.0, 3.0, 2.0, -INF]
    total = math.log(sum(math.exp(x) for x in logits))
    sampler = Sampler(SamplingParams(temperature=0.3, top_k=1, logprobs=2, min_tokens=1), eos_token_ids=(1,))
    report = sampler.logprobs(np.array(logits, dtype=np.float32), token_id=0)
    assert list(report) == [1, 2, 0], "most likely first, then the token taken"
    for token, value in report.items():
        assert value == pytest.approx(logits[token] - total, abs=1e-12)


def test_logprobs_0_reports_the_token_taken_only():
    assert list(Sampler(SamplingParams(logprobs=0)).logprobs(np.array([1.0, 2.0]), 0)) == [0]


def test_logprobs_past_the_vocabulary_report_all_of_it():
    report = Sampler(SamplingParams(logprobs=99)).logprobs(np.array([1.0, 2.0, 3.0]), 1)
    assert sum(math.exp(value) for value in report.values()) == pytest.approx(1, abs=1e-12)


def test_logprobs_are_not_computed_unasked():
    sampler = Sampler(SamplingParams(temperature=0))
    assert sampler.is_argmax(0)
    assert sampler.logprobs(np.array([1.0, 2.0]), 1) is None
    assert not Sampler(SamplingParams(temperature=0, logprobs=0)).is_argmax(0)
