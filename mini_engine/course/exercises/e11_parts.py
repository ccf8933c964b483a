"""Lesson 11, one part of a context: its normalized result and its log-sum-exp."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises.answers11_parts import attend_parts, in_powers_of_e
from mini_engine.course.expect import expect, expect_close, in_case
from mini_engine.course.kernel_compile import compiles
from mini_engine.course.kernel_watch import launched, numbers
from mini_engine.course.planted import planted
from mini_engine.kernels import kernel_device

SCALE = 0.3


@dataclass(frozen=True)
class _Case:
    """A context of S tokens of size D in parts of `tokens`. `gain` multiplies the query.

    apart: how many numbers lie between two keys, and between two values.
    """

    S: int
    tokens: int
    parts: int
    D: int = 16
    gain: float = 1.0
    apart: tuple[int, int] = (2, 2)

    def __str__(self) -> str:
        text = f"{self.S} {'token' if self.S == 1 else 'tokens'} of size {self.D} in {self.parts} "
        text += f"{'part' if self.parts == 1 else 'parts'} of {self.tokens}, scale {SCALE}"
        extras = {
            "a query of zeros": self.gain == 0,
            f"a query {self.gain:g} times longer": self.gain not in (0, 1),
            f"a key in {self.D + self.apart[0]} numbers, a value in {self.D + self.apart[1]}": self.apart != (2, 2),
        }
        return ", ".join([text, *(words for words, so in extras.items() if so)])

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(100 * self.S + self.D)
        return self.gain * rng.normal(size=self.D).astype(np.float32), rng.normal(size=(2, self.S, self.D)).astype(
            np.float32
        )

    def given(self) -> tuple[Any, ...]:
        """q, k, v as views of larger tensors, with NaN around them."""
        q, kv = self.arrays()
        views = [torch.from_numpy(q).to(kernel_device())]
        for each, more in zip(kv, self.apart):
            around = np.full((self.S + 3, self.D + more), np.nan, np.float32)
            around[: self.S, : self.D] = each
            views.append(torch.from_numpy(around).to(kernel_device())[: self.S, : self.D])
        return tuple(views)

    def expected(self) -> tuple[list[list[float] | None], list[float]]:
        """Each part by plain sums: what its tokens make, None where it has none, and log2 of the sum of 2^score."""
        q, (k, v) = (x.astype(float) for x in self.arrays())
        parts: list[list[float] | None] = []
        lses = []
        for at in range(0, self.parts * self.tokens, self.tokens):
            own = range(at, min(at + self.tokens, self.S))
            scores = [SCALE * math.fsum(q * k[s]) for s in own]
            most = max(scores, default=0.0)
            powers = [math.exp(s - most) for s in scores]
            total = math.fsum(powers)
            lses.append((most + math.log(total)) / math.log(2) if scores else -math.inf)
            parts.append(
                [math.fsum(p * v[s, d] for p, s in zip(powers, own)) / total for d in range(self.D)] if scores else None
            )
        return parts, lses


def _gives(*cases: _Case, what: str = "both") -> Callable[[Any], None]:
    def run(candidate: Any) -> None:
        for case in cases:
            with in_case(str(case)):
                got = launched(candidate, *case.given(), SCALE, case.tokens, case.parts)
            pair = isinstance(got, (tuple, list)) and len(got) == 2
            expect(pair, str(case), expected="two tensors: the parts, and their log-sum-exps", got=got)
            want, lses = case.expected()
            parts = numbers(got[0], (case.parts, case.D), f"{case}: parts")
            lse = numbers(got[1], (case.parts,), f"{case}: lse")
            if what != "lse":
                for at, each in enumerate(want):
                    if each is not None:
                        expect_close(parts[at], np.array(each), f"{case}\npart {at}", rtol=1e-5, same_dtype=False)
            if what != "parts":
                expect_close(lse, np.array(lses), f"{case}\nlse, base 2, of each part", rtol=1e-5, same_dtype=False)

    return run


def _call(candidate: Any) -> Any:
    q, k, v = torch.zeros((3, 300, 128), device=kernel_device())
    return candidate(q[0], k, v, 0.1, 112, 3)


OWN, POWERS, TILES, LSE, APART, RAGGED, LARGE, EMPTY, COMPILES = (
    "each part has its own tokens, and weights that sum to 1",
    "weights are powers of 2 of the scaled scores",
    "several tiles in a part: what was summed is rescaled",
    "the log-sum-exp is that of the scaled scores, in base 2",
    "rows of K and V have strides of their own",
    "the last part ends with the context, sizes are odd",
    "large scores do not overflow",
    "an empty part has the log-sum-exp minus infinity",
    "compiles for a GPU",
)
END = "end = tl.minimum(begin + tokens, length)"
STORE = "tl.store(lse_ptr + split, top + tl.log2(some))"


def _instead(*changes: tuple[str, str]) -> Any:
    return planted(attend_parts, *changes)


PARTS = Exercise(
    id="11.partial",
    title="One part of a context",
    reference=attend_parts,
    seconds=60.0,
    properties=[
        Property(OWN, _gives(_Case(16, 16, 1, gain=0.0), _Case(32, 16, 2, gain=0.0), what="parts")),
        Property(POWERS, _gives(_Case(16, 16, 1), _Case(32, 16, 2), what="parts")),
        Property(TILES, _gives(_Case(32, 32, 1), _Case(96, 48, 2), what="parts")),
        Property(LSE, _gives(_Case(16, 16, 1), _Case(32, 16, 2), _Case(48, 16, 3), what="lse")),
        Property(APART, _gives(_Case(16, 16, 1, apart=(2, 5)), _Case(48, 16, 3, apart=(4, 0)))),
        Property(RAGGED, _gives(_Case(1, 16, 1), _Case(21, 16, 2), _Case(21, 20, 2, D=10), _Case(40, 13, 4))),
        Property(LARGE, _gives(_Case(64, 32, 2, gain=200.0))),
        Property(EMPTY, _gives(_Case(3, 16, 2), _Case(20, 16, 5))),
        Property(COMPILES, compiles(_call)),
    ],
    mutants=[
        Mutant("every part is the whole", _instead(("begin = split * tokens", "begin = 0"), (END, "end = length")), OWN, "A part has tokens of its own."),
        Mutant("from the start", _instead(("begin = split * tokens", "begin = 0"), (END, "end = tl.minimum((split + 1) * tokens, length)")), OWN, "Part i begins where part i - 1 ended."),
        Mutant("to the end", _instead((END, "end = length")), OWN, "Part i ends where part i + 1 begins."),
        Mutant("not divided", _instead(("out / some, mask", "out, mask")), OWN, "Each part is attention in its own right: weights that sum to 1."),
        Mutant("powers of e", _instead(("weights = tl.exp2(s - new_top)", "weights = tl.exp(s - new_top)"), ("shrink = tl.exp2(", "shrink = tl.exp(")), POWERS, "scale_log2 makes scores in base 2: exp2 belongs to them."),
        Mutant("the values do not shrink", _instead(("out * shrink +", "out +")), TILES, "What was summed is relative to the old maximum."),
        Mutant("parts side by side", _instead(("split * part_stride", "split * length")), OWN, "The stride says where the next part begins."),
        Mutant("the sum does not shrink", _instead(("total * shrink +", "total +")), TILES, "What was summed is relative to the old maximum."),
        Mutant("values by the keys' stride", _instead(("n[:, None] * v_stride", "n[:, None] * k_stride")), APART, "A value's row need not be as long as a key's."),
        Mutant("keys by the values' stride", _instead(("n[:, None] * k_stride", "n[:, None] * v_stride")), APART, "A key's row need not be as long as a value's."),
        Mutant("a sum that begins as a number", _instead(("out = tl.zeros([BLOCK_D], tl.float32)", "out = 0.0"), ("out / some, mask", "out / some + tl.zeros([BLOCK_D], tl.float32), mask")), COMPILES, "A variable keeps its type and shape through a loop."),
        Mutant("a natural logarithm", _instead((STORE, STORE.replace("log2", "log"))), LSE, "The maximum is in base 2, and so must the logarithm be."),
        Mutant("the maximum is missing", _instead((STORE, STORE.replace("top + ", ""))), LSE, "The sum is relative to the maximum."),
        Mutant("the maximum alone", _instead((STORE, "tl.store(lse_ptr + split, top)")), LSE, "How many tokens there are counts as well."),
        Mutant("the sum itself", _instead((STORE, "tl.store(lse_ptr + split, some)")), LSE, "A sum relative to a maximum that nobody else knows is of no use."),
        Mutant("past the end", _instead((END, "end = begin + tokens")), RAGGED, "The last part may be short: what lies behind is not yours."),
        Mutant("whole tiles", _instead((END, "end = tl.minimum(tl.cdiv(begin + tokens, BLOCK_N) * BLOCK_N, length)")), RAGGED, "A part may end within a tile: the rest is the next one's."),
        Mutant("no mask on the values", _instead(("v = tl.load(v_ptr + n[:, None] * v_stride + d[None, :], mask=tile, other=0.0)", "v = tl.load(v_ptr + n[:, None] * v_stride + d[None, :], mask=(d < D)[None, :] & (n < length + 3)[:, None], other=0.0)")), RAGGED, "A weight of 0 does not hide a NaN."),
        Mutant("no maximum", _instead(("new_top = tl.maximum(top, tl.max(s, 0))", "new_top = tl.maximum(tl.maximum(top, tl.max(s, 0)) * 0.0, 0.0)")), LARGE, "2 to the power of a large score is infinite."),
        Mutant("an empty part weighs like a score of 0", _instead((STORE, "tl.store(lse_ptr + split, tl.where(total == 0.0, 0.0, top + tl.log2(some)))")), EMPTY, "2^0 is 1, and not nothing."),
        Mutant("an empty part is left out", _instead((STORE, "tl.store(lse_ptr + split + tl.arange(0, 1), top + tl.log2(some) + tl.zeros([1], tl.float32), mask=(begin < end) & (tl.arange(0, 1) == 0))")), EMPTY, "Somebody reads its log-sum-exp: what was there before."),
        Mutant("an empty part is a negative number", _instead((STORE, "tl.store(lse_ptr + split, tl.maximum(top, -1e4) + tl.log2(some))")), EMPTY, "Beside a part with smaller scores it would count."),
    ],
    alternatives=[in_powers_of_e],
)  # fmt: skip
