"""Paged caches on the device, attention over them in float64, and how far a kernel is from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

NOWHERE = 2**31 - 1  # what table entries that nobody needs hold
TOLERANCE = {torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 3e-3}
LATENT_TOLERANCE = {**TOLERANCE, torch.bfloat16: 5e-3}


@dataclass
class World:
    """q[B, H, D], pools [N, P, K, D] (v may be k's first Dv numbers), tables, lengths; scales [N, P, K] of int8 pools."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    tables: torch.Tensor
    lengths: torch.Tensor
    scale: float
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None
    window: int | None = None

    def context(self, pool: torch.Tensor, scales: torch.Tensor | None, row: int, head: int) -> torch.Tensor:
        """[S, D] float64 of one head of one sequence."""
        P, length = pool.shape[1], int(self.lengths[row])
        first = 0 if self.window is None else max(0, length - self.window)
        at = torch.arange(first, length, device=pool.device)
        blocks, slots = self.tables[row, at // P].long(), at % P
        found = pool[blocks, slots, head].double()
        return found if scales is None else found * scales[blocks, slots, head].double()[:, None]

    def expected(self, row: int, head: int) -> torch.Tensor:
        """Attention of the query heads [G, Dv] that read one key/value head of one sequence, in float64."""
        k, v = self.context(self.k, self.k_scale, row, head), self.context(self.v, self.v_scale, row, head)
        group = self.q.shape[1] // self.k.shape[2]
        q = self.q[row, head * group : (head + 1) * group].double()
        return torch.softmax(q @ k.T * self.scale, dim=-1) @ v if len(k) else q.new_zeros(group, v.shape[1])

    def error(self, out: torch.Tensor, rows: Sequence[int] | None = None) -> float:
        """Largest relative error (Frobenius) of a sequence, of all of them or of these. Infinite for one that is not finite,
        or not zero where the context is empty.
        """
        worst = 0.0
        for row in range(len(self.q)) if rows is None else rows:
            expected = torch.cat([self.expected(row, head) for head in range(self.k.shape[2])])
            norm, wrong = expected.norm().item(), (out[row].double() - expected).norm().item()
            error = wrong / norm if norm else (0.0 if wrong == 0 else float("inf"))
            worst = max(worst, error if error == error else float("inf"))
        return worst


def make_world(
    lengths: Sequence[int], device: torch.device, *, P: int, K: int, G: int, D: int, dtype: torch.dtype,
    int8: bool = False, window: int | None = None, value_dim: int | None = None, seed: int = 0,
) -> World:  # fmt: skip
    """Sequences in blocks in random order; NaN in every slot and 2^31 - 1 in every table entry that nobody may look at."""
    random = torch.Generator().manual_seed(seed)
    needed = [-(-length // P) for length in lengths]
    N = sum(needed) + 3
    free = torch.randperm(N, generator=random).tolist()
    tables = torch.full((len(lengths), max(needed) + 2), NOWHERE, dtype=torch.int32)
    q = torch.randn(len(lengths), K * G, D, generator=random).to(dtype)
    pools, scales = [], []
    rows = [[free.pop() for _ in range(count)] for count in needed]
    for _ in range(1 if value_dim else 2):
        pool = torch.full((N, P, K, D), 127.0 if int8 else float("nan")).to(torch.int8 if int8 else dtype)
        scale = torch.full((N, P, K), float("nan"))
        for length, blocks in zip(lengths, rows):
            first = 0 if window is None else max(0, length - window)
            at = torch.arange(first, length)
            places = torch.tensor(blocks, dtype=torch.int64)[at // P], at % P
            x = torch.randn(len(at), K, D, generator=random)
            if int8:
                scale[places] = x.abs().amax(-1) / 127
                x = (x / scale[places][..., None]).round()
            pool[places] = x.to(pool.dtype)
        pools.append(pool.to(device))
        scales.append(scale.to(device) if int8 else None)
    for row, (length, blocks) in enumerate(zip(lengths, rows)):
        first = 0 if window is None else max(0, length - window)
        for i, block in enumerate(blocks):
            if (i + 1) * P > first:
                tables[row, i] = block
    k, v = (pools[0], pools[0][..., :value_dim]) if value_dim else pools
    return World(
        q.to(device), k, v, tables.to(device), torch.tensor(lengths, dtype=torch.int32, device=device), D**-0.5,
        scales[0], scales[-1], window,
    )  # fmt: skip
