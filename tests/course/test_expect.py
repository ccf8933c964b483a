"""The comparisons that properties are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mini_engine.course.expect import expect, expect_close, expect_equal, expect_raises, show


class Yes:
    """Equal to everything, true, and as large as you like."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return 2


class YesInt(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class YesList(list):
    def __eq__(self, other: object) -> bool:
        return True


EQUAL: list[tuple[Any, Any]] = [
    (3, 3), (np.int64(3), 3), (3.5, np.float64(3.5)), (True, True), (np.True_, True), ("a", "a"), (b"a", b"a"), (None, None),
    ([1, [2]], [1, [2]]), ((), ()), ({"a": [1]}, {"a": [1]}), ({1, 2}, {2, 1}), (np.arange(3), np.arange(3)),
    (np.array([np.nan]), np.array([np.nan])), ([np.int32(1)], [1]), (10**30, 10**30),
]  # fmt: skip
DIFFERENT: list[tuple[Any, Any]] = [
    (4, 3), (3.0, 3), (True, 1), (1, True), ("3", 3), (None, 0), ([1], (1,)), ([1], [1, 2]), ([1, 2], [1]), ({"a": 1}, {"b": 1}),
    ({"a": 1}, {"a": 1, "b": 2}), ({1}, {1, 2}), (np.arange(3), np.arange(3.0)), (np.arange(3), np.arange(4)), (np.arange(3), [0, 1, 2]),
    ([0, 1], np.arange(2)), (Yes(), 3), (Yes(), [1, 2]), (YesInt(4), 3), (YesList([4]), [3]), ([Yes()], [3]), ({"a": Yes()}, {"a": 1}),
    (np.array([Yes()], dtype=object), np.array([1])), (float("nan"), 1.0), (0.1 + 0.2, 0.3),
]  # fmt: skip


@pytest.mark.parametrize(("got", "want"), EQUAL)
def test_equal(got: Any, want: Any) -> None:
    expect_equal(got, want, "case")


@pytest.mark.parametrize(("got", "want"), DIFFERENT)
def test_different(got: Any, want: Any) -> None:
    with pytest.raises(AssertionError, match=r"^case\n"):
        expect_equal(got, want, "case")


def test_a_target_that_cannot_be_compared_is_an_error_of_the_property() -> None:
    with pytest.raises(TypeError, match="object"):
        expect_equal(object(), object(), "case")


@pytest.mark.parametrize("error", [0.0, 0.9e-9, -0.9e-9])
def test_close_within_the_bound(error: float) -> None:
    expect_close(np.array([0.0 + error * 4, 4.0]), np.array([0.0, 4.0]), "case")


@pytest.mark.parametrize("error", [1.1e-9, -1.1e-9, np.nan, np.inf])
def test_close_beyond_the_bound(error: float) -> None:
    with pytest.raises(AssertionError, match=r"at \[1\]"):
        expect_close(np.array([0.0, 4.0 + error * 4]), np.array([0.0, 4.0]), "case")


def test_close_names_shape_dtype_and_place() -> None:
    want = np.zeros((2, 3))
    with pytest.raises(AssertionError, match=r"shape \(2, 3\)\ngot: +shape \(3, 2\)"):
        expect_close(np.zeros((3, 2)), want, "case")
    with pytest.raises(AssertionError, match="dtype float32"):
        expect_close(np.zeros((2, 3), np.float32), want, "case")
    expect_close(np.zeros((2, 3), np.float32), want, "case", same_dtype=False)
    wrong = want.copy()
    wrong[1, 2] = 5
    with pytest.raises(AssertionError, match=r"at \[1, 2\]: expected 0, got 5 \(1 of 6 differ\)"):
        expect_close(wrong, want, "case", atol=1.0)


def test_rows_of_an_array_stand_in_line_under_plain_labels() -> None:
    want = np.arange(8.0).reshape(2, 2, 2)
    with pytest.raises(AssertionError) as caught:
        expect_close(want + 10, want, "case")
    case, *rows = str(caught.value).splitlines()
    assert case == "case"
    assert all(row.strip() for row in rows), "no empty lines between the blocks of an array"
    labels = [row[:18].rstrip() for row in rows]
    assert [label for label in labels if label] == ["expected:", "got:", "first difference:"]
    assert all(row[17] == " " and row[18] != " " for row, label in zip(rows, labels) if label)
    numbers = [row for row in rows if "]" in row and "difference" not in row]
    assert len(numbers) == 8
    columns = {row.rindex("[") for row in numbers}
    assert len(columns) == 1, "the rows of an array start in one column"


def test_close_of_nothing_and_of_what_is_not_finite() -> None:
    expect_close(np.zeros(0), np.zeros(0), "case")
    odd = np.array([np.nan, np.inf, -np.inf, 1.0])
    expect_close(odd.copy(), odd, "case")
    for place, value in ((0, 1.0), (1, -np.inf), (2, np.nan), (3, np.nan)):
        wrong = odd.copy()
        wrong[place] = value
        with pytest.raises(AssertionError):
            expect_close(wrong, odd, "case")


def test_close_of_single_numbers() -> None:
    expect_close(2.0, 2.0, "case")
    expect_close(np.float32(2), 2.0, "case")
    for wrong in (2.1, "2.0", None, [2.0], np.array([2.0]), Yes()):
        with pytest.raises(AssertionError):
            expect_close(wrong, 2.0, "case")


def test_expect_takes_a_real_bool_only() -> None:
    expect(True, "case")
    expect(np.bool_(True), "case")
    for no in (False, np.bool_(False), Yes(), 1, None):
        with pytest.raises(AssertionError, match=r"got: +7"):
            expect(no, "case", got=7)  # type: ignore[arg-type]


def test_raises() -> None:
    assert isinstance(expect_raises(ZeroDivisionError, lambda: 1 // 0, "case"), ZeroDivisionError)
    with pytest.raises(AssertionError, match="no error; it returned 3"):
        expect_raises(ValueError, lambda: 3, "case")
    with pytest.raises(KeyError):
        expect_raises(ValueError, lambda: {}[1], "case")


def test_show_is_short_and_never_raises() -> None:
    class Bad:
        def __repr__(self) -> str:
            raise KeyboardInterrupt

    assert len(show(list(range(10_000)))) < 420
    assert len(show(np.zeros((50, 50, 50)))) < 420
    assert show(Bad()) == "<Bad whose repr raises KeyboardInterrupt>"


def test_a_small_difference_is_shown_with_the_digits_that_tell() -> None:
    with pytest.raises(AssertionError, match=r"expected 0\.9505622, got 0\.9505621 "):
        expect_close(np.array([0.95056214]), np.array([0.95056216]), "a case")
