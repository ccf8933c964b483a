"""What is particular to the exercises of lessons 00 and 01: their oracles, golden counts, and predictions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mini_engine.course.check import run
from mini_engine.course.exercise import Exercise
from mini_engine.course.exercises import all_of
from mini_engine.course.exercises.answers01_attention import by_arrays, by_rows
from mini_engine.course.exercises.answers01_kv_cache import KVCache
from mini_engine.course.exercises.attention_cases import slow_attention, slow_softmax
from mini_engine.course.exercises.e01_check_attention import BANK, TEST_ATTENTION, WRONG
from mini_engine.course.exercises.e01_counting import count_passes, token_forwards
from mini_engine.course.exercises.e01_generate import GENERATE_CACHED, WIDE, ToyModel, generate_slowly
from mini_engine.course.exercises.e01_kv_cache import KV_CACHE
from mini_engine.geometry import attn_pairs, forwards_with_cache, forwards_without_cache


def test_golden_counts():
    assert token_forwards(1000, 1000, False) == 1_499_500
    assert token_forwards(1000, 1000, True) == 1_999
    assert attn_pairs(1000, 1000, False) == 1_166_666_500
    assert attn_pairs(1000, 1000, True) == 1_999_000
    assert (token_forwards(1, 10, False), token_forwards(1, 10, True)) == (55, 10)


@pytest.mark.parametrize("cached", [False, True])
def test_counts_agree_with_a_run_of_every_pass(cached):
    for n, m in itertools.product(range(1, 9), range(1, 9)):
        assert token_forwards(n, m, cached) == (forwards_with_cache if cached else forwards_without_cache)(n, m)
        passes = [(n, n)] + [(1, n + i) if cached else (n + i, n + i) for i in range(1, m)]
        assert token_forwards(n, m, cached) == sum(rows for rows, _ in passes) == count_passes(n, m, cached)
        pairs = sum(sum(range(end - rows + 1, end + 1)) for rows, end in passes)
        assert attn_pairs(n, m, cached) == pairs


def test_slow_softmax_by_hand():
    assert slow_softmax([0.0, np.log(3.0)]) == pytest.approx([0.25, 0.75])
    assert slow_softmax([1000.0, 1000.0]) == [0.5, 0.5]


def test_slow_attention_by_hand():
    """Row 0 sees value 0 only; row 1 mixes values 0 and 1 by weights 1/4 and 3/4."""
    q = np.array([[[5.0]], [[np.log(3.0)]]])
    k, v = np.array([[[0.0]], [[2.0]]]), np.array([[[8.0]], [[4.0]]])
    assert slow_attention(q, k, v, 0.5).ravel() == pytest.approx([8.0, 0.25 * 8 + 0.75 * 4])
    assert slow_attention(q[1:], k, v, 0.5, offset=1).ravel() == pytest.approx([5.0])


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 3, 2, 2), (1, 7, 4, 2), (5, 9, 6, 3)])
def test_right_answers_agree_with_the_loops_beyond_the_cases_of_the_exercise(shape):
    rows, keys, heads, kv_heads = shape
    rng = np.random.default_rng(99)
    q = rng.normal(size=(rows, heads, 16))
    k, v = rng.normal(size=(2, keys, kv_heads, 16))
    expected = slow_attention(q, k, v, 0.25, keys - rows)
    for attention in (by_rows, by_arrays):
        assert np.abs(attention(q, k, v, 0.25, keys - rows) - expected).max() < 1e-12


def test_the_toy_model_has_no_near_ties():
    """A rounding difference must not be able to change a greedy token of 01.generate_cached."""
    for seed, prompt, shape in ((0, [4], {}), (1, [9, 2], {}), (2, [3, 1, 4, 1, 5], {}), (0, [9, 2], WIDE)):
        tokens = [*prompt, *generate_slowly(prompt, 6, seed, **shape)]
        model = ToyModel(seed, **shape)
        scale = model.spec.head_dim**-0.5
        attend = lambda layer, q, k, v, scale=scale: slow_attention(q, k, v, scale)  # noqa: E731
        logits = model.forward(tokens, range(len(tokens)), attend)
        second, first = np.sort(logits[len(prompt) - 1 : -1])[:, -2:].T
        assert (first - second).min() > 1e-2


def test_a_test_that_compares_attention_with_itself_lets_most_bugs_through():
    """The number that lesson 01 quotes."""
    weak = next(m for m in TEST_ATTENTION.mutants if "itself" in m.name)
    outcome = list(run(TEST_ATTENTION, weak.function))[-1]
    assert "caught 3 of 8 bugs" in outcome.detail
    assert len(WRONG) == 8


def test_the_cache_reference_is_what_the_loop_needs():
    cache = KVCache(2, 5, 1, 4)
    GENERATE_CACHED.reference(ToyModel(), cache, [1, 2, 3], 3)
    assert cache.num_tokens == 5  # 3 + 3 - 1
    with pytest.raises(MemoryError, match=r"capacity is 4.*larger cache"):
        GENERATE_CACHED.reference(ToyModel(), KVCache(2, 4, 1, 4), [1, 2, 3], 3)


def test_cache_errors_leave_the_arrays_alone():
    cache = KV_CACHE.reference(1, 2, 1, 1)
    cache.append(0, np.ones((2, 1, 1)), np.ones((2, 1, 1)))
    with pytest.raises(MemoryError, match="capacity is 2"):
        cache.append(0, np.zeros((1, 1, 1)), np.zeros((1, 1, 1)))
    assert (cache.k == 1).all()
    assert (cache.v == 1).all()


def _unpacks_too_much(attention):
    _t, _h, _d, _extra = np.zeros((1, 2, 4)).shape


def _indexes_too_far(attention):
    np.zeros(3)[3]


def _refuses_all(attention):
    assert attention is None, "not what I wanted"


@pytest.mark.parametrize(
    ("test", "words"),
    [
        (_unpacks_too_much, ["ValueError: not enough values", "in line", "_extra"]),
        (_indexes_too_far, ["IndexError", "in line", "np.zeros(3)[3]"]),
        (_refuses_all, ["refuses a right attention", "not what I wanted", "in line"]),
    ],
)
def test_a_learners_test_with_a_fault_of_its_own_is_shown_its_own_line(test, words):
    outcome = list(run(TEST_ATTENTION, test))[-1]
    assert outcome.property == "right answers pass"
    for word in words:
        assert word in outcome.detail


def test_a_loop_over_the_passes_is_quick_enough():
    def token_forwards(n, m, cached):
        total = n
        for done in range(1, m):
            total += 1 if cached else n + done
        return total

    assert [
        o.status for o in run(next(e for e in all_of(Exercise, "01") if e.id == "01.token_forwards"), token_forwards)
    ] == ["ok"] * 5


def test_the_scale_of_the_notebook_is_named_as_the_mistake():
    """The natural slip in 01.generate_cached: a global `scale`, which is another model's."""
    mutant = next(m for m in GENERATE_CACHED.mutants if m.name == "scale of another model")
    outcome = list(run(GENERATE_CACHED, mutant.function))[-1]
    assert "scale" in outcome.property
    assert "4 ** -0.5" in outcome.detail


def test_the_eight_bugs_stay_eight():
    assert len(WRONG) == len(BANK) == 8
