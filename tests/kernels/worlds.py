"""Paged caches for kernels to read, with poison wherever nobody may look, and what attention over them is in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from mini_engine.attention import paged_decode_attention
from mini_engine.kernels import is_interpreted, memory_check

NOWHERE = 2**31 - 1
"""What stands in table entries that no token needs."""

TOLERANCE = {torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 3e-3}
"""Largest error of a sequence's output, as a Frobenius norm relative to that of the output in float64."""
LATENT_TOLERANCE = {**TOLERANCE, torch.bfloat16: 5e-3}


@dataclass(frozen=True)
class World:
    """q[B, H, D], pools [N, P, K, D] with scales [N, P, K] if they are int8, tables, lengths. A latent pool is its own v."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    tables: torch.Tensor
    lengths: torch.Tensor
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None
    window: int | None = None
    value_dim: int | None = None  # of a latent: how much of it is the value

    @property
    def scale(self) -> float:
        return self.q.shape[2] ** -0.5

    @property
    def block_size(self) -> int:
        return self.k.shape[1]

    def expected(self) -> np.ndarray:
        """[B, H, Dv] in float64."""
        k, v = self._exact(self.k, self.k_scale), self._exact(self.v, self.v_scale)[..., : self.value_dim]
        tables, lengths = self.tables.numpy(), self.lengths.numpy()
        return paged_decode_attention(self.q.double().numpy(), k, v, tables, lengths, self.scale, self.window)

    def slots(self) -> list[tuple[int, int]]:
        """(sequence, token) of everything that may be read."""
        return [
            (row, token)
            for row, length in enumerate(self.lengths.tolist())
            for token in range(0 if self.window is None else max(0, length - self.window), length)
        ]

    def place(self, row: int, token: int) -> tuple[int, int]:
        """Block and slot of a token."""
        return int(self.tables[row, token // self.block_size]), token % self.block_size

    @staticmethod
    def _exact(pool: torch.Tensor, scale: torch.Tensor | None) -> np.ndarray:
        exact = pool.double() if scale is None else pool.double() * scale.double()[..., None]
        return exact.numpy()


def make_world(
    lengths: Sequence[int], *, P: int = 16, K: int = 2, G: int = 2, D: int = 32, dtype: torch.dtype = torch.float32,
    int8: bool = False, window: int | None = None, value_dim: int | None = None, seed: int = 0, spare_columns: int = 1,
) -> World:  # fmt: skip
    """Sequences of these lengths, their tokens in blocks in random order. The same seed gives the same tokens for any P."""
    rng = np.random.default_rng(seed)
    B, num_blocks = len(lengths), [-(-length // P) for length in lengths]
    first = [0 if window is None else max(0, length - window) for length in lengths]
    tokens = [rng.normal(size=(2, length, K, D)) for length in lengths]
    q = torch.from_numpy(rng.normal(size=(B, K * G, D))).to(dtype)
    N = sum(num_blocks) + 3
    k, v = (torch.full((N, P, K, D), 0x7F if int8 else math.nan, dtype=torch.int8 if int8 else dtype) for _ in "kv")
    scales = [torch.full((N, P, K), math.nan) if int8 else None for _ in "kv"]
    tables = torch.full((B, max(num_blocks, default=0) + spare_columns), NOWHERE, dtype=torch.int32)
    free = rng.permutation(N).tolist()
    for row, length in enumerate(lengths):
        blocks = [free.pop() for _ in range(num_blocks[row])]
        for i, block in enumerate(blocks):
            if (i + 1) * P > first[row]:
                tables[row, i] = block
        at = np.arange(first[row], length)
        places = np.array(blocks, dtype=np.int64)[at // P], at % P
        for pool, scale, x in zip((k, v), scales, tokens[row]):
            _fill(pool, scale, places, torch.from_numpy(x[at]))
    world = World(q, k, v, tables, torch.tensor(lengths, dtype=torch.int32), scales[0], scales[1], window, value_dim)
    return world if value_dim is None else replace(world, v=k, v_scale=scales[0])


def _fill(pool: torch.Tensor, scale: torch.Tensor | None, places: tuple, x: torch.Tensor) -> None:
    if scale is None:
        pool[places] = x.to(pool.dtype)
        return
    scale[places] = (x.abs().amax(-1) / 127).float()
    pool[places] = (x / scale[places][..., None]).round().to(torch.int8)


def _there(*tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
    """Where kernels run: on a GPU, unless they are interpreted."""
    return [x if x is None or is_interpreted() else x.cuda() for x in tensors]


def _here(out: torch.Tensor) -> torch.Tensor:
    return out if is_interpreted() else out.cpu()


Run = Callable[..., torch.Tensor]
"""Calls a decode kernel on a world: run(world, num_splits=..., out=...)."""


def gqa_run(decode: Callable[..., torch.Tensor]) -> Run:
    """`paged_gqa_decode`, or one to be compared with it, as a Run."""

    def run(world: World, **options: object) -> torch.Tensor:
        with memory_check():
            return _here(decode(
                *_there(world.q, world.k, world.v, world.tables, world.lengths), world.scale, window=world.window,
                **dict(zip(("k_scale", "v_scale"), _there(world.k_scale, world.v_scale))), **options,
            ))  # fmt: skip

    return run


def mla_run(decode: Callable[..., torch.Tensor]) -> Run:
    """`paged_mla_decode`, or one to be compared with it, as a Run."""

    def run(world: World, **options: object) -> torch.Tensor:
        q_latent, q_rope = world.q.tensor_split([world.value_dim], dim=-1)
        scale = None if world.k_scale is None else world.k_scale[..., 0]
        with memory_check():
            return _here(decode(
                *_there(q_latent, q_rope, world.k[:, :, 0], world.tables, world.lengths), world.scale,
                latent_scale=_there(scale)[0], **options,
            ))  # fmt: skip

    return run


def errors(out: torch.Tensor, expected: np.ndarray) -> np.ndarray:
    """Relative error of each sequence; where nothing is expected, 0 if that is what came and infinity otherwise."""
    found = out.double().numpy()
    norms = np.linalg.norm(expected, axis=(1, 2))
    wrong = np.linalg.norm(found - expected, axis=(1, 2))
    return np.where(
        norms > 0, wrong / np.where(norms > 0, norms, 1), np.where((found == 0).all(axis=(1, 2)), 0, np.inf)
    )


def check_numbers(run: Run, world: World, tolerance: float | None = None, **options: object) -> None:
    """AssertionError unless every sequence's output is finite and within the tolerance of its dtype."""
    if tolerance is None:
        tolerance = (TOLERANCE if world.value_dim is None else LATENT_TOLERANCE)[world.q.dtype]
    out = run(world, **options)
    expected = world.expected()
    assert out.shape == expected.shape
    assert out.dtype == world.q.dtype
    found = errors(out, expected)
    worst = int(np.argmax(np.nan_to_num(found, nan=np.inf)))
    assert found[worst] <= tolerance, (
        f"sequence {worst} of {int(world.lengths[worst])} tokens: relative error {found[worst]:.1e}, "
        f"allowed {tolerance:.0e} ({options})"
    )
