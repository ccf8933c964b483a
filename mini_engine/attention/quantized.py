"""Quantised keys and values in NumPy: fewer bits an element, and the scales that make sense of them.

x[T, K, D] (tokens, heads, channels) is cut into groups of `group` numbers that share one scale. Along which axis a group
runs is the whole art:

per token    a group is some channels of one token: x[t, k, c : c + group]. It can be stored as soon as the token is there.
per channel  a group is one channel of some tokens: x[t : t + group, k, c]. A channel that is always large, as keys have
             them, then no longer sets the scale of its small neighbours; but the group must be complete to be stored.

symmetric    x ~ scale * q, q in -(2^(bits-1) - 1) .. 2^(bits-1) - 1: one stored scale a group
asymmetric   x ~ zero + scale * q, q in 0 .. 2^bits - 1: a scale and a zero (the group's least value) a group

Scales are rounded up and zeros down to the type they are stored in, so that no value is ever clipped: every error is at
most half a scale. Source: Liu et al. 2024 (KIVI), section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mini_engine.arguments import choice, count

AXES = ("token", "channel")
BITS = (2, 4, 8)
SCALE_TYPES = ("float16", "float32")
LARGEST = (
    float(np.finfo(np.float32).max) / 4
)  # decoding is done in float32, and on the way a number can be twice as large


class Encoded(NamedTuple):
    """What is stored. The first axis of every array counts tokens, or per channel groups of tokens; bits are packed in codes."""

    codes: np.ndarray
    scale: np.ndarray | None = None
    zero: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and zeros: exactly what `geometry.kv_bytes_quant` counts."""
        return sum(array.nbytes for array in self if array is not None)

    def then(self, newer: Encoded) -> Encoded:
        """This followed by `newer`, both from the same codec."""

        def joined(old: np.ndarray | None, new: np.ndarray | None) -> np.ndarray | None:
            return None if old is None or new is None else np.concatenate([old, new])

        codes = np.concatenate([self.codes, newer.codes])
        return Encoded(codes, joined(self.scale, newer.scale), joined(self.zero, newer.zero))


class Codec(Protocol):
    """Turns numbers into fewer bytes and back. T must be a multiple of `tokens_per_group`."""

    @property
    def tokens_per_group(self) -> int:
        """Tokens that share a scale: 1, or a whole group of them."""

    def encode(self, x: np.ndarray) -> Encoded:
        """x[T, K, D] of any float type. ValueError for NaN or infinity, which would spoil a whole group, and other shapes."""

    def decode(self, encoded: Encoded) -> np.ndarray:
        """x[T, K, D] in float32, about what was encoded."""


@dataclass(frozen=True)
class IntCodec:
    """Integers of 2, 4 or 8 bits.

    axis:       "token" or "channel", see above
    group:      numbers that share a scale: channels (None: all of a head) or, per channel, tokens
    symmetric:  without a stored zero
    scale_type: type of stored scales and zeros: "float16" or "float32"

    Raises ValueError for options that do not fit together.
    """

    bits: int
    axis: str = "token"
    group: int | None = None
    symmetric: bool = True
    scale_type: str = "float16"

    def __post_init__(self) -> None:
        if self.bits not in BITS:
            raise ValueError(f"bits={self.bits!r} must be one of {', '.join(map(str, BITS))}")
        choice("axis", self.axis, AXES)
        choice("scale_type", self.scale_type, SCALE_TYPES)
        if self.group is None and self.axis == "channel":
            raise ValueError("group=None: per channel, say how many tokens share a scale, for instance group=32")
        if self.group is not None and count("group", self.group) * self.bits % 8:
            raise ValueError(
                f"group={self.group} of {self.bits} bits do not fill whole bytes: choose a multiple of {8 // self.bits}"
            )

    @property
    def tokens_per_group(self) -> int:
        """Tokens that share a scale: 1 along channels, `group` along tokens."""
        return 1 if self.axis == "token" or self.group is None else self.group

    @property
    def levels(self) -> int:
        """Steps between the least and the greatest value a group can hold."""
        return 2**self.bits - 2 if self.symmetric else 2**self.bits - 1

    def encode(self, x: np.ndarray) -> Encoded:
        """x[T, K, D], T a multiple of `tokens_per_group`. ValueError for other shapes, NaN, infinity and what float32 cannot hold."""
        x = np.asarray(x, dtype=np.float64)
        check_finite(x)
        if x.ndim != 3 or x.shape[2] == 0:
            raise ValueError(f"x has shape {x.shape}: must be [tokens, heads, channels], with at least one channel")
        if np.abs(x).max(initial=0) > LARGEST:
            raise ValueError(
                f"x holds {np.abs(x).max():.4g}: numbers beyond {LARGEST:.4g} cannot be decoded in float32"
            )
        groups = self._grouped(x)  # [..., group]
        if self.symmetric:
            zero = None
            scale = self._stored(2 * np.abs(groups).max(axis=-1) / self.levels, np.inf)
            lowest = -(self.levels // 2) * scale.astype(np.float64)
        else:
            zero = self._stored(groups.min(axis=-1), -np.inf)
            lowest = zero.astype(np.float64)
            scale = self._stored((groups.max(axis=-1) - lowest) / self.levels, np.inf)
        step = np.where(scale == 0, 1, scale.astype(np.float64))  # a group of equal numbers: every code is 0
        codes = np.rint((groups - lowest[..., None]) / step[..., None]).astype(np.uint8)
        return Encoded(pack(codes, self.bits), scale, zero)

    def decode(self, encoded: Encoded) -> np.ndarray:
        """x[T, K, D] in float32, each number off by at most half a step of its group."""
        assert encoded.scale is not None
        codes = unpack(encoded.codes, self.bits).astype(np.float32)
        scale = encoded.scale[..., None].astype(np.float32)
        if encoded.zero is None:
            return self._ungrouped((codes - self.levels // 2) * scale)
        return self._ungrouped(codes * scale + encoded.zero[..., None].astype(np.float32))

    def _grouped(self, x: np.ndarray) -> np.ndarray:
        """[T, K, D] -> [T, K, D / group, group], or per channel [T / group, K, D, group]."""
        T, K, D = x.shape
        whole, name = (D, "head_dim") if self.axis == "token" else (T, "the number of tokens")
        group = self.group or D
        if whole % group or group * self.bits % 8:
            raise ValueError(
                f"{name} is {whole}, which group={group} of {self.bits} bits does not divide into whole bytes"
            )
        if self.axis == "token":
            return x.reshape(T, K, D // group, group)
        return x.reshape(T // group, group, K, D).transpose(0, 2, 3, 1)

    def _ungrouped(self, groups: np.ndarray) -> np.ndarray:
        a, K, b, group = groups.shape
        if self.axis == "token":
            return groups.reshape(a, K, b * group)
        return groups.transpose(0, 3, 1, 2).reshape(a * group, K, b)

    def _stored(self, values: np.ndarray, toward: float) -> np.ndarray:
        """`values` in the type scales are stored in, none on the wrong side of what it was."""
        kind = np.dtype(self.scale_type).type
        limit = float(np.finfo(kind).max)
        worst = np.abs(values).max(initial=0)
        if worst > limit:
            raise ValueError(
                f"a scale or zero of {worst:.4g} is beyond {self.scale_type}'s {limit:.4g}: use scale_type='float32'"
            )
        rounded = values.astype(kind)
        wrong = rounded < values if toward > 0 else rounded > values
        rounded[wrong] = np.nextafter(rounded[wrong], kind(toward))
        return rounded


def kivi(bits: int, group: int = 32) -> tuple[IntCodec, IntCodec]:
    """The codecs of KIVI (Liu et al. 2024) for keys and for values: keys per channel, values per token, both asymmetric."""
    return IntCodec(bits, "channel", group, symmetric=False), IntCodec(bits, "token", group, symmetric=False)


def pack(codes: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint8]:
    """codes[..., n] below 2^bits -> [..., n * bits / 8]: neighbours share a byte, the first in its lowest bits."""
    each = codes.reshape(*codes.shape[:-1], codes.shape[-1] * bits // 8, 8 // bits)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(each << shifts, axis=-1)


def unpack(packed: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint8]:
    """[..., m] -> [..., m * 8 / bits]: what `pack` packed."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    each = (packed[..., None] >> shifts) & np.uint8(2**bits - 1)
    return each.reshape(*packed.shape[:-1], packed.shape[-1] * 8 // bits)


def check_finite(x: np.ndarray) -> None:
    """ValueError naming the first number of x that is NaN or infinite."""
    if not np.isfinite(x).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
        raise ValueError(f"x{list(where)} is {x[where]}: only finite numbers can be quantised")
