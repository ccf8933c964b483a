"""Lesson 05, the int8 quantizer and its way back: what right ones satisfy, and the wrong ones that people write."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from mini_engine.course.exercise import INPUTS_UNCHANGED, Exercise, Mutant, Property
from mini_engine.course.exercises import answers05_quantize as answers
from mini_engine.course.exercises.answers05_quantize import Array, Coded, dequantize, quantize
from mini_engine.course.expect import expect, expect_close, fail, show

SLACK = 1.15
"""Room for a scale that is rounded in other ways. `_stored_scale` has none: it says which scale to divide by."""


def _coded(candidate: Callable[..., Coded], x: Array, axis: int, bits: int, case: str) -> Coded:
    """What the candidate returns: two arrays of the right shapes and types."""
    with np.errstate(all="ignore"):
        got = candidate(x, axis, bits)
    try:
        codes, scale = got
    except (TypeError, ValueError):
        fail(f"{case}: a pair (codes, scale)", got=got)
    shape = list(x.shape)
    shape[axis] = 1
    for name, array, dtype, wanted in (("codes", codes, np.int8, x.shape), ("scale", scale, np.float16, tuple(shape))):
        want = f"{np.dtype(dtype).name} of shape {wanted}"
        found = f"{array.dtype} of shape {array.shape}" if type(array) is np.ndarray else show(array)
        expect(type(array) is np.ndarray and found == want, f"{case}: {name}", expected=want, got=found)
    return codes, scale


def _error(candidate: Callable[..., Coded], x: Array, axis: int, bits: int, case: str) -> tuple[Array, Array]:
    """(error, largest magnitude / largest code) of every number: what comes back, less what went in."""
    codes, scale = _coded(candidate, x, axis, bits, case)
    step = np.abs(x).max(axis=axis, keepdims=True) / (2 ** (bits - 1) - 1)
    return codes.astype(np.float64) * scale.astype(np.float64) - x, np.broadcast_to(step, x.shape)


def _within_half(candidate: Callable[..., Coded], x: Array, axis: int, bits: int, case: str) -> None:
    error, step = _error(candidate, x, axis, bits, case)
    bad = ~(np.abs(error) <= 0.5 * SLACK * step)
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        wrapped = ". int8 ends at 127: 128 wraps around to -128" if abs(error[at]) > 200 * step[at] else ""
        fail(
            f"{case}: the number {x[at]:.4g}, whose group has a largest magnitude of {step[at] * (2 ** (bits - 1) - 1):.4g}",
            expected=f"back within half a scale, {0.5 * step[at]:.4g}",
            got=f"{x[at] + error[at]:.4g}, off by {abs(error[at]):.4g}{wrapped}",
        )


def _kinds(candidate: Callable[..., Coded]) -> None:
    for shape, axis in (((1, 1, 2), -1), ((3, 2, 4), -1), ((3, 2, 4), 0), ((3, 2, 4), 2)):
        x = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
        _coded(candidate, x, axis, 8, f"x of shape {shape}, axis={axis}")


def _one_group(candidate: Callable[..., Coded]) -> None:
    for numbers in (
        [0.0, 127.0],
        [1.0, 2.0, 4.0],
        [50.6, 127.0],
        [3.0, -100.0],
        [-5.0, 2.0],
        [-127.0, 126.4],
        [0.3] * 3,
    ):
        _within_half(candidate, np.array([[numbers]]), -1, 8, f"one group {numbers}")
    rng = np.random.default_rng(0)
    for size in (32, 128):
        x = rng.normal(size=(1, 1, size)) * 3
        _within_half(candidate, x, -1, 8, f"one group of {size} random numbers")


def _own_scale(candidate: Callable[..., Coded]) -> None:
    loud = np.array([1.0, 1000.0])
    small = np.random.default_rng(1).normal(size=(2, 1, 3))
    _within_half(candidate, small * loud[:, None, None], -1, 8, "2 tokens, axis=-1; the second is 1,000 times louder")
    x = np.random.default_rng(2).normal(size=(3, 1, 2)) * loud
    _within_half(candidate, x, 0, 8, "3 tokens, axis=0; the second channel is 1,000 times louder")
    x = np.random.default_rng(3).normal(size=(3, 2, 4)) * loud[:, None]
    for axis in (-1, 0):
        _within_half(candidate, x, axis, 8, f"3 tokens, axis={axis}; the second head is 1,000 times louder")


def _bits(candidate: Callable[..., Coded]) -> None:
    x = np.array([[[-7.0, 3.4, 0.6, 7.0]]])
    for bits in (4, 2, 3, 5):
        codes, _ = _coded(candidate, x, -1, bits, f"{x.ravel().tolist()} in {bits} bits")
        largest = 2 ** (bits - 1) - 1
        worst = int(np.abs(codes.astype(int)).max())
        case = f"{x.ravel().tolist()} in {bits} bits: the largest code"
        expect(worst == largest, case, expected=largest, got=worst)
        _within_half(candidate, x, -1, bits, f"{x.ravel().tolist()} in {bits} bits")
    try:
        candidate(x, -1)
    except TypeError as error:
        fail("called without bits, which then is 8", expected="no error", got=f"TypeError: {error}")


def _zeros(candidate: Callable[..., Coded]) -> None:
    x = np.array([[[0.0, 0.0], [1.0, -2.0]]])
    codes, scale = _coded(candidate, x, -1, 8, "a head of zeros")
    back = codes.astype(np.float64) * scale.astype(np.float64)
    expect(bool((back[0, 0] == 0).all()), "a head of zeros comes back as zeros", expected=[0.0, 0.0], got=back[0, 0])
    with warnings.catch_warnings(record=True) as heard, np.errstate(invalid="warn"):
        warnings.simplefilter("always")
        candidate(x, -1, 8)
    cast = [str(one.message) for one in heard if "in cast" in str(one.message)]
    case = "a head of zeros: 0 / 0 is NaN, and NaN turned into int8 is 0 on some machines only"
    expect(not cast, case, expected="no NaN is turned into int8", got=f"RuntimeWarning: {(cast or [''])[0]}")


def _stored_scale(candidate: Callable[..., Coded]) -> None:
    """Numbers just under half a step off, at the far end of a group whose scale float16 rounds a long way."""
    for top in (127 * (1 + 2.0**-11 - 2.0**-14), 127 * (1 + 2.0**-11 + 2.0**-14), 127 * (4 + 2.0**-9 - 2.0**-12)):
        numbers = np.linspace(0.6 * top, top, 997)
        codes, scale = _coded(candidate, numbers[None, None], -1, 8, f"997 numbers up to {top:.5f}")
        error = np.abs(codes.astype(np.float64) * scale.astype(np.float64) - numbers)
        half = 0.5 * float(scale.ravel()[0])
        words = f"997 numbers up to {top:.5f}, scale kept as {float(scale.ravel()[0]):.6f}: the largest error"
        if error.max() > 0.505 * float(scale.ravel()[0]):
            fail(
                words,
                expected=f"half of that scale, {half:.4f}",
                got=f"{error.max():.4f}. Divide by the scale that is stored, in float64",
            )


KINDS = "int8 codes, and a float16 scale for every group"
HALF = "a number comes back within half a scale"
OWN = "every group has its own scale, along the axis"
BITS = "the codes use the bits they have"
ZEROS = "a group of zeros comes back as zeros"
STORED = "codes fit the scale that is stored"

QUANTIZE = Exercise(
    id="05.quantize",
    title="A quantizer",
    reference=quantize,
    properties=[
        Property(KINDS, _kinds),
        Property(HALF, _one_group),
        Property(OWN, _own_scale),
        Property(BITS, _bits),
        Property(ZEROS, _zeros),
        Property(STORED, _stored_scale),
    ],
    mutants=[
        Mutant("cuts instead of rounding", answers.cuts, HALF, "astype cuts toward 0: errors of up to a whole scale, all in one direction."),
        Mutant("rounds down", answers.floors, HALF, "// rounds toward minus infinity: everything drifts down by half a scale."),
        Mutant("128 for 127", answers.wraps, HALF, "int8 ends at 127. 128 wraps to -128, and the loudest number changes its sign."),
        Mutant("largest, not loudest", answers.largest, HALF, "A group's loudest number may be negative: np.abs first."),
        Mutant("clips the loud ones", answers.clips, HALF, "A scale from the 95th percentile. The outliers that are cut are those that attention looks at."),
        Mutant("0 to 255", answers.unsigned, HALF, "255 steps are for one-sided numbers; here half of them go past 127 and wrap."),
        Mutant("one scale for all", answers.one_scale, KINDS, "It has the wrong shape, and the loudest group sets everybody's step."),
        Mutant("one scale for all, repeated", answers.one_scale_repeated, OWN, "The right shape, and still the loudest group sets everybody's step."),
        Mutant("always the last axis", answers.last_axis, KINDS, "Keys want the other one."),
        Mutant("heads share a scale", answers.heads_share, KINDS, "A group runs along one axis only."),
        Mutant("heads share a scale, repeated", answers.heads_share_repeated, OWN, "Heads differ in loudness, too."),
        Mutant("a scale in float64", answers.wide_scale, KINDS, "It is kept, so it costs bytes: 8 for 2."),
        Mutant("codes in float64", answers.float_codes, KINDS, "Whole numbers, and not a byte saved."),
        Mutant("always 127", answers.always_127, BITS, "Codes of 4 bits end at 7."),
        Mutant("eight, not seven", answers.half_of_all, BITS, "4 bits hold -8 to 7, and symmetric codes end at 7."),
        Mutant("divides by zero", answers.divides_by_zero, ZEROS, "0 / 0 is NaN, and NaN as int8 is anything."),
        Mutant("turns NaN into int8", answers.casts_nan, ZEROS, "0 / 0 is NaN. That its cast gave 0 is luck: the result is undefined, and NumPy warns."),
        Mutant("divides in float16", answers.divides_in_float16, STORED, "float16 keeps 11 bits: codes near 127 come out up to a sixteenth off before they are rounded."),
        Mutant("divides by the exact scale", answers.exact_scale, STORED, "What comes back is multiplied by the rounded one: off by another sixteenth."),
        Mutant("works in place", answers.in_place, INPUTS_UNCHANGED, "The model still needs its keys."),
    ],
    alternatives=[answers.with_float32, answers.by_lists, answers.half_up],
)  # fmt: skip


def _back_kinds(candidate: Callable[[Array, Array], Array]) -> None:
    got = candidate(np.array([[[2, 3]]], dtype=np.int8), np.array([[[0.5]]], dtype=np.float16))
    kind = str(got.dtype) if type(got) is np.ndarray else show(got)
    case = "codes [2, 3], scale 0.5: the type of what comes back"
    expect(kind in ("float32", "float64"), case, expected="float32 (float64 will do)", got=kind)


def _every_code(candidate: Callable[[Array, Array], Array]) -> None:
    got = candidate(np.array([[[2, 3]]], dtype=np.int8), np.array([[[0.5]]], dtype=np.float16))
    expect_close(got, np.array([[[1.0, 1.5]]]), "codes [2, 3], scale 0.5", same_dtype=False)
    codes = np.arange(-127, 128, dtype=np.int8)
    for scale in (1.0, 0.25):
        got = candidate(codes[None, None], np.full((1, 1, 1), scale, dtype=np.float16))
        expect_close(
            got, scale * np.arange(-127.0, 128)[None, None], f"codes -127 to 127, scale {scale}", same_dtype=False
        )


def _back_groups(candidate: Callable[[Array, Array], Array]) -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(-127, 128, size=(3, 2, 4)).astype(np.int8)
    for shape in ((3, 2, 1), (1, 2, 4)):
        scale = 2.0 ** rng.integers(-3, 4, size=shape).astype(np.float16)
        want = codes.astype(np.float64) * scale.astype(np.float64)
        expect_close(
            candidate(codes, scale.astype(np.float16)), want, f"codes (3, 2, 4), scales {shape}", same_dtype=False
        )


def _no_second_rounding(candidate: Callable[[Array, Array], Array]) -> None:
    for code, number in ((101, 0.1), (127, 600.0), (-127, 0.033)):
        scale = np.full((1, 1, 1), number, dtype=np.float16)
        with np.errstate(all="ignore"):
            got = candidate(np.full((1, 1, 1), code, dtype=np.int8), scale)
        want = np.full((1, 1, 1), code * float(scale.ravel()[0]))
        case = f"code {code}, scale {float(scale.ravel()[0]):.6g}. Is the product computed in float16?"
        expect_close(got, want, case, rtol=1e-6, same_dtype=False)


BACK_KIND = "what comes back is float32, or wider"
CODES = "every code from -127 to 127 comes back"
GROUPS = "every group gets its own scale"
TWICE = "nothing is rounded a second time"

DEQUANTIZE = Exercise(
    id="05.dequantize",
    title="The way back",
    reference=dequantize,
    properties=[
        Property(BACK_KIND, _back_kinds),
        Property(CODES, _every_code),
        Property(GROUPS, _back_groups),
        Property(TWICE, _no_second_rounding),
    ],
    mutants=[
        Mutant("in float16", answers.product_in_float16, BACK_KIND, "int8 times float16 is float16 in NumPy: 11 bits, and infinity above 65,504."),
        Mutant("float32, too late", answers.widened_too_late, TWICE, "The product was rounded before it was widened."),
        Mutant("float16 at the end", answers.narrowed, BACK_KIND, "Right, then rounded for nothing: attention computes in float32 anyway."),
        Mutant("codes without a sign", answers.no_sign, CODES, "The same byte is -1 or 255."),
        Mutant("divides", answers.divides, CODES, "A code counts steps of size scale: multiply."),
        Mutant("the scale as a whole number", answers.whole_scale, CODES, "Scales are mostly below 1. int() makes them 0."),
        Mutant("the first scale for all", answers.first_scale, GROUPS, "Each group was divided by its own scale."),
    ],
    alternatives=[answers.back_in_float64, answers.back_by_multiply],
)  # fmt: skip
