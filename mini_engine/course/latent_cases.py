"""Cases for kernels over latents: a paged cache of latents with rope keys behind them, poisoned like the cases of `kernel_cases`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mini_engine.course.exercises.attention_cases import slow_attention
from mini_engine.course.expect import expect, in_case
from mini_engine.course.kernel_cases import FAR, NOWHERE, STRIDE, Cache, reserved
from mini_engine.course.kernel_compile import compiles
from mini_engine.course.kernel_watch import expect_numbers, launched, numbers, watched
from mini_engine.kernels import is_interpreted, kernel_device
from mini_engine.kernels.interpreter_hooks import interpreter_hooks

TILE = 16  # heads that a program takes: what matrix products need at least
TOKENS = 64  # of a tile in the lesson


@dataclass(frozen=True)
class Latents:
    """Sequences of these lengths in a paged cache: a token's row is its latent, then its rope key, shared by all heads.

    The scale is none of those that can be made up from the sizes: it belongs to the query before absorption.

    still: queries have no rope part, so positions do not count.
    apart: in memory, rows, blocks and queries do not touch, and each lies by a step of its own.
    loud, sharp, below, keys and half are those of `Cache`.
    """

    lengths: tuple[int, ...]
    heads: int = 16
    latent: int = 16
    rope: int = 4
    page: int = 4
    loud: float = 1.0
    scale: float = 0.3
    still: bool = False
    apart: bool = False
    sharp: float = 1.0
    below: bool = False
    keys: float = 0.0
    half: bool = False

    def __str__(self) -> str:
        one = len(self.lengths) == 1
        text = f"a context of {self.lengths[0]}" if one else f"contexts {list(self.lengths)}"
        text += f", blocks of {self.page}, {self.heads} {'head' if self.heads == 1 else 'heads'}, "
        text += f"latents of {self.latent} and rope keys of {self.rope}, scale {self.scale}"
        extras = {
            "rope queries are 0": self.still,
            "rows, blocks and queries do not touch": self.apart,
            f"scores of heads 0, 2, ... {self.sharp:g} times as large": self.sharp != 1.0,
            "all scores below 0": self.below,
            f"latents around {self.keys:g}": bool(self.keys),
            "float16": self.half,
        }
        return ", ".join([text, *(words for words, so in extras.items() if so)])

    @property
    def row_bytes(self) -> int:
        """Bytes of one token in float32."""
        return (self.latent + self.rope) * 4

    def tensors(self) -> tuple[Any, ...]:
        """q_latent, q_rope, latent_pool, block_tables, context_lens."""
        q, pool, _, tables, lengths = self._cache.tensors()
        if self.still:
            q[..., self.latent :] = 0.0
        q_latent, q_rope, pool = q[..., : self.latent], q[..., self.latent :], pool[:, :, 1].contiguous()
        if self.apart:
            q_latent, q_rope, pool = _spread(q_latent, 1, 5), _spread(q_rope, 2, 3), _spread(pool, 1, 4)
        return q_latent, q_rope, pool, tables, lengths

    def expected(self) -> np.ndarray:
        """[B, H, latent]: plain loops over the sequences as they were before they were paged; zeros without a token."""
        q, rows, _ = self._cache.arrays()
        if self.still:
            q[..., self.latent :] = 0.0
        out = np.zeros(q.shape)
        for at, n in enumerate(self.lengths):
            if n:
                past = rows[at][:, 1:].astype(float)
                out[at] = slow_attention(q[at][None].astype(float), past, past, self.scale, n - 1)[0]
        return out[..., : self.latent]

    @property
    def _cache(self) -> Cache:
        size = self.latent + self.rope
        return Cache(
            self.lengths, (self.heads, 2), size, self.page, self.loud,
            sharp=self.sharp, below=self.below, keys=self.keys, half=self.half,
        )  # fmt: skip

    @property
    def rtol(self) -> float:
        """As the cache's, whose scale is smaller than this one."""
        return 2 * self._cache.rtol


def _spread(tensor: torch.Tensor, more: int, wider: int) -> torch.Tensor:
    """The same numbers [A, B, C] as a view of a larger tensor, with NaN around them."""
    A, B, C = tensor.shape
    around = torch.full((A, B + more, C + wider), torch.nan, dtype=tensor.dtype, device=tensor.device)
    around[:, :B, :C] = tensor
    return around[:, :B, :C]


def attends_to_latents(*cases: Latents, splits: Sequence[int] = ()) -> Callable[[Any], None]:
    """A property: a decode function gives what plain loops give, for each case, and in any number of parts."""

    def run(candidate: Any) -> None:
        for case in cases:
            want = case.expected()
            for options, words in _in_parts(case, splits):
                with in_case(words):
                    got = launched(candidate, *case.tensors(), case.scale, **options)
                out = numbers(got, want.shape, words)
                for row, head in np.ndindex(*want.shape[:2]):
                    where = f"{words}\nsequence {row}, head {head}"
                    expect_numbers(out[row, head], want[row, head], where, case.rtol)

    return run


def _in_parts(case: Latents, splits: Sequence[int]) -> list[tuple[dict[str, Any], str]]:
    """Keyword arguments of a call, and the case in words."""
    return [({"num_splits": n}, f"{case}, num_splits {n}") for n in splits] or [({}, str(case))]


def reads_latents_once(*cases: Latents, splits: Sequence[int] = ()) -> Callable[[Any], None]:
    """A property: of the pool, a program for TILE heads loads each number once. Counted where kernels are interpreted."""

    def run(candidate: Any) -> None:
        if not is_interpreted():
            return
        for case in cases:
            for options, words in _in_parts(case, splits):
                loaded = bytes_of_the_pool(candidate, case, **options)
                tiles = -(-case.heads // TILE)
                least = tiles * sum(case.lengths) * case.row_bytes
                words += "\nbytes loaded from the pool"
                expect(loaded <= least, words, expected=f"{least:,}, or less", got=f"{loaded:,}")

    return run


def shares_the_context(*cases: Latents, splits: Sequence[int]) -> Callable[[Any], None]:
    """A property: no program loads more of a context than its part in whole tiles. Seen where kernels are interpreted."""

    def run(candidate: Any) -> None:
        if not is_interpreted():
            return
        for case in cases:
            for options, words in _in_parts(case, splits):
                tiles = max(-(-n // TOKENS) for n in case.lengths)
                share = -(-tiles // options["num_splits"]) * TOKENS * case.row_bytes
                for program, loaded in _bytes_by_program(candidate, case, **options).items():
                    where = f"{words}\nbytes that program {program} loads from the pool"
                    expect(
                        loaded <= share,
                        where,
                        expected=f"{share:,}, its part in tiles of {TOKENS}, or less",
                        got=f"{loaded:,}",
                    )

    return run


def _bytes_by_program(candidate: Any, case: Latents, **options: int) -> dict[tuple[int, ...], int]:
    """Bytes that each program loads from the pool, of all launches the most."""
    from triton.runtime import interpreter

    given = case.tensors()
    pool = given[2]
    begin, end = pool.data_ptr(), pool.data_ptr() + pool.numel() * pool.element_size()
    most: dict[tuple[int, ...], int] = {}
    now: dict[tuple[int, ...], int] = {}

    def on_launch(executor: Any, arguments: dict[str, Any], run: Callable[[], Any]) -> Any:
        now.clear()
        result = run()
        most.update({at: max(n, most.get(at, 0)) for at, n in now.items()})
        return result

    def on_load(ptrs: Any, lanes: np.ndarray) -> None:
        at = tuple(interpreter.interpreter_builder.grid_idx)
        its = int(((lanes >= begin) & (lanes < end)).sum()) * pool.element_size()
        now[at] = now.get(at, 0) + its

    with in_case(str(case)), watched(), interpreter_hooks(on_load, lambda ptrs, lanes: None, on_launch):
        candidate(*given, case.scale, **options)
    return most


def compiles_latents(candidate: Any) -> None:
    """A property: a decode function's kernel compiles, for the shapes of the course's small model in float16."""
    half = {"dtype": torch.float16, "device": kernel_device()}
    table, length = (torch.ones(shape, dtype=torch.int32, device=kernel_device()) for shape in ((1, 4), (1,)))
    given = torch.zeros(1, 8, 64, **half), torch.zeros(1, 8, 16, **half), torch.zeros(5, 16, 80, **half)  # type: ignore[call-overload]
    compiles(lambda function: function(*given, table, length, 0.1))(candidate)


def bytes_of_the_pool(candidate: Any, case: Latents, **options: int) -> int:
    """Bytes that a decode function loads from the pool, whatever its kernels call it."""
    from mini_engine.kernels.traffic import traffic

    given = case.tensors()
    with watched(), traffic() as launches:
        candidate(*given, case.scale, **options)
    return sum(
        loaded
        for launch in launches
        for name, loaded in launch.loaded.items()
        if launch.arguments[name].data_ptr() == given[2].data_ptr()
    )


def finds_far_latents(candidate: Any) -> None:
    """A property: a block more than 2^31 numbers into the pool is read. The memory is only reserved."""
    case = Latents((3,))
    q_latent, q_rope, near, tables, lengths = case.tensors()
    far = reserved(1, case.latent + case.rope)
    if not is_interpreted() or far is None:
        return
    pool = far[:, :, 0]
    pool[FAR] = near[int(tables[0, 0])]
    words = f"a context of 3 in block {FAR}, {STRIDE:,} numbers from block to block"
    table = torch.tensor([[FAR, NOWHERE]], dtype=torch.int32)
    with in_case(words), watched():
        got = candidate(q_latent.half(), q_rope.half(), pool, table, lengths, case.scale)
    want = case.expected()
    expect_numbers(numbers(got, want.shape, words), want, words, 5e-3)
