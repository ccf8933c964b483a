"""Cases for kernels over latents: a paged cache of latents with rope keys behind them, poisoned like the cases of `kernel_cases`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mini_engine.course.exercises.e01_attention import slow_attention
from mini_engine.course.expect import expect, expect_close
from mini_engine.course.kernel_cases import FAR, NOWHERE, STRIDE, Cache, launched, numbers, reserved, watched
from mini_engine.kernels import is_interpreted

TILE = 16  # heads that a program takes: what matrix products need at least


@dataclass(frozen=True)
class Latents:
    """Sequences of these lengths in a paged cache: a token's row is its latent, then its rope key, shared by all heads.

    The scale is none of those that can be made up from the sizes: it belongs to the query before absorption.
    """

    lengths: tuple[int, ...]
    heads: int = 16
    latent: int = 16
    rope: int = 4
    page: int = 4
    loud: float = 1.0
    scale: float = 0.3
    still: bool = False  # queries without a rope part: positions do not count

    def __str__(self) -> str:
        return (
            f"contexts {list(self.lengths)}, blocks of {self.page}, {self.heads} {'head' if self.heads == 1 else 'heads'}, "
            f"latents of {self.latent} and rope keys of {self.rope}, scale {self.scale}"
            + (", rope queries are 0" if self.still else "")
        )

    @property
    def row_bytes(self) -> int:
        return (self.latent + self.rope) * 4

    def tensors(self) -> tuple[Any, ...]:
        """q_latent, q_rope, latent_pool, block_tables, context_lens. In the pool's memory, rows do not touch."""
        q, pool, _, tables, lengths = self._cache.tensors()
        if self.still:
            q[..., self.latent :] = 0.0
        return q[..., : self.latent], q[..., self.latent :], pool[:, :, 1], tables, lengths

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
        return Cache(self.lengths, (self.heads, 2), self.latent + self.rope, self.page, self.loud)


def attends_to_latents(*cases: Latents, splits: Sequence[int] = ()) -> Callable[[Any], None]:
    """A property: a decode function gives what plain loops give, for each case, and in any number of parts."""

    def run(candidate: Any) -> None:
        for case in cases:
            want = case.expected()
            for options in [{"num_splits": n} for n in splits] or [{}]:
                words = f"{case}{''.join(f', {name} {n}' for name, n in options.items())}"
                got = launched(candidate, *case.tensors(), case.scale, **options)
                expect_close(numbers(got, want.shape, words), want, words, rtol=1e-5, same_dtype=False)

    return run


def reads_latents_once(*cases: Latents, splits: Sequence[int] = ()) -> Callable[[Any], None]:
    """A property: of the pool, a program for TILE heads loads each number once. Counted where kernels are interpreted."""

    def run(candidate: Any) -> None:
        if not is_interpreted():
            return
        for case in cases:
            for options in [{"num_splits": n} for n in splits] or [{}]:
                loaded = bytes_of_the_pool(candidate, case, **options)
                tiles = -(-case.heads // TILE)
                least = tiles * sum(case.lengths) * case.row_bytes
                words = f"{case}{''.join(f', {name} {n}' for name, n in options.items())}\nbytes loaded from the pool"
                expect(loaded <= least, words, expected=f"{least:,}, or less", got=f"{loaded:,}")

    return run


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
    with watched():
        got = candidate(q_latent.half(), q_rope.half(), pool, table, lengths, case.scale)
    want = case.expected()
    expect_close(numbers(got, want.shape, words), want, words, rtol=5e-3, same_dtype=False)
