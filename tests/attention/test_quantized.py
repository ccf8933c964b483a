"""Codecs against a loop over single groups, their bytes against the formula, their errors against what half a scale allows."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mini_engine import get_model
from mini_engine.attention import IntCodec, kivi
from mini_engine.attention.quantized import LARGEST, pack, unpack
from mini_engine.geometry import kv_bytes_quant

CODECS = [
    IntCodec(bits, axis, group, symmetric, scale_type)
    for bits in (2, 4, 8)
    for axis, group in [("token", None), ("token", 4), ("channel", 4), ("channel", 8)]
    for symmetric in (True, False)
    for scale_type in ("float16", "float32")
]


def name(codec: IntCodec) -> str:
    return f"int{codec.bits}-{codec.axis}-{codec.group}-{'sym' if codec.symmetric else 'asym'}-{codec.scale_type}"


def groups_of(codec: IntCodec, x: np.ndarray) -> list[tuple[list[tuple[int, int, int]], tuple[int, int, int]]]:
    """(places of the numbers that share a scale, index of that scale) of every group, written as in the definition."""
    T, K, D = x.shape
    if codec.axis == "token":
        group = codec.group or D
        return [
            ([(t, h, c + i) for i in range(group)], (t, h, c // group))
            for t in range(T) for h in range(K) for c in range(0, D, group)
        ]  # fmt: skip
    return [
        ([(t + i, h, c) for i in range(codec.group)], (t // codec.group, h, c))
        for t in range(0, T, codec.group) for h in range(K) for c in range(D)
    ]  # fmt: skip


numbers = st.one_of(
    st.floats(-1e4, 1e4, width=32), st.sampled_from([0.0, 1.0, -1.0, 1e-7, -3e-5, 6e-8, 65504.0, -65504.0, 0.1])
)
arrays = hnp.arrays(np.float64, st.sampled_from([(8, 1, 4), (8, 2, 8), (16, 1, 8)]), elements=numbers)


@pytest.mark.parametrize("codec", CODECS, ids=name)
@settings(max_examples=25)
@given(x=arrays)
def test_every_error_is_at_most_half_the_scale_of_its_group(codec, x):
    encoded = codec.encode(x)
    error = np.abs(codec.decode(encoded).astype(np.float64) - x)
    for places, at in groups_of(codec, x):
        values = np.array([x[place] for place in places])
        scale = float(encoded.scale[at])
        slack = 1e-6 * np.abs(values).max()  # decode answers in float32
        assert max(error[place] for place in places) <= scale / 2 * (1 + 1e-6) + slack
        # And the scale itself is no larger than it must be, but for the rounding of what is stored.
        spread = 2 * np.abs(values).max() if codec.symmetric else values.max() - values.min()
        stored = np.finfo(codec.scale_type)
        rounding = 2 * float(stored.eps) * (spread + np.abs(values).max()) + 2 * float(stored.smallest_subnormal)
        assert scale * codec.levels <= spread + codec.levels * rounding


@pytest.mark.parametrize("codec", CODECS, ids=name)
def test_zeros_and_equal_numbers_come_back(codec):
    x = np.zeros((8, 2, 8))
    np.testing.assert_array_equal(codec.decode(codec.encode(x)), x)
    for constant in (1.0, -0.5, 448.0):  # held exactly by both scale types
        x[:] = constant
        decoded = codec.decode(codec.encode(x))
        np.testing.assert_allclose(decoded, constant, rtol=1e-3 if codec.symmetric else 0)
    x[:] = 0.1  # held by neither: the zero is the next number below, and the scale spans what is missing
    np.testing.assert_allclose(codec.decode(codec.encode(x)), 0.1, rtol=1e-3)


@pytest.mark.parametrize("codec", [IntCodec(8), IntCodec(8, symmetric=False), IntCodec(4), IntCodec(2)], ids=name)
def test_what_can_be_held_exactly_is(codec):
    """Whole multiples of a power of two, with the extremes among them: no rounding, so no error."""
    middle = codec.levels // 2 if codec.symmetric else 0
    steps = np.resize(np.arange(codec.levels + 1), (3, 1, max(8, -(-(codec.levels + 1) // 8) * 8)))
    x = (steps - middle) * 0.25
    encoded = codec.encode(x)
    assert (encoded.scale == 0.25).all()
    np.testing.assert_array_equal(codec.decode(encoded), x)


@pytest.mark.parametrize("bits", [2, 4, 8])
@given(data=st.data())
def test_packing_is_lossless_and_low_bits_come_first(bits, data):
    codes = data.draw(hnp.arrays(np.uint8, (3, 8), elements=st.integers(0, 2**bits - 1)))
    packed = pack(codes, bits)
    assert (packed.shape, packed.dtype) == ((3, bits), np.uint8)
    np.testing.assert_array_equal(unpack(packed, bits), codes)
    for row, stored in zip(codes.tolist(), packed):
        assert int.from_bytes(stored.tobytes(), "little") == sum(code << (bits * i) for i, code in enumerate(row))


@pytest.mark.parametrize("model", ["smollm2-135m", "llama-3-8b", "llama-2-70b"])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("axis", ["token", "channel"])
@pytest.mark.parametrize(("scale_type", "scale_bytes"), [("float16", 2), ("float32", 4)])
def test_bytes_are_those_of_the_formula(model, bits, symmetric, axis, scale_type, scale_bytes):
    spec = dataclasses.replace(get_model(model), num_hidden_layers=1, layer_windows=())
    T, group = 64, 32
    codec = IntCodec(bits, axis, group, symmetric, scale_type)
    x = np.random.default_rng(0).normal(size=(T, spec.num_key_value_heads, spec.head_dim))
    stored = 2 * codec.encode(x).nbytes  # keys and values
    assert stored == T * kv_bytes_quant(spec, bits, group, scale_bytes, 0 if symmetric else scale_bytes)


def test_keys_go_per_channel_because_some_channels_are_always_large():
    """One channel fifty times the others: per token it sets everybody's scale, per channel only its own."""
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(128, 2, 64))
    keys[:, :, 7] += 50
    others = np.arange(64) != 7

    def error(x, axis):
        codec = IntCodec(4, axis, 32, symmetric=False)
        return np.abs(codec.decode(codec.encode(x)) - x)[:, :, others]

    neighbours = error(keys, "token")[:, :, :31].mean()  # the outlier's own group of 32 channels
    assert neighbours > 5 * error(keys, "channel").mean()
    # Values have no such channels, and then neither axis is better: per token is the one that need not wait.
    values = rng.normal(size=(128, 2, 64))
    assert error(values, "token").mean() == pytest.approx(error(values, "channel").mean(), rel=0.05)


def test_the_codecs_of_kivi():
    keys, values = kivi(2)
    assert (keys.axis, keys.group, keys.symmetric, keys.tokens_per_group) == ("channel", 32, False, 32)
    assert (values.axis, values.group, values.symmetric, values.tokens_per_group) == ("token", 32, False, 1)


@pytest.mark.parametrize("codec", CODECS[:4], ids=name)
def test_encoding_piece_by_piece_stores_the_same(codec):
    x = np.random.default_rng(1).normal(size=(24, 2, 8))
    parts = [codec.encode(part) for part in (x[:8], x[:0], x[8:16], x[16:])]
    joined = parts[0].then(parts[1]).then(parts[2]).then(parts[3])
    whole = codec.encode(x)
    assert all(np.array_equal(a, b) for a, b in zip(joined, whole) if a is not None)
    np.testing.assert_array_equal(codec.decode(joined), codec.decode(whole))


def test_scales_beyond_their_type_are_refused():
    x = np.full((1, 1, 8), 1e7)
    with pytest.raises(ValueError, match=r"7\.874e\+04 is beyond float16's 6\.55e\+04: use scale_type='float32'"):
        IntCodec(8).encode(x)
    wide = IntCodec(8, scale_type="float32")
    np.testing.assert_allclose(wide.decode(wide.encode(x)), x, rtol=1e-6)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_numbers_come_back_finite_or_are_refused(bits, symmetric):
    """On the way back a code times its scale is larger than any number that was encoded."""
    codec = IntCodec(bits, scale_type="float32", symmetric=symmetric)
    x = np.array([[[1.0, -1.0, 0.3, 0.9] * 2]]) * LARGEST
    decoded = codec.decode(codec.encode(x))
    assert np.abs(decoded - x).max() <= codec.encode(x).scale.max() * 0.501
    with pytest.raises(ValueError, match=r"x holds 8\.677e\+37: numbers beyond 8\.507e\+37 cannot be decoded"):
        codec.encode(x * 1.02)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("codec", CODECS[::4], ids=name)
def test_what_is_not_finite_is_refused_by_its_place(codec, bad):
    x = np.zeros((8, 2, 8), dtype=np.float32)
    x[3, 1, 5] = bad
    with pytest.raises(ValueError, match=rf"x\[3, 1, 5\] is {bad}: only finite"):
        codec.encode(x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 3}, "bits=3 must be one of 2, 4, 8"),
        ({"bits": 8, "axis": "head"}, "axis='head' must be one of token, channel"),
        ({"bits": 8, "scale_type": "bfloat16"}, "scale_type='bfloat16' must be one of float16, float32"),
        ({"bits": 4, "axis": "channel"}, "say how many tokens share a scale"),
        ({"bits": 2, "group": 6}, "group=6 of 2 bits do not fill whole bytes: choose a multiple of 4"),
        ({"bits": 8, "group": 0}, "group=0 must be at least 1"),
        ({"bits": 8, "group": 2.0}, r"group=2\.0 must be an integer"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        IntCodec(**options)


def test_shapes_that_do_not_fit_are_refused():
    for shape in ((8,), (4, 8), (2, 4, 8, 1), (2, 4, 0)):
        with pytest.raises(
            ValueError, match=rf"x has shape {re.escape(str(shape))}: must be \[tokens, heads, channels\]"
        ):
            IntCodec(8).encode(np.zeros(shape))
    with pytest.raises(ValueError, match="head_dim is 20, which group=8"):
        IntCodec(8, group=8).encode(np.zeros((2, 1, 20)))
    with pytest.raises(ValueError, match="the number of tokens is 31, which group=32"):
        kivi(4)[0].encode(np.zeros((31, 1, 8)))
    with pytest.raises(ValueError, match="head_dim is 6, which group=6 of 2 bits"):
        IntCodec(2).encode(np.zeros((1, 1, 6)))
