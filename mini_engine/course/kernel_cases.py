"""Run a learner's kernel as a GPU would punish it, on caches with poison wherever nobody may look."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mini_engine.course.exercise import NotDoneYet
from mini_engine.course.exercises.e01_attention import slow_attention
from mini_engine.course.expect import expect, expect_close
from mini_engine.kernels import is_interpreted, kernel_device, memory_check

NOWHERE = 2**31 - 1
"""What stands in table entries that no token needs."""
FAR = 8
STRIDE = 1 << 28  # numbers a block of a far pool: 8 * 2^28 = 2^31, which as an int32 is -2^31


@contextmanager
def watched() -> Iterator[None]:
    """Kernels that run meanwhile may touch their own tensors only, and what a GPU would not do fails here too.

    A masked lane without `other` would be 0 in the interpreter. On a GPU nobody says what it is: here it is NaN, or a very
    large number. A `tl.dot` with a side below 16, which the interpreter takes, is a ValueError. An error in a kernel comes
    out as itself, at the kernel's own line.
    """
    if not is_interpreted():
        with _compiled():
            yield
        return
    from triton.runtime import interpreter

    builder: Any = interpreter.InterpreterBuilder
    load, dot = builder.create_masked_load, builder.create_dot

    def poisoned(self: Any, ptrs: Any, mask: Any, other: Any, *options: Any) -> Any:
        loaded = load(self, ptrs, mask, other, *options)
        if other is None:
            off = ~np.broadcast_to(mask.data, loaded.data.shape).astype(bool)
            kind = loaded.data.dtype
            anything = [np.nan, np.finfo(kind).max] if kind.kind == "f" else [np.iinfo(kind).max]  # max() drops a NaN
            loaded.data = np.where(off, np.resize(np.array(anything, kind), off.shape), loaded.data)
        return loaded

    def sized(self: Any, a: Any, b: Any, *options: Any) -> Any:
        sides = (*a.data.shape, b.data.shape[-1])
        if min(sides) < 16:
            raise ValueError(
                f"tl.dot of {list(a.data.shape)} and {list(b.data.shape)}: a GPU wants 16 or more on each side"
            )
        return dot(self, a, b, *options)

    builder.create_masked_load, builder.create_dot = poisoned, sized
    try:
        with memory_check(), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a tile of NaN is no news here
            yield
    except interpreter.InterpreterError as error:
        raise _root(error) from None
    finally:
        builder.create_masked_load, builder.create_dot = load, dot


@contextmanager
def _compiled() -> Iterator[None]:
    """A stub's `raise` does not compile: then the exercise is not done yet. Other errors go through."""
    from mini_engine.kernels import triton

    try:
        yield
    except triton.CompilationError as error:
        if "raise NotImplementedError" in str(error):
            raise NotDoneYet from error
        raise


def _root(error: BaseException) -> BaseException:
    """What a kernel raised, out of the interpreter's wrapping; a called kernel wraps it once more."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    return error


def launched(candidate: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call it under watch, and see that it leaves alone every tensor that it was given."""
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor) and x.numel() < 1 << 20]
    before = [x.clone() for x in tensors]
    with watched():
        result = candidate(*args, **kwargs)
    for x, old in zip(tensors, before):
        same = torch.equal(torch.nan_to_num(x.double(), nan=7.5), torch.nan_to_num(old.double(), nan=7.5))
        expect(same, "a call that only reads", expected="inputs as they were", got=f"a changed {_shape(x)}")
    return result


def numbers(result: Any, shape: Sequence[int], case: str) -> np.ndarray:
    """A returned tensor as NumPy; fails for anything else and for another shape."""
    right = isinstance(result, torch.Tensor) and tuple(result.shape) == tuple(shape)
    got = _shape(result) if isinstance(result, torch.Tensor) else type(result).__name__
    expect(right, case, expected=f"a tensor of shape {list(shape)}", got=got)
    return np.asarray(result.detach().double().cpu().numpy())


def _shape(tensor: torch.Tensor) -> str:
    return f"tensor of shape {list(tensor.shape)}"


@dataclass(frozen=True)
class Cache:
    """Sequences of these lengths in a paged cache: q[B, H, D], k and v as lists of [S, K, D], and where they lie."""

    lengths: tuple[int, ...]
    heads: tuple[int, int] = (2, 2)
    size: int = 8
    page: int = 4
    loud: float = 1.0
    window: int | None = None

    def __str__(self) -> str:
        text = (
            f"contexts {list(self.lengths)}, blocks of {self.page}, {self.heads[0]} query and {self.heads[1]} K/V heads"
        )
        return text + f" of size {self.size}" + (f", window {self.window}" if self.window else "")

    def arrays(self) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
        rng = np.random.default_rng(sum(self.lengths) + self.size)
        H, K = self.heads
        q = rng.normal(size=(len(self.lengths), H, self.size)).astype(np.float32)
        k, v = ([rng.normal(size=(n, K, self.size)).astype(np.float32) for n in self.lengths] for _ in "kv")
        for each in k:
            each[: len(each) // 2] *= self.loud  # the largest score is among the first tokens, or among the last
        return q, k, v

    def tensors(self) -> tuple[Any, ...]:
        """q, k_pool, v_pool, block_tables, context_lens: NaN in all slots without a token, NOWHERE in tails of tables."""
        q, k, v = self.arrays()
        blocks = [-(-n // self.page) for n in self.lengths]
        total = sum(blocks) + 2
        order = iter(np.random.default_rng(7).permutation(np.arange(1, total)).tolist())
        tables = np.full((len(blocks), max(blocks) + 2), NOWHERE, np.int32)
        pools = np.full((2, total, self.page, self.heads[1], self.size), np.nan, np.float32)
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
        return self.size**-0.5


def attends(*caches: Cache) -> Callable[[Any], None]:
    """A property: a decode function gives what plain loops give, for each of these caches."""

    def run(candidate: Any) -> None:
        for cache in caches:
            options = {"window": cache.window} if cache.window else {}
            got = launched(candidate, *cache.tensors(), cache.scale, **options)
            want = cache.expected()
            expect_close(numbers(got, want.shape, str(cache)), want, str(cache), rtol=1e-5, same_dtype=False)

    return run


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
        with watched():
            got = candidate(q.half(), *far, table, lengths, cache.scale)
        want = cache.expected()
        expect_close(numbers(got, want.shape, case), want, case, rtol=5e-3, same_dtype=False)

    return run


def reserved(heads: int, size: int) -> torch.Tensor | None:
    """A float16 pool [9, 4, heads, size] that spans 2^31 numbers and more; None where the machine does not reserve that."""
    row = heads * size
    try:
        memory = torch.empty(FAR * STRIDE + 4 * row, dtype=torch.float16)
    except RuntimeError:
        return None
    return memory.as_strided((FAR + 1, 4, heads, size), (STRIDE, row, size, 1))
