"""Cases for kernels over a paged cache, with poison wherever nobody may look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mini_engine.course.exercises.attention_cases import slow_attention
from mini_engine.course.expect import in_case
from mini_engine.course.kernel_compile import compiles
from mini_engine.course.kernel_watch import OffLimits, expect_numbers, launched, numbers, watched
from mini_engine.kernels import is_interpreted, kernel_device

NOWHERE = 2**31 - 1
"""What stands in table entries that no token needs."""
FAR = 8
STRIDE = 1 << 28  # numbers a block of a far pool: 8 * 2^28 = 2^31, which as an int32 is -2^31


@dataclass(frozen=True)
class Cache:
    """Sequences of these lengths in a paged cache: q[B, H, D], k and v as lists of [S, K, D], and where they lie.

    loud:  the first half of the keys is so many times as large.
    sharp: every second query head is so many times as large, from the first on, and so are its scores.
    below: all scores are below 0.
    keys:  keys are around this, and so are scores: only their small differences count.
    tall:  values are around this.
    half:  float16, not float32.
    """

    lengths: tuple[int, ...]
    heads: tuple[int, int] = (2, 2)
    size: int = 8
    page: int = 4
    loud: float = 1.0
    window: int | None = None
    sharp: float = 1.0
    below: bool = False
    keys: float = 0.0
    tall: float = 0.0
    half: bool = False

    def __str__(self) -> str:
        H, K = self.heads
        one = len(self.lengths) == 1
        text = f"a context of {self.lengths[0]}" if one else f"contexts {list(self.lengths)}"
        text += f", blocks of {self.page}, {H} query head{'s' * (H > 1)} and {K} K/V head{'s' * (K > 1)} of size {self.size}"
        extras = {
            f"window {self.window}": self.window is not None,
            f"scores {'of heads 0, 2, ... ' if H > 1 else ''}{self.sharp:g} times as large": self.sharp != 1.0,
            "all scores below 0": self.below,
            f"keys around {self.keys:g}": bool(self.keys),
            f"values around {self.tall:g}": bool(self.tall),
            "float16": self.half,
        }
        return ", ".join([text, *(words for words, so in extras.items() if so)])

    def arrays(self) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
        """q[B, H, D], and for each sequence k and v[T, K, D], all float32 and always the same."""
        rng = np.random.default_rng(sum(self.lengths) + self.size)
        H, K = self.heads
        q = rng.normal(size=(len(self.lengths), H, self.size)).astype(np.float32)
        k, v = ([rng.normal(size=(n, K, self.size)).astype(np.float32) for n in self.lengths] for _ in "kv")
        for each in k:
            each[: len(each) // 2] *= self.loud  # the largest score is among the first tokens, or among the last
        q[:, ::2] *= self.sharp
        if self.below:
            q, k = np.abs(q), [-np.abs(each) for each in k]
        k, v = ([each + np.float32(by) for each in both] for both, by in ((k, self.keys), (v, self.tall)))
        dtype = np.float16 if self.half else np.float32
        return q.astype(dtype), [each.astype(dtype) for each in k], [each.astype(dtype) for each in v]

    def tensors(self) -> tuple[Any, ...]:
        """q, k_pool, v_pool, block_tables, context_lens: NaN in all slots without a token, NOWHERE in tails of tables."""
        q, k, v = self.arrays()
        blocks = [-(-n // self.page) for n in self.lengths]
        total = sum(blocks) + 2
        order = iter(np.random.default_rng(7).permutation(np.arange(1, total)).tolist())
        tables = np.full((len(blocks), max(blocks) + 2), NOWHERE, np.int32)
        pools = np.full((2, total, self.page, self.heads[1], self.size), np.nan, q.dtype)
        for row, count in enumerate(blocks):
            tables[row, :count] = [next(order) for _ in range(count)]
            for pool, new in zip(pools, (k[row], v[row])):
                for at, token in enumerate(new):
                    pool[tables[row, at // self.page], at % self.page] = token
                if self.window:
                    for at in range(max(0, self.lengths[row] - self.window)):
                        pool[tables[row, at // self.page], at % self.page] = np.nan
        both = np.concatenate([q, np.full_like(q, np.nan)], axis=1)  # a view of a larger tensor, as the engine's q is
        given = (both, *pools, tables, np.array(self.lengths, np.int32))
        moved = [torch.from_numpy(np.ascontiguousarray(x)).to(kernel_device()) for x in given]
        return moved[0][:, : self.heads[0]], *moved[1:]

    def expected(self) -> np.ndarray:
        """[B, H, D]: three plain loops over the sequences as they were before they were paged; zeros without a token."""
        q, k, v = self.arrays()
        out = np.zeros(q.shape)
        for row, n in enumerate(self.lengths):
            first = max(0, n - self.window) if self.window else 0
            if n:
                past_k, past_v = (x[row][first:].astype(float) for x in (k, v))
                out[row] = slow_attention(q[row][None].astype(float), past_k, past_v, self.scale, n - first - 1)[0]
        return out

    @property
    def scale(self) -> float:
        """1 / sqrt(D)."""
        return self.size**-0.5

    @property
    def rtol(self) -> float:
        """How far a right kernel may be off: what rounding does to a score of this size, and in float16 to weights and results."""
        q, k, _ = self.arrays()
        largest = max((np.abs(each).max(initial=0.0) for each in k), default=0.0)
        score = float(np.abs(q).max(initial=0.0)) * float(largest) * self.size * self.scale
        return max(1e-5, 4 * 2.0**-24 * score) + (2e-3 if self.half else 0.0)


def attends(*caches: Cache, backwards: bool = False) -> Callable[[Any], None]:
    """A property: a decode function gives what plain loops give, for each of these caches. It reads what contexts hold,
    and no more. backwards: programs run in the opposite order.
    """

    def run(candidate: Any) -> None:
        for cache in caches:
            options = {"window": cache.window} if cache.window else {}
            given, want = cache.tensors(), cache.expected()
            with in_case(str(cache)):
                got = launched(
                    candidate, *given, cache.scale, off_limits=off_limits(cache, given), backwards=backwards, **options
                )
            out = numbers(got, want.shape, str(cache))
            for row, head in np.ndindex(*want.shape[:2]):
                case = f"{cache}\nsequence {row}, query head {head}"
                expect_numbers(out[row, head], want[row, head], case, cache.rtol)

    return run


def off_limits(cache: Cache, given: tuple[Any, ...]) -> list[OffLimits]:
    """Slots without a token that counts, and table entries that no token needs."""
    _, k_pool, v_pool, tables, _ = given
    empty = "which holds no token of the window" if cache.window else "a slot without a token"
    each = [OffLimits(pool, pool.isnan().cpu().numpy(), empty) for pool in (k_pool, v_pool)]
    return [*each, OffLimits(tables, (tables == NOWHERE).cpu().numpy(), "behind the last block of its sequence")]


def compiles_decode(candidate: Any) -> None:
    """A property: a decode function's kernel compiles, for the shapes of Llama-3-8B in float16."""
    compiles(lambda function: function(*realistic(), 128**-0.5))(candidate)


def realistic() -> tuple[Any, ...]:
    """q, k_pool, v_pool, block_tables, context_lens of one sequence of Llama-3-8B."""
    half = {"dtype": torch.float16, "device": kernel_device()}
    table, length = (torch.ones(shape, dtype=torch.int32, device=kernel_device()) for shape in ((1, 4), (1,)))
    return torch.zeros(1, 32, 128, **half), *torch.zeros(2, 5, 16, 8, 128, **half), table, length  # type: ignore[call-overload]


def finds_far_blocks(heads: tuple[int, int]) -> Callable[[Any], None]:
    """A property: a block more than 2^31 numbers into a pool is read. The memory is only reserved, hardly any is touched."""

    def run(candidate: Any) -> None:
        cache = Cache((3,), heads, size=8, page=4)
        q, k_pool, v_pool, tables, lengths = cache.tensors()
        far = [reserved(heads[1], 8) for _ in "kv"]
        if not is_interpreted() or None in far:
            return
        for pool, near in zip(far, (k_pool, v_pool)):
            pool[FAR] = near[int(tables[0, 0])]  # type: ignore[index]
        case = f"a context of 3 in block {FAR}, {STRIDE:,} numbers from block to block"
        table = torch.tensor([[FAR, NOWHERE]], dtype=torch.int32)
        with in_case(case), watched():
            got = candidate(q.half(), *far, table, lengths, cache.scale)
        want = cache.expected()
        expect_numbers(numbers(got, want.shape, case), want, case, 5e-3)

    return run


def reserved(heads: int, size: int) -> torch.Tensor | None:
    """A float16 pool [9, 4, heads, size] that spans 2^31 numbers and more; None where the machine does not reserve that."""
    row = heads * size
    try:
        memory = torch.empty(FAR * STRIDE + 4 * row, dtype=torch.float16)
    except RuntimeError:
        return None
    return memory.as_strided((FAR + 1, 4, heads, size), (STRIDE, row, size, 1))
