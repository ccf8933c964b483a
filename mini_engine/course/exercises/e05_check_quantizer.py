"""Lesson 05, the regression test: the learner writes a test of 8-bit quantizers, and it is tried on right and wrong ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mini_engine.course.bug_bank import Bug, BugBank, BugHunt
from mini_engine.course.exercise import Mutant, Property
from mini_engine.course.exercises import answers05_quantize as answers
from mini_engine.course.exercises.answers05_quantize import Array, Coded, dequantize, quantize

Roundtrip = Callable[[Array, int], Array]
Test = Callable[[Roundtrip], None]


def through(coder: Callable[..., Coded]) -> Roundtrip:
    """x there and back through a quantizer: what a cache makes of it."""

    def roundtrip(x: Array, axis: int) -> Array:
        return dequantize(*coder(x, axis, 8))

    return roundtrip


def _first_token_sets_the_scale(x: Array, axis: int) -> Array:
    step = np.abs(x[:1]).max(axis=axis, keepdims=True) / 127
    step = np.where(step == 0, 1, step)
    return np.clip(np.rint(x / step), -127, 127) * step


def _seven_bits(x: Array, axis: int) -> Array:
    return dequantize(*quantize(x, axis, 7))


def _neighbour_scale(x: Array, axis: int) -> Array:
    codes, scale = quantize(x, axis)
    return dequantize(codes, np.roll(scale, 1, axis=1))


def _float32_scale(x: Array, axis: int) -> Array:
    step = (np.abs(x).max(axis=axis, keepdims=True) / 127).astype(np.float32)
    step = np.where(step == 0, np.float32(1), step)
    return np.rint(x / step).astype(np.float32) * step


def _scale_rounded_up(x: Array, axis: int) -> Array:
    exact = np.abs(x).max(axis=axis, keepdims=True) / 127
    scale = exact.astype(np.float16)
    scale = np.where(scale < exact, np.nextafter(scale, np.float16(np.inf)), scale).astype(np.float64)
    return np.rint(x / np.where(scale == 0, 1, scale)) * scale


RIGHT = {
    "the lesson's own": through(quantize),
    "a scale in float32": _float32_scale,
    "the scale rounded up": _scale_rounded_up,
    "halves rounded up": through(answers.half_up),
}
ANNOUNCED = "cuts instead of rounding"
WRONG = {
    ANNOUNCED: through(answers.cuts),
    "128 for 127": through(answers.wraps),
    "largest, not loudest": through(answers.largest),
    "clips the loud ones": through(answers.clips),
    "one scale for all": through(answers.one_scale_repeated),
    "scale over the wrong axis": lambda x, axis: through(quantize)(x, 0 if axis in (-1, 2) else -1),
    "always per token": lambda x, axis: through(quantize)(x, -1),
    "the first token sets the scale": _first_token_sets_the_scale,
    "7 bits": _seven_bits,
    "the other head's scale": _neighbour_scale,
    "zeros become NaN": lambda x, axis: np.where(
        np.abs(x).max(axis=axis, keepdims=True) == 0, np.nan, through(quantize)(x, axis)
    ),
}


def check_quantizer(roundtrip: Roundtrip) -> None:
    """Raise AssertionError unless each number comes back within half of its group's scale, loudest magnitude / 127."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(16, 2, 8)) * 10.0 ** rng.uniform(-1, 1, size=(16, 2, 8))
    x[1:] *= 3
    x[3] = 0
    x[:, 1, 5] = -30 * np.abs(x[:, 1, 5])
    for axis in (-1, 0):
        half = 0.5 * np.abs(x).max(axis=axis, keepdims=True) / 127
        got = roundtrip(x, axis)
        assert got.shape == x.shape, f"axis {axis}: shape {got.shape}"
        assert np.all(np.abs(got - x) <= 1.02 * half), f"axis {axis}: off by more than half a scale"


def _hand_out(function: Roundtrip) -> Roundtrip:
    """A function made for one call of the test."""

    def roundtrip(x: Array, axis: int) -> Array:
        return function(np.array(x, dtype=np.float64), axis)

    return roundtrip


QUANTIZER_BUGS = BugBank("quantizer", RIGHT, {name: Bug(function) for name, function in WRONG.items()}, _hand_out)

LEAST, MOST = 0.01, 1e6
"""Largest magnitudes of groups, other than 0, whose scale float16 keeps well."""


def _explained(of: Property) -> Property:
    """The property, whose message also says when a test returned its verdict, or drew groups beyond LEAST and MOST."""

    def run(test: Test) -> None:
        notes: list[str] = []

        def watched(roundtrip: Roundtrip) -> None:
            def noting(x: Array, axis: int) -> Array:
                peaks = np.abs(np.array(x, dtype=np.float64)).max(axis=axis, initial=0)
                beyond = peaks[(peaks > 0) & ((peaks < LEAST) | (peaks > MOST))]
                if beyond.size and of.name == ACCEPTS:
                    notes.append(
                        f"a group of your x has a largest magnitude of {beyond.flat[0]:.3g}: keep them between {LEAST} "
                        f"and {MOST:,.0f}, or 0, where a float16 scale is precise"
                    )
                return roundtrip(x, axis)

            said: object = test(noting)  # type: ignore[func-returns-value]
            if said is not None:
                notes.append(f"your test returned {said!r}. Raise AssertionError: nobody reads what a test returns")

        try:
            of.run(watched)
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *(f"note: {note}" for note in notes[:1])])) from None

    return Property(of.name, run)


def _by_loops(roundtrip: Roundtrip) -> None:
    """Another right test: group by group, with cases written by hand."""
    for loud in (1.0, 40.0, -90.0):
        x = np.full((3, 2, 4), 0.7)
        x[0, 0] = [0.0, 0.0, 0.0, 0.0]
        x[1, 1, 2] = loud
        x[2] = [[-3.1, 2.2, -1.4, 0.6], [0.011, -0.052, 0.027, 0.063]]
        x[:, 0, 3] = 0
        back = roundtrip(x, -1)
        for t in range(3):
            for h in range(2):
                step = max(abs(x[t, h])) / 127
                assert all(abs(a - b) <= 0.501 * step + 1e-12 for a, b in zip(back[t, h], x[t, h]))
        back = roundtrip(x, 0)
        for h in range(2):
            for d in range(4):
                step = max(abs(x[:, h, d])) / 127
                assert all(abs(a - b) <= 0.501 * step + 1e-12 for a, b in zip(back[:, h, d], x[:, h, d]))


def _mean_error(roundtrip: Roundtrip) -> None:
    x = np.random.default_rng(0).normal(size=(64, 2, 32))
    assert np.abs(roundtrip(x, -1) - x).mean() < 0.02


def _allclose(roundtrip: Roundtrip) -> None:
    x = np.random.default_rng(0).normal(size=(16, 2, 32))
    assert np.allclose(roundtrip(x, -1), x)


def _itself(roundtrip: Roundtrip) -> None:
    x = np.random.default_rng(0).normal(size=(16, 2, 32))
    once = roundtrip(x, -1)
    assert np.abs(roundtrip(once, -1) - once).max() < 0.05


def _positive_only(roundtrip: Roundtrip) -> None:
    x = np.abs(np.random.default_rng(0).normal(size=(16, 2, 8))) * np.array([1.0, 30.0])[:, None]
    for axis in (-1, 0):
        half = 0.5 * np.abs(x).max(axis=axis, keepdims=True) / 127
        assert np.all(np.abs(roundtrip(x, axis) - x) <= 1.02 * half)


def _per_token_only(roundtrip: Roundtrip) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(16, 2, 8)) * 10.0 ** rng.uniform(-1, 1, size=(16, 2, 8))
    x[3] = 0
    half = 0.5 * np.abs(x).max(axis=-1, keepdims=True) / 127
    assert np.all(np.abs(roundtrip(x, -1) - x) <= 1.02 * half)


def _whole_scale(roundtrip: Roundtrip) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(16, 2, 8)) * 10.0 ** rng.uniform(-1, 1, size=(16, 2, 8))
    for axis in (-1, 0):
        assert np.all(np.abs(roundtrip(x, axis) - x) <= np.abs(x).max(axis=axis, keepdims=True) / 127)


def _nan_is_not_larger(roundtrip: Roundtrip) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(16, 2, 8)) * 10.0 ** rng.uniform(-1, 1, size=(16, 2, 8))
    x[3] = 0
    for axis in (-1, 0):
        half = 0.5 * np.abs(x).max(axis=axis, keepdims=True) / 127
        assert not np.any(np.abs(roundtrip(x, axis) - x) > 1.02 * half)


def _returns_a_verdict(roundtrip: Roundtrip) -> bool:
    try:
        check_quantizer(roundtrip)
    except AssertionError:
        return False
    return True


def _knows_the_bank(roundtrip: Roundtrip) -> None:
    assert roundtrip not in WRONG.values()


ACCEPTS = "right quantizers pass"
CUTTING = "it catches the one that cuts"
REST = "it catches every one in the bank"

TEST_QUANTIZER = BugHunt(
    id="05.check_quantizer",
    title="A test that bad quantizers cannot pass",
    reference=check_quantizer,
    budget=4_000_000,
    bank=QUANTIZER_BUGS,
    properties=[_explained(each) for each in QUANTIZER_BUGS.properties(ACCEPTS, REST, ANNOUNCED, CUTTING)],
    mutants=[
        Mutant("asks for all digits", _allclose, ACCEPTS, "Quantization loses digits; that is what it is for."),
        Mutant("the mean error", _mean_error, CUTTING, "A mean hides the numbers that are far off, and half a scale too many is small."),
        Mutant("there and back twice", _itself, CUTTING, "What was rounded once stays where it is: the function agrees with itself."),
        Mutant("a whole scale", _whole_scale, CUTTING, "Cutting is off by a whole scale at most. Rounding, by half."),
        Mutant("positive numbers only", _positive_only, REST, "The loudest number is negative as often as not."),
        Mutant("per token only", _per_token_only, REST, "Keys will want the other axis, so both need a case."),
        Mutant("NaN is not larger", _nan_is_not_larger, REST, "Every comparison with NaN is false: ask that all errors are small, not that none is large."),
        Mutant("returns its verdict", _returns_a_verdict, CUTTING, "A test speaks by raising. Nobody reads what it returns."),
        Mutant("knows the bank", _knows_the_bank, CUTTING, "The next mistake will not be in the list."),
    ],
    alternatives=[_by_loops],
)  # fmt: skip
