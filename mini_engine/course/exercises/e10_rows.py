"""Lesson 10, a first kernel: the largest and the sum of each row, with a last tile that is partial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises.answers10_rows import by_lanes, largest_and_sum
from mini_engine.course.expect import expect, expect_close, in_case
from mini_engine.course.kernel_compile import compiles
from mini_engine.course.kernel_watch import OffLimits, launched, numbers
from mini_engine.course.planted import planted
from mini_engine.kernels import kernel_device

WIDTH, BEHIND = 48, 1e9  # numbers a row has room for; what lies behind its last one


def _int32(lengths: Sequence[int]) -> torch.Tensor:
    return torch.tensor(lengths, dtype=torch.int32).to(kernel_device())


def _gives(*cases: Sequence[int], sign: float = 1.0, unread: bool = False) -> Callable[[Any], None]:
    """The largest and the sum of rows of these lengths, whose numbers are all above 0, or all below. unread: nothing behind
    a row is loaded either.
    """

    def run(candidate: Any) -> None:
        for lengths in cases:
            rng = np.random.default_rng(sum(lengths))
            x = np.full((len(lengths), WIDTH), BEHIND, np.float32)
            for row, n in enumerate(lengths):
                x[row, :n] = sign * rng.integers(1, 1000, n) / 8
            count = f"{len(lengths)} rows" if len(lengths) > 1 else "1 row"
            case = f"{count} with a stride of {WIDTH}, of {list(lengths)} numbers {'above' if sign > 0 else 'below'} 0, with 1e9 behind"
            given = torch.from_numpy(x).to(kernel_device()), _int32(lengths)
            behind = np.arange(WIDTH) >= np.array(lengths)[:, None]
            off = OffLimits(given[0], behind, "which lies behind its row's last number")
            with in_case(case):
                got = launched(candidate, *given, off_limits=[off] if unread else ())
            pair = isinstance(got, (tuple, list)) and len(got) == 2
            expect(pair, case, expected="two tensors: the largest, and the sum", got=got)
            for name, each, fold in (("largest", got[0], max), ("sum", got[1], sum)):
                start = [-np.inf] if fold is max else [0.0]
                want = np.array([fold(start + x[row, :n].tolist()) for row, n in enumerate(lengths)], np.float32)
                found = numbers(each, want.shape, case).astype(np.float32)
                expect_close(found, want, f"{case}: the {name}", rtol=1e-6)

    return run


WHOLE, PARTIAL, ROWS, BELOW, EMPTY, UNREAD, COMPILES = (
    "a row of whole tiles",
    "a last tile that is partial: nothing behind the row counts",
    "several rows, each of its own length",
    "a row of numbers below 0",
    "an empty row gives -inf and 0",
    "nothing behind a row is loaded",
    "compiles for a GPU",
)
LOAD = 'x = tl.load(x_ptr + row * x_stride + at, mask=at < length, other=float("-inf"))'
LOOP = "total = 0.0\n    for start in range(0, length, BLOCK):"


def _instead(old: str, new: str) -> Any:
    return planted(largest_and_sum, (old, new))


ROW_STATISTICS = Exercise(
    id="10.rows",
    title="The largest and the sum of each row",
    reference=largest_and_sum,
    seconds=60.0,
    properties=[
        Property(WHOLE, _gives([16], [32])),
        Property(PARTIAL, _gives([1], [5], [17], [47])),
        Property(ROWS, _gives([16, 3, 40], [7, 32])),
        Property(BELOW, _gives([16], [5, 20], sign=-1.0)),
        Property(EMPTY, _gives([0], [4, 0])),
        Property(UNREAD, _gives([5], [47, 0, 17], unread=True)),
        Property(COMPILES, compiles(lambda f: f(torch.zeros((2, WIDTH), device=kernel_device()), _int32([20, 7])))),
    ],
    mutants=[
        Mutant("the first tile only", _instead(LOOP, LOOP.replace("length, BLOCK", "BLOCK, BLOCK")), WHOLE, "A row may have more numbers than a tile."),
        Mutant("whole tiles only", _instead(LOOP, LOOP.replace("length,", "length - BLOCK + 1,")), PARTIAL, "The rest of the row counts as well."),
        Mutant("no mask", _instead(LOAD, "x = tl.load(x_ptr + row * x_stride + at)"), PARTIAL, "Behind the row lies something else."),
        Mutant("no other", _instead(', other=float("-inf"))\n        largest', ")\n        largest"), PARTIAL, "A masked lane without `other` holds anything."),
        Mutant("one too many", _instead(LOAD, LOAD.replace("at < length", "at <= length")), PARTIAL, "Positions count from 0."),
        Mutant("the filling is summed", _instead("tl.where(at < length, x, 0.0)", "x"), PARTIAL, "-inf in a sum makes it -inf."),
        Mutant("rows side by side", _instead(LOAD, LOAD.replace("row * x_stride", "row * length")), ROWS, "The stride says where the next row begins."),
        Mutant("one length for all", _instead("length = tl.load(length_ptr + row)\n    largest", "length = tl.load(length_ptr)\n    largest"), ROWS, "Each row has its own."),
        Mutant("other is 0", _instead(LOAD, LOAD.replace('float("-inf")', "0.0")), BELOW, "0 is larger than any number of the row."),
        Mutant("starts at 0", _instead('largest = float("-inf")', "largest = 0.0"), BELOW, "0 is larger than any number of the row."),
        Mutant("starts at the first", _instead('largest = float("-inf")', "largest = tl.load(x_ptr + row * x_stride)"), EMPTY, "An empty row has no first number."),
        Mutant("a load without a mask", _instead(LOAD, LOAD.replace(', mask=at < length, other=float("-inf")', "") + '\n        x = tl.where(at < length, x, float("-inf"))'), UNREAD, "What is thrown away has been fetched, and may be anybody's."),
        Mutant("a number becomes a tile", _instead("largest = tl.maximum(largest, tl.max(x, 0))\n        total += tl.sum(tl.where(at < length, x, 0.0), 0)\n    tl.store(largest_ptr + row, largest)\n    tl.store(sum_ptr + row, total)\n\n\ndef largest_and_sum", "largest = tl.maximum(largest, x)\n        total += tl.sum(tl.where(at < length, x, 0.0), 0)\n    tl.store(largest_ptr + row, tl.max(largest + tl.zeros([BLOCK], tl.float32), 0))\n    tl.store(sum_ptr + row, total)\n\n\ndef largest_and_sum"), COMPILES, "A variable keeps its shape from turn to turn of a loop."),
    ],
    alternatives=[by_lanes],
)  # fmt: skip
