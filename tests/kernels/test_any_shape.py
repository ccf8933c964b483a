"""Both decode kernels over drawn shapes: nothing is a multiple of anything."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed here")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_engine.kernels import paged_gqa_decode, paged_mla_decode
from tests.kernels.memory import poisoned_memory
from tests.kernels.worlds import check_numbers, gqa_run, make_world, mla_run

COMMON = {
    "lengths": st.lists(st.integers(0, 150), min_size=1, max_size=3),
    "P": st.integers(1, 40),
    "G": st.integers(1, 35),
    "dtype": st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    "int8": st.booleans(),
    "seed": st.integers(0, 2**16),
}
SPLITS = st.none() | st.integers(1, 9)
# The same shapes each time: of very few numbers a sum may come out so small that its relative error means nothing.
drawn = settings(max_examples=25, derandomize=True)


@drawn
@given(
    shape=st.fixed_dictionaries(
        {**COMMON, "K": st.integers(1, 3), "D": st.integers(8, 140), "window": st.none() | st.integers(1, 160)}
    ),
    num_splits=SPLITS,
)
def test_gqa(shape, num_splits):
    with poisoned_memory():
        check_numbers(gqa_run(paged_gqa_decode), make_world(**shape), num_splits=num_splits)


@drawn
@given(
    shape=st.fixed_dictionaries({**COMMON, "value_dim": st.integers(8, 140)}),
    rotary=st.integers(1, 40),
    num_splits=SPLITS,
)
def test_mla(shape, rotary, num_splits):
    world = make_world(**shape, K=1, D=shape["value_dim"] + rotary)
    with poisoned_memory():
        check_numbers(mla_run(paged_mla_decode), world, num_splits=num_splits)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of NaN
@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize("where", ["k", "v"])
def test_nan_in_a_context_is_not_hidden(where, num_splits):
    """Of one key/value head of one sequence: its query heads are NaN, the others what they were."""
    world = make_world((70, 70), K=2, G=2)
    before = gqa_run(paged_gqa_decode)(world, num_splits=num_splits)
    block, slot = world.place(0, 66)
    getattr(world, where)[block, slot, 1] = float("nan")
    after = gqa_run(paged_gqa_decode)(world, num_splits=num_splits)
    assert after[0, 2:].isnan().all()
    assert torch.equal(after[0, :2], before[0, :2])
    assert torch.equal(after[1], before[1])
