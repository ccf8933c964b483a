"""`predict` asks, explains, converts units, and never raises."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mini_engine.course.exercise import Prediction
from tests.course.predict_cases import KV, PASSES

COUNT = Prediction(
    id="99.count",
    question="How many token-forwards?",
    answer=1_499_500,
    mistakes=[(2000, "That is with a cache.")],
    rtol=0,
)


@pytest.fixture(autouse=True)
def predictions_of_this_file(defined: Callable[..., None]) -> None:
    defined(KV, COUNT)


def test_asks_first_and_gives_nothing_away(said: Callable[..., str]) -> None:
    text = said("99.kv")
    assert KV.question in text
    assert not re.search(r"2\.5|327", text)
    assert "in place of None" in text
    assert "in GiB or with another unit of bytes" in text
    assert "predict(" not in text, "the cell's own call stands above; another form would contradict it"
    assert said("99.kv", ...) == text


@pytest.mark.parametrize(
    ("value", "unit"),
    [(2.5, ""), (2.51, ""), ("2.5", ""), ("2.5 GiB", ""), ("2.5GiB", ""), (2560, "MiB"), (2.684, "GB"), ("2,684,354,560 B", ""),
     (np.float32(2.5), ""), (np.array([2.5]), ""), (Decimal("2.5"), ""), (Fraction(5, 2), "")],
)  # fmt: skip
def test_right_in_every_spelling(value: Any, unit: str, said: Callable[..., str]) -> None:
    text = said("99.kv", value, unit=unit)
    assert "is right" in text
    assert KV.because in text


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (20, "", "share one K/V head"),
        (20 * 1024, "MiB", "share one K/V head"),
        (1.25, "", "2 for K and V"),
        (2.684, "", "number of GB, not of GiB"),
        (2.5, "GB", "number of GiB, not of GB"),
        (2684, "MiB", "number of MB, not of MiB"),
        (20.0 * 1.0001, "", "share one K/V head"),
        (2560, "", 'Then write the unit with it: "2,560 MiB"'),
        (25, "", "10 times too large"),
        (0.5, "", "5 times too small"),
        (0, "", "too small"),
        (-2.5, "", "too small"),
        (10**4000, "", "far too large"),
        (1e308, "", "far too large"),
        (5e-324, "", "far too small"),
    ],
)
def test_wrong_numbers_are_explained(value: Any, unit: str, words: str, said: Callable[..., str]) -> None:
    text = said("99.kv", value, unit=unit)
    assert "is not it" in text
    assert words in text
    assert KV.because not in text


@pytest.mark.parametrize("value", [16, "16x", "16 x", "16×", "16 times", "16 倍", "１６倍"])
def test_a_factor_may_be_written_with_its_sign(
    value: Any, said: Callable[..., str], defined: Callable[..., None]
) -> None:
    defined(Prediction("99.f", "?", 16, "times"))
    assert "16 times is right" in said("99.f", value)


@pytest.mark.parametrize(("unit", "value"), [("slots", "30 个槽位"), ("bits", "30 位"), ("%", "30％"), ("B", "30字节")])
def test_a_chinese_keyboard_will_do(unit: str, value: str, said: Any, defined: Any) -> None:
    defined(Prediction("99.zh", "?", 30, unit, rtol=0))
    assert "is right" in said("99.zh", value)
    assert "is not it" in said("99.zh", "1，0" + value)


def test_bits_for_bytes(said: Callable[..., str], defined: Callable[..., None]) -> None:
    defined(Prediction("99.b", "?", 3, "B"))
    assert "8 of them make a byte" in said("99.b", 24)


def test_a_count_must_be_exact(said: Callable[..., str]) -> None:
    assert "is right" in said("99.count", 1_499_500)
    assert "is right" in said("99.count", "1,499,500")
    assert "is right" in said("99.count", "1_499_500")
    assert "is not it" in said("99.count", 1_499_501)
    assert "with a cache" in said("99.count", 2000)


@pytest.mark.parametrize(("value", "unit"), [(3, "GiB"), ("3 ms", ""), (3, 7)])
def test_unit_that_does_not_fit(value: Any, unit: Any, said: Callable[..., str]) -> None:
    assert "does not fit" in said("99.count", value, unit=unit)
    assert "a unit of bytes: B, kB, MB" in " ".join(said("99.kv", 3, unit="tokens").split())


class Hostile:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError

    __str__ = __repr__
    __eq__ = __float__ = __getattr__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


ODD: dict[str, Any] = {
    "empty": "", "words": "a lot", "two numbers": "2.5 2.5", "1/0": "1/0", "nan": float("nan"), "inf": float("inf"),
    "true": True, "complex": 1j, "list": [], "list of one": [2.5], "dict": {}, "array": np.zeros(3), "empty array": np.zeros(0),
    "text array": np.array("x"), "nan array": np.array(np.nan), "object": object(), "hostile": Hostile(), "class": Hostile,
    "function": len, "digits": "9" * 5000, "decimal nan": Decimal("nan"), "bytes": b"2.5", "dots": ...,
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_never_raises(name: str, said: Callable[..., str]) -> None:
    text = said("99.kv", ODD[name])
    assert "is right" not in text
    assert said("99.kv", ODD[name], unit=ODD[name]).startswith("[predict]")


CACHE = Prediction("99.cache", "Bytes a token?", 23_040, "B", [(11_520, "K and V are both kept."), (1, "No.")], rtol=0)


@pytest.mark.parametrize(
    ("value", "unit"),
    [(23.04, "kB"), (0.02304, "MB"), (22.5, "KiB"), (22.5 * 1.024, "kB"), (np.float64(23.04), "kB"), (np.float32(23.04), "kB"),
     ("23.04 KB", ""), ("23.04KB", ""), (23.04, "KB"), ("23,040 bytes", ""), ("2.304e4", ""), (np.array([23.04]), "kB")],
)  # fmt: skip
def test_decimals_count_as_they_are_typed(
    value: Any, unit: str, said: Callable[..., str], defined: Callable[..., None]
) -> None:
    """23.04 has no exact binary form; an exact answer accepts it all the same, and only it."""
    defined(CACHE)
    assert "is right" in said("99.cache", value, unit=unit)
    assert "is not it" in said("99.cache", 23.0401, unit="kB")
    assert "both are kept" not in (text := said("99.cache", 11.52, unit="kB"))
    assert "K and V are both kept." in text


def test_a_percent_sign_stands_at_its_number(said: Callable[..., str], defined: Callable[..., None]) -> None:
    defined(Prediction("99.share", "?", 40, "%", rtol=0))
    assert "99.share: 39% is not it" in said("99.share", 39)
    assert "99.share: 40% is right" in said("99.share", "40 %")


def test_one_is_singular(said: Callable[..., str], defined: Callable[..., None]) -> None:
    forwards = Prediction("99.forwards", "?", 15, "token-forwards", rtol=0)
    queries = Prediction("99.queries", "?", 1, "queries", rtol=0)
    rate = Prediction("99.rate", "?", 0.9, "requests/s", rtol=0.35)
    defined(PASSES, CACHE, forwards, queries, rate)
    assert "1 pass is not it" in said("99.passes", 1)
    assert "1 token-forward is not it" in said("99.forwards", "1 token-forward")
    assert "1 query is right" in said("99.queries", 1)
    assert "1 request/s is right" in said("99.rate", 1)
    assert "2 passes is not it" in said("99.passes", "2 passes")
    assert "1 B is not it" in said("99.cache", 1)


def test_unknown_id(said: Callable[..., str]) -> None:
    assert "99.kv" in said("99.vk")
    assert said(None)
    assert said(Hostile())


RIDGE = Prediction("99.ridge", "Ridge?", 295.22, "FLOP/B", [(0.0708, "That is computing."), (590, "Sparse.")])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("295,2", "295.2 FLOP/B is right"),
        ("295,22 FLOP/B", "is right"),
        ("29,52e1", "is right"),
        ("2,952", "2,952 FLOP/B is not it"),
        ("0,066", "0.066 FLOP/B is not it"),
        ("1.234,5", "cannot be read as a number"),
        ("1,23,456", "cannot be read as a number"),
        ("12,345.5", "12,345.5 FLOP/B is not it"),
        ("0.07", "That is computing."),
        ("0,07", "That is computing."),
        (600, "Sparse."),
        (610, "too large"),
    ],
)
def test_commas_and_rounded_mistakes(
    value: Any, words: str, said: Callable[..., str], defined: Callable[..., None]
) -> None:
    defined(RIDGE)
    assert words in said("99.ridge", value)


@pytest.mark.parametrize("near", [1_499_500.4, 1_499_500.0001, Fraction(4_498_501, 3)])
def test_a_wrong_number_is_never_shown_as_the_right_one(near: Any, said: Callable[..., str]) -> None:
    text = said("99.count", near)
    assert "is not it" in text
    assert "1,499,500 is" not in text
    assert "e+" not in text
