"""combine against the NumPy truth, which takes natural logarithms where the kernels take base 2."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed here")

import torch

from mini_engine.attention import combine_partials
from mini_engine.kernels import combine
from mini_engine.kernels.config import padded
from tests.kernels.checks import needs_interpreter

pytestmark = needs_interpreter


def random_parts(N, B, H, D, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(N, B, H, D, generator=generator), 20 * torch.randn(N, B, H, generator=generator)


def expected(parts, lse):
    return combine_partials(parts.double().numpy(), lse.double().numpy() * math.log(2))[0]


@pytest.mark.parametrize(
    ("N", "B", "H", "D"), [(1, 1, 1, 16), (2, 3, 5, 80), (3, 1, 9, 64), (8, 2, 20, 128), (32, 1, 3, 512)]
)
def test_parts_are_weighted_by_their_log_sum_exp(N, B, H, D):
    parts, lse = random_parts(N, B, H, D)
    lse[N // 2, :, 0] = -math.inf
    parts[N // 2, :, 0] = math.nan  # an empty part is never written
    lse[:, 0, H - 1] = -math.inf  # nothing but empty parts
    parts[:, 0, H - 1] = math.nan
    out = combine(parts, lse, torch.empty(B, H, D))
    assert not out[0, H - 1].any()
    np.testing.assert_allclose(out, expected(parts, lse), rtol=1e-5, atol=1e-6)


def test_it_fills_any_view_in_any_dtype_and_nothing_else():
    parts, lse = random_parts(3, 2, 5, 20)
    for dtype, tolerance in [(torch.float32, 1e-6), (torch.float16, 1e-3), (torch.bfloat16, 1e-2)]:
        around = torch.full((4, 9, 28), 7.0, dtype=dtype)
        out = around[1:3, 2:7, 4:24]
        assert combine(parts, lse, out) is out
        np.testing.assert_allclose(out.float(), expected(parts, lse), rtol=tolerance, atol=tolerance)
        out.fill_(7.0)
        assert (around == 7.0).all()


def test_shapes_that_do_not_fit_are_named():
    parts, lse = random_parts(3, 2, 5, 16)
    for wrong in [(parts, lse[:2], parts[0]), (parts, lse, parts[0, :1]), (parts.double(), lse, parts[0])]:
        with pytest.raises(ValueError, match="must"):
            combine(*wrong)


def test_tiles_are_powers_of_two():
    assert [padded(size) for size in (1, 16, 17, 80, 256)] == [16, 16, 32, 128, 256]
    assert [padded(size, 1) for size in (1, 2, 3, 32)] == [1, 2, 4, 32]
