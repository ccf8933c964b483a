"""Lesson 05, bytes: what fewer bits cost once their scales are counted, and the guesses about sizes."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np

from mini_engine.catalog import get_model
from mini_engine.course.exercise import Exercise, Mutant, Prediction, Property
from mini_engine.course.expect import expect, fail, show
from mini_engine.geometry import kv_bytes_hybrid, kv_bytes_per_token

Size = Callable[..., Any]


def quantized_bytes(numbers: int, bits: int, group: int, scale_bytes: int, zero_bytes: int = 0) -> Fraction:
    """Bytes of `numbers` numbers of `bits` bits, each `group` of them with a scale (and a zero): `geometry.kv_bytes_quant`."""
    return Fraction(numbers * bits, 8) + Fraction(numbers, group) * (scale_bytes + zero_bytes)


def count_out(numbers: int, bits: int, group: int, scale_bytes: int, zero_bytes: int = 0) -> Fraction:
    """The same by laying the groups out one after the other: the oracle."""
    in_bits = 0
    for _ in range(numbers // group):
        in_bits += group * bits + 8 * scale_bytes + 8 * zero_bytes
    return Fraction(in_bits, 8)


def _size(candidate: Size, *arguments: int) -> None:
    """The candidate's size is the oracle's, as an int, a Fraction, a Decimal or a float that is exact."""
    names = ("numbers", "bits", "group", "scale_bytes", "zero_bytes")
    case = ", ".join(f"{name}={value:,}" for name, value in zip(names, arguments))
    got, want = candidate(*arguments), count_out(*arguments)
    if isinstance(got, bool) or not isinstance(got, Rational | Decimal | float | np.integer | np.floating):
        fail(case, expected=f"{float(want):,} bytes", got=show(got))
    value = Fraction(got.item() if isinstance(got, np.generic) else got)
    expect(value == want, case, expected=f"{float(want):,} bytes", got=f"{float(value):,}")


def _codes(candidate: Size) -> None:
    for numbers, bits in ((32, 8), (32, 4), (64, 2), (8, 1), (64, 6)):
        _size(candidate, numbers, bits, 8, 0, 0)


def _scales(candidate: Size) -> None:
    for numbers, group, scale_bytes in ((32, 32, 2), (64, 32, 2), (64, 16, 4), (96, 8, 1), (163_840, 128, 2)):
        _size(candidate, numbers, 8, group, scale_bytes, 0)
    for bits in (4, 2):
        _size(candidate, 64, bits, 32, 2, 0)


def _zeros(candidate: Size) -> None:
    for numbers, bits, group, scale_bytes, zero_bytes in ((32, 4, 32, 2, 2), (64, 2, 16, 2, 1), (64, 8, 32, 4, 2)):
        _size(candidate, numbers, bits, group, scale_bytes, zero_bytes)
    try:
        got = candidate(32, 4, 32, 2)
    except TypeError as error:
        fail("called without zero_bytes, which then is 0", expected="18 bytes", got=f"TypeError: {error}")
    expect(got == 18, "numbers=32, bits=4, group=32, scale_bytes=2, called without zero_bytes", expected=18, got=got)


def _in_bits(numbers: int, bits: int, group: int, scale_bytes: int, zero_bytes: int = 0) -> float:
    return numbers * (bits + 8 * (scale_bytes + zero_bytes) / group) / 8


def _by_groups(numbers: int, bits: int, group: int, scale_bytes: int, zero_bytes: int = 0) -> int:
    return (numbers // group) * (group * bits // 8 + scale_bytes + zero_bytes)


def _in_decimals(numbers: int, bits: int, group: int, scale_bytes: int, zero_bytes: int = 0) -> Decimal:
    return Decimal(numbers * bits) / 8 + Decimal(numbers) / group * (scale_bytes + zero_bytes)


def _codes_only(numbers: int, bits: int, group: int, scale_bytes: int, zero_bytes: int = 0) -> float:
    return numbers * bits / 8


def _one_scale(numbers: int, bits: int, group: int, scale_bytes: int, zero_bytes: int = 0) -> float:
    return numbers * bits / 8 + scale_bytes + zero_bytes


def _no_zeros(numbers: int, bits: int, group: int, scale_bytes: int, zero_bytes: int = 0) -> float:
    return numbers * bits / 8 + numbers / group * scale_bytes


def _scale_in_bits(numbers: int, bits: int, group: int, scale_bytes: int, zero_bytes: int = 0) -> float:
    return numbers * bits / 8 + numbers / group * (scale_bytes + zero_bytes) / 8


def _whole_bytes(numbers: int, bits: int, group: int, scale_bytes: int, zero_bytes: int = 0) -> float:
    return numbers * -(-bits // 8) + numbers / group * (scale_bytes + zero_bytes)


def _zero_always(numbers: int, bits: int, group: int, scale_bytes: int, zero_bytes: int = 2) -> float:
    return numbers * bits / 8 + numbers / group * (scale_bytes + zero_bytes)


def _scale_per_number(numbers: int, bits: int, group: int, scale_bytes: int, zero_bytes: int = 0) -> float:
    return numbers * bits / 8 + numbers * (scale_bytes + zero_bytes) / bits


CODES = "the codes take `bits` each"
SCALES = "every group adds a scale"
ZEROS = "and a zero, where there is one"

BYTES = Exercise(
    id="05.quantized_bytes",
    title="Count the scales",
    reference=quantized_bytes,
    properties=[Property(CODES, _codes), Property(SCALES, _scales), Property(ZEROS, _zeros)],
    mutants=[
        Mutant("codes only", _codes_only, SCALES, "The figure on the box: a 4-bit cache of 4 bits. Codes without scales mean nothing."),
        Mutant("one scale for all", _one_scale, SCALES, "Each group has its own."),
        Mutant("a scale for each code's bits", _scale_per_number, SCALES, "The group decides how many scales there are."),
        Mutant("scales in bits", _scale_in_bits, SCALES, "Scales are given in bytes, codes in bits."),
        Mutant("whole bytes", _whole_bytes, CODES, "Two codes of 4 bits share a byte."),
        Mutant("no zeros", _no_zeros, ZEROS, "An asymmetric group stores where it starts, too."),
        Mutant("a zero always", _zero_always, ZEROS, "A symmetric group has none."),
    ],
    alternatives=[_in_bits, _by_groups, _in_decimals],
)  # fmt: skip

BITS = Prediction(
    "05.bits",
    "4-bit codes, 32 numbers share a 2-byte scale and a 2-byte zero. How many bits does a number take in all?",
    5,
    "bits",
    mistakes=[
        (4, "Those are the codes. Every 32 of them bring a scale and a zero along."),
        (4.5, "That is the codes and the scale. The zero takes 2 bytes as well."),
        (4.125, "2 + 2 = 4 bytes are 32 bits, not 4."),
        (4.25, "That adds 8 bits for every 32 numbers. 2 + 2 bytes are 32 bits."),
        (6, "That is a scale and a zero for every 16 numbers. Here 32 share them."),
        (8, "A byte holds two codes of 4 bits."),
        (36, "4 bytes for every group, not for every number."),
    ],
    because="4 + (2 + 2) x 8 / 32 = 5: a quarter more than the name says, 0.3125 of 16 bits.",
    rtol=0,
)

NEIGHBOURS = Prediction(
    "05.neighbours",
    "A key has one channel at 14 and 31 channels between -4.4 and 4.4. Codes run from -7 to 7, one scale for all 32. "
    "How many different codes do the 31 get?",
    5,
    "codes",
    mistakes=[
        (15, "15 codes exist. The scale is 14 / 7 = 2: how far do numbers up to 4.4 reach?"),
        (7, "4.4 / 2 = 2.2 rounds to 2, not up to 3: -2 to 2."),
        (4, "-2, -1, 1 and 2. And those near 0?"),
        (3, "4.4 / 2 = 2.2 rounds to 2, not to 1."),
        (2, "That is the largest code, 4.4 / 2 = 2.2. Count all from -2 to 2."),
        (1, "The scale is 14 / 7 = 2. What is larger than 1, half a scale, does not become 0."),
        (0, "Every number gets a code. 0 is one, too."),
        (9, "-4 to 4 would be a scale of 1. It is 14 / 7 = 2."),
        (31, "Codes are whole numbers: 31 different inputs, far fewer outputs."),
    ],
    because="The scale is 14 / 7 = 2, and 4.4 / 2 = 2.2: codes -2 to 2. With a scale of their own, the 31 would have all 15.",
    rtol=0,
)

FP8 = Prediction(
    "05.fp8",
    "fp8 e4m3 keeps 3 bits after the leading one. What does 75 become?",
    72,
    "",
    mistakes=[
        (75, "Between 64 and 128 there are only 8 numbers: 64, 72, 80, ... 120."),
        (80, "The neighbours are 72 and 80, and 72 is closer."),
        (64, "That keeps no bit after the leading one. Three bits cut 64 to 128 into steps of 8."),
        (76, "That is a step of 4: 4 bits after the leading one. There are 3."),
        (74, "That is a step of 2. With 3 bits after the leading one the step from 64 on is 64 / 8 = 8."),
    ],
    because="From 64 to 128 the step is 64 / 8 = 8, so 75 lies between 72 and 80 and goes to 72. The step grows with the number.",
    rtol=0,
)

_GEMMA = get_model("gemma-3-1b")
_WHOLE = kv_bytes_per_token(_GEMMA, "bf16") * 32_768
_WINDOWED = kv_bytes_hybrid(_GEMMA, _GEMMA.layer_windows, 32_768)
_RATIO = _WHOLE / _WINDOWED
WINDOW = Prediction(
    "05.window",
    "Gemma-3-1B: 26 layers, 22 of them look back 512 tokens only, 4 see everything. At 32,768 tokens, how many times "
    "smaller is its cache than with 26 full layers?",
    round(_RATIO, 2),
    "times",
    mistakes=[
        (32_768 / 512, "That would be a window in every layer. The 4 full layers keep all 32,768 tokens."),
        (26 / 4, "Close: that leaves out what the 22 layers still keep, 512 tokens each."),
        (1 / _RATIO, "That is the share that is left. How many times smaller is it?"),
        (26 / 22, "The 22 layers are the small ones. The 4 full layers hold nearly all of the bytes."),
        (32_768 / 512 * 22 / 26, "Layers do not average like that: the full layers' bytes stay."),
    ],
    because="4 layers keep 32,768 tokens, 22 keep 512: 26 x 32,768 / (4 x 32,768 + 22 x 512) = 5.99. A few full layers set the size.",
    rtol=0.005,
)


def _requests(bits: int, scale_bytes: int, zero_bytes: int) -> int:
    """Requests of 8,192 tokens that 8 GB hold, with 81,920 numbers a token in groups of 32."""
    return int(8 * 10**9 // (quantized_bytes(81_920, bits, 32, scale_bytes, zero_bytes) * 8_192))


REQUESTS = Prediction(
    "05.requests",
    "8 GB are left for the cache, a token has 81,920 numbers, a request 8,192 tokens. At bf16, 5 requests fit. "
    "How many with 2-bit codes and a 2-byte scale and zero for every 32?",
    _requests(2, 2, 2),
    "requests",
    mistakes=[
        (_requests(2, 0, 0), "The scales and zeros are missing: 3 bits a number, not 2."),
        (40, "That is 8 times 5. Scales and zeros take the factor down to 5.33, and the 5 was rounded down from 5.96."),
        (_requests(2, 2, 0), "That is the scale alone. The zero takes 2 bytes as well."),
        (26, "5.33 times 5. Divide the budget: the 5 was rounded down from 5.96."),
        (_requests(4, 2, 2), "That is the 4-bit one: 5 bits a number."),
        (_requests(2, 2, 2) // 2, "Half of it: 81,920 are the numbers on one GPU already."),
        (34, "8 GB are 8,000,000,000 bytes here. You divided 8 GiB."),
    ],
    because="81,920 x 3 / 8 = 30,720 B a token; 8,000,000,000 // (30,720 x 8,192) = 31.",
    rtol=0,
)
