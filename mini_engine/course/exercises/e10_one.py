"""Lesson 10, one query over keys and values in one run: online softmax as a kernel's inner loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises.answers10_one import decode_one, in_base_2
from mini_engine.course.exercises.attention_cases import slow_attention
from mini_engine.course.expect import in_case
from mini_engine.course.kernel_compile import compiles
from mini_engine.course.kernel_watch import OffLimits, expect_numbers, launched, numbers
from mini_engine.course.planted import planted
from mini_engine.kernels import kernel_device


def _equals_loops(
    *lengths: int, size: int = 8, scale: float = 0.4, loud: float = 1.0, apart: tuple[int, int] = (1, 1), below: bool = False, unread: bool = False,
) -> Callable[[Any], None]:  # fmt: skip
    """One query over `length` keys of `size`; the second half of them `loud` times as large; below: each score is below 0.

    apart: a key's row, and a value's, in so many times their size. unread: nothing behind and between the rows is loaded.
    """

    def run(candidate: Any) -> None:
        for length in lengths:
            rng = np.random.default_rng(length)
            q = rng.normal(size=size).astype(np.float32)
            k, v = (
                np.full((length + 80, n, size), np.nan, np.float32) for n in apart
            )  # NaN behind, and between the rows
            k[:length, 0], v[:length, 0] = rng.normal(size=(2, length, size))
            k[length // 2 : length, 0] *= loud
            k[:length, 0] = -np.abs(k[:length, 0]) * np.sign(q) if below else k[:length, 0]
            past_k, past_v = (x[:length, :1].astype(float) for x in (k, v))
            want = slow_attention(q[None, None].astype(float), past_k, past_v, scale, length - 1)[0, 0]
            steps = f", a key in {apart[0] * size} numbers, a value in {apart[1] * size}"
            case = (
                f"{length} key{'s' * (length > 1)} of size {size}, scale {scale}, NaN behind the last"
                + steps * (apart != (1, 1))
                + ", scores below 0" * below
            )
            given = (torch.from_numpy(np.ascontiguousarray(x)).to(kernel_device()) for x in (q, k, v))
            q_given, k_given, v_given = given
            off = [OffLimits(x, np.isnan(y), "where there is no token") for x, y in ((k_given, k), (v_given, v))]
            with in_case(case):
                got = launched(
                    candidate,
                    q_given,
                    k_given[:length, 0],
                    v_given[:length, 0],
                    scale,
                    off_limits=off if unread else (),
                )
            expect_numbers(numbers(got, (size,), case), want, case, 1e-5)

    return run


def _call(candidate: Any) -> Any:
    q, k, v = torch.zeros((3, 100, 128), device=kernel_device())
    return candidate(q[0], k, v, 0.1)


def _apart(candidate: Any) -> None:
    for apart in ((2, 2), (1, 2), (2, 1)):
        _equals_loops(2, 64, apart=apart)(candidate)


def _large(candidate: Any) -> None:
    for loud in (0.1, 9.0):
        _equals_loops(128, scale=300.0, loud=loud)(candidate)
    _equals_loops(64, scale=300.0, below=True)(candidate)


ONE_TILE, TILES, TAIL, SIZES, APART, LARGE, UNREAD, COMPILES = (
    "one whole tile",
    "several tiles: the softmax is over all of them",
    "a partial last tile, with NaN behind it",
    "a head size that is no power of 2",
    "rows that lie apart, those of K and V by strides of their own",
    "large scores, rising and falling from tile to tile",
    "keys and values behind the last token are not loaded",
    "compiles for a GPU",
)
MASK, V = (
    "mask=tile, other=0.0)\n        s = tl.sum",
    "v = tl.load(v_ptr + n[:, None] * v_stride + d[None, :], mask=tile, other=0.0)",
)
K = "k = tl.load(k_ptr + n[:, None] * k_stride + d[None, :], mask=tile, other=0.0)"
HIDE = 's = tl.where(n < length, s, float("-inf"))'


def _instead(*changes: tuple[str, str]) -> Any:
    return planted(decode_one, *changes)


DECODE_ONE = Exercise(
    id="10.one",
    title="One query, one head: attention in tiles",
    reference=decode_one,
    seconds=60.0,
    properties=[
        Property(ONE_TILE, _equals_loops(64)),
        Property(TILES, _equals_loops(128, 192, loud=2.0)),
        Property(TAIL, _equals_loops(1, 3, 65, 100)),
        Property(SIZES, _equals_loops(64, size=10)),
        Property(APART, _apart),
        Property(LARGE, _large),
        Property(UNREAD, _equals_loops(1, 65, unread=True)),
        Property(COMPILES, compiles(_call)),
    ],
    mutants=[
        Mutant("no scale", _instead(("tl.sum(q[None, :] * k, 1) * scale", "tl.sum(q[None, :] * k, 1)")), ONE_TILE, "The scores are multiplied by the scale."),
        Mutant("powers of 2 and of e", _instead(("weights = tl.exp(s", "weights = tl.exp2(s")), ONE_TILE, "exp2 wants scores times log2(e)."),
        Mutant("does not divide", _instead(("out / total, mask=d < D)\n\n\ndef decode_one", "out, mask=d < D)\n\n\ndef decode_one")), ONE_TILE, "Weights must sum to 1."),
        Mutant("the first tile only", _instead(("range(0, length, BLOCK_N)", "range(0, BLOCK_N, BLOCK_N)")), TILES, "The context goes on."),
        Mutant("the values do not shrink", _instead(("out * shrink +", "out +")), TILES, "What was summed is relative to the old maximum."),
        Mutant("the sum does not shrink", _instead(("total * shrink +", "total +")), TILES, "Sum and values shrink together."),
        Mutant("the maximum of the tile", _instead(("tl.maximum(top, tl.max(s, 0))\n        shrink", "tl.max(s, 0)\n        shrink")), LARGE, "A maximum that falls lets old weights grow without bound."),
        Mutant("the maximum starts at 0", _instead(('top = float("-inf")', "top = 0.0")), LARGE, "If all scores are far below, all weights vanish."),
        Mutant("scores behind count", _instead((HIDE, "s = s")), TAIL, "A lane that is masked off has score 0, and e^0 is 1."),
        Mutant("0 times NaN", _instead((V, V.replace("mask=tile", "mask=(d < D)[None, :]"))), TAIL, "A weight of 0 does not hide a NaN."),
        Mutant("no other", _instead((V, V.replace(", other=0.0", ""))), TAIL, "A masked lane without `other` holds anything."),
        Mutant("whole tiles only", _instead(("range(0, length, BLOCK_N)", "range(0, length - BLOCK_N + 1, BLOCK_N)")), TAIL, "The last keys count too."),
        Mutant("no mask on the size", _instead(("(n < length)[:, None] & (d < D)[None, :]\n        k = tl.load(k_ptr + n[:, None] * k_stride", "(n < length)[:, None] & (d < BLOCK_D)[None, :]\n        k = tl.load(k_ptr + n[:, None] * k_stride"), ("q = tl.load(q_ptr + d, mask=d < D, other=0.0)\n", "q = tl.load(q_ptr + d)\n")), SIZES, "Tiles have 16 lanes, the head 10 numbers."),
        Mutant("rows side by side", _instead(("n[:, None] * k_stride + d[None, :], mask=tile, other=0.0)\n        v", "n[:, None] * D + d[None, :], mask=tile, other=0.0)\n        v")), APART, "The stride says where the next row begins."),
        Mutant("values by the keys' stride", _instead(("n[:, None] * v_stride + d[None, :], mask=tile, other=0.0)\n        s =", "n[:, None] * k_stride + d[None, :], mask=tile, other=0.0)\n        s =")), APART, "K and V are two tensors, and each has its stride."),
        Mutant("keys without a mask", _instead((K, K.replace("mask=tile", "mask=(d < D)[None, :]"))), UNREAD, "What is thrown away has been fetched, and may be anybody's."),
        Mutant("a number becomes a tile", _instead(("out = tl.zeros([BLOCK_D], tl.float32)\n    for start", "out = 0.0\n    for start")), COMPILES, "A variable keeps its shape from turn to turn of a loop."),
    ],
    alternatives=[in_base_2],
)  # fmt: skip
