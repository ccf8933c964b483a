"""Inside `memory_check` a wrong address is an error that names it, and not the end of the process."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed here")

import numpy as np
import torch

from mini_engine.kernels import WildAccessError, memory_check, tl, triton
from tests.kernels.checks import needs_interpreter

pytestmark = needs_interpreter


@triton.jit
def copy_kernel(src_ptr, dst_ptr, load_shift, store_shift, num, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(src_ptr + i + load_shift, mask=i < num, other=0.0)
    tl.store(dst_ptr + i + store_shift, x, mask=i < num)


def copy(src, dst, load_shift=0, store_shift=0, num=5):
    copy_kernel[(1,)](src, dst, load_shift, store_shift, num, BLOCK=8)


def test_right_kernels_run_as_without_it():
    src, dst = torch.arange(5.0), torch.zeros(5)
    with memory_check():
        copy(src, dst)
    assert torch.equal(dst, src)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"load_shift": 1},
            "a load of 4 bytes outside every tensor: through src_ptr, 4 bytes past its last byte",
        ),
        (
            {"load_shift": -2},
            "a load of 4 bytes outside every tensor: through src_ptr, 8 bytes before its first",
        ),
        ({"num": 8}, "through src_ptr, 4 bytes past"),
        ({"store_shift": 2}, "a store of 4 bytes outside every tensor: through dst_ptr, 4 bytes past its last"),
        ({"load_shift": 1 << 40}, "through src_ptr, 4,398,046,511,088 bytes past its last byte"),
    ],
    ids=str,
)
def test_the_first_wrong_address_is_named_before_it_is_touched(options, message):
    around = torch.full((3, 4096), 7.0)  # far apart, so that one tensor's end is not the other's beginning
    src, dst = (x.clone() for x in (around[0, :5], around[1, :6]))
    with pytest.raises(WildAccessError, match=message) as error, memory_check():
        copy(src, dst, **options)
    assert any(entry.name == "copy_kernel" for entry in error.traceback), "the kernel's line is in the traceback"
    assert (dst == 7.0).all()


def test_it_ends_with_its_block_whatever_happens():
    from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

    before = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store, GridExecutor.__call__
    with pytest.raises(ZeroDivisionError), memory_check():
        raise ZeroDivisionError
    assert before == (
        InterpreterBuilder.create_masked_load,
        InterpreterBuilder.create_masked_store,
        GridExecutor.__call__,
    )


def test_what_was_read_is_known_if_it_is_asked_for():
    src, dst = torch.arange(5.0), torch.zeros(5)
    with memory_check() as quiet:
        copy(src, dst)
    with memory_check(record=True) as accesses:
        copy(src, dst, num=3)
        copy(src, dst, load_shift=2, num=2)
    assert quiet.of(src).tolist() == []
    assert accesses.of(src).tolist() == [0, 1, 2, 2, 3]
    assert accesses.of(src[1:]).tolist() == [-1, 0, 1, 1, 2]
    assert accesses.of(dst).tolist() == []


def test_triton_comes_in_the_mode_that_was_chosen():
    assert triton is sys.modules["triton"]
    assert tl is sys.modules["triton.language"]
    assert np.array_equal(copy_kernel.arg_names, ["src_ptr", "dst_ptr", "load_shift", "store_shift", "num", "BLOCK"])
