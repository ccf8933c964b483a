"""e4m3 bit by bit against torch's float8_e4m3fn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mini_engine import get_model
from mini_engine.attention import Fp8Codec, fp8_e4m3
from mini_engine.attention.fp8 import FP8_MAX, VALUES
from mini_engine.geometry import kv_bytes_per_token, kv_bytes_quant


def torch_codes(x: np.ndarray) -> np.ndarray:
    return torch.from_numpy(x).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn).view(torch.uint8).numpy()


def test_all_256_bytes_mean_what_torch_says():
    every = torch.arange(256, dtype=torch.uint8)
    np.testing.assert_array_equal(VALUES, every.view(torch.float8_e4m3fn).double().numpy())


def test_codes_equal_torchs_at_every_number_tie_and_neighbour():
    held = VALUES[np.isfinite(VALUES)]
    ordered = np.unique(held)
    ties = (ordered[1:] + ordered[:-1]) / 2
    at = np.concatenate([held, ties, [448, 449, 463, 464, 465, 480, 1e9, 2.0**-10, 2.0**-9, 1e-30]]).astype(np.float32)
    x = np.concatenate([at, np.nextafter(at, np.float32(np.inf)), np.nextafter(at, np.float32(-np.inf))])
    x = np.concatenate([x, -x]).reshape(-1, 1, 1)
    np.testing.assert_array_equal(Fp8Codec().encode(x).codes, torch_codes(x))


@given(hnp.arrays(np.float32, (4, 1, 16), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_codes_equal_torchs_anywhere(x):
    encoded = Fp8Codec().encode(x)
    np.testing.assert_array_equal(encoded.codes, torch_codes(x))
    decoded = Fp8Codec().decode(encoded)
    np.testing.assert_array_equal(decoded, fp8_e4m3(x).astype(np.float32))
    inside = np.abs(x) <= FP8_MAX
    error = np.abs(decoded.astype(np.float64) - x)
    assert (error <= np.maximum(np.abs(x) / 16, 2.0**-10))[inside].all()


def test_it_saturates_and_keeps_nan():
    np.testing.assert_array_equal(fp8_e4m3([np.inf, -np.inf, 1e300, -449, np.nan]), [448, -448, 448, -448, np.nan])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_codec_refuses_what_is_not_finite(bad):
    x = np.zeros((2, 1, 4))
    x[1, 0, 2] = bad
    with pytest.raises(ValueError, match=rf"x\[1, 0, 2\] is {bad}"):
        Fp8Codec().encode(x)


def test_one_byte_a_number_and_no_scales():
    spec = get_model("smollm2-135m")
    T = 5
    x = np.ones((T, spec.num_key_value_heads, spec.head_dim))
    stored = 2 * spec.num_hidden_layers * Fp8Codec().encode(x).nbytes
    assert stored == T * kv_bytes_per_token(spec, "fp8") == T * kv_bytes_quant(spec, 8, 64, 0)
