"""How numbers are checked, printed and explained."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mini_engine import units
from mini_engine.arguments import amount, ceil_div, choice, count, number, share
from mini_engine.explain import explained


def test_decimal_and_binary_units_are_different_words():
    assert (units.GB, units.GIB) == (10**9, 2**30)
    assert units.TB / units.TIB < units.GB / units.GIB < 1


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B = 0 GB = 0 GiB"),
        (1, "1 B = 1.000e-09 GB = 9.313e-10 GiB"),
        (327_680, "327,680 B = 0.0003277 GB = 0.0003052 GiB (320 KiB)"),
        (1_677_721_600, "1,677,721,600 B = 1.678 GB = 1.562 GiB"),
        (42_949_672_960, "42,949,672,960 B = 42.95 GB = 40 GiB"),
        (8 * 10**9, "8,000,000,000 B = 8 GB = 7.451 GiB"),
        (145_752_064, "145,752,064 B = 0.1458 GB = 0.1357 GiB (139 MiB)"),
        (-5 * 10**8, "-500,000,000 B = -0.5 GB = -0.4657 GiB"),
    ],
)
def test_bytes_are_printed_in_every_unit(size, text):
    assert units.format_bytes(size) == text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0, 4, "0"), (12.5, 4, "12.5"), (295.22388, 4, "295.2"), (2495.94449, 6, "2,495.94"), (2495.9, 4, "2,496"), (1234567, 4, "1,234,567"),
        (0.00012345678, 4, "0.0001235"), (1e-9, 4, "1.000e-09"), (-3.14159, 3, "-3.14"), (70e9, 12, "70,000,000,000"), (Fraction(1, 3), 4, "0.3333"),
        (99.999, 4, "100"),
    ],
)  # fmt: skip
def test_significant_digits(value, digits, text):
    assert units.significant(value, digits) == text


@given(st.fractions(Fraction(1, 10**12), 10**15), st.integers(2, 9))
def test_significant_digits_are_right(value, digits):
    shown = float(units.significant(value, digits).replace(",", ""))
    assert shown == pytest.approx(float(value), rel=0.51 * 10 ** (1 - digits))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (Fraction(70, 3350), "20.8955 ms"),
        (1.5, "1.5 s"),
        (2.5e-7, "250 ns"),
        (1e-6, "1 us"),
        (0, "0 ns"),
        (7200, "7,200 s"),
    ],
)
def test_seconds(seconds, text):
    assert units.format_seconds(seconds) == text


def test_rates():
    assert units.format_rate(3.35e12) == "3.35 TB/s"
    assert units.format_rate(989e12, "FLOP/s") == "989 TFLOP/s"
    assert units.format_rate(1978e12, "FLOP/s") == "1.978 PFLOP/s"
    assert units.format_rate(12, "tok/s") == "12 tok/s"


def test_fractions_are_printed_exactly_while_they_are_short():
    assert units.exact(163_840) == "163,840"
    assert units.exact(Fraction(437, 464)) == "437/464 = 0.9418"
    assert units.exact(Fraction(10**20 + 1, 3 * 10**20)) == "0.333333"


@pytest.mark.parametrize("value", [5, np.int64(5)])
def test_counts(value):
    assert count("x", value) == 5
    assert type(count("x", value)) is int


@pytest.mark.parametrize("value", [0, -1, 1.0, "5", None, True, 10**12 + 1, float("nan")])
def test_what_is_no_count(value):
    with pytest.raises(ValueError, match=r"^x="):
        count("x", value)


@pytest.mark.parametrize("value", [80e9, 80 * 10**9, Fraction(80 * 10**9), Decimal("8e10"), "80e9"])
def test_amounts_in_any_notation(value):
    assert amount("x", value) == 80_000_000_000


@pytest.mark.parametrize(
    "value", [1.5, "0.1", -1, 10**19, "1e999999999", "1e-999999999", Decimal("Infinity"), "", "1/0"]
)
def test_what_is_no_amount(value):
    with pytest.raises(ValueError, match=r"^x="):
        amount("x", value)


def test_floats_count_as_the_decimals_they_are_written_as():
    assert number("x", 0.1) == Fraction(1, 10)
    assert number("x", 756.5e12) == 7565 * 10**11
    assert number("x", np.float64(0.3)) == Fraction(3, 10)


def test_shares():
    assert share("x", "0.9") == share("x", Decimal("0.9")) == share("x", "9/10") == Fraction(9, 10)
    assert share("x", 0.5) == Fraction(1, 2)
    for bad in (0, 0.9, 1.1, "1.0001", -0.5):
        with pytest.raises(ValueError, match=r"^x="):
            share("x", bad)


@given(st.integers(0, 10**30), st.integers(1, 10**15))
def test_ceil_div_is_exact(a, b):
    assert (ceil_div(a, b) - 1) * b < a <= ceil_div(a, b) * b


def test_choices_and_dtypes_list_what_there_is():
    with pytest.raises(ValueError, match="x='b' must be one of a, c"):
        choice("x", "b", ("a", "c"))
    with pytest.raises(ValueError, match="kv_dtype='fp4' must be one of fp32, "):
        units.dtype_bytes("kv_dtype", "fp4")


def test_an_explained_function_shows_its_working():
    @explained("the rest")
    def double(x: int, times: int = 2) -> int:
        """x times two.

        More.
        """
        return times * count("x", x)

    @double.working
    def _(result, x, times):
        yield f"{times} × {x}"
        yield f"= {result}"

    assert double(3) == 6
    assert double.explain(3) == "double: x times two.\n  2 × 3\n  = 6\n  not included: the rest"
    assert double.explain(x=3, times=5).splitlines()[1] == "  5 × 3"
    assert double.steps(3) == ["2 × 3", "= 6"]
    with pytest.raises(ValueError, match="x=0"):
        double.explain(0)
    with pytest.raises(TypeError, match="missing"):
        double.explain()
