"""Decode attention over batch sizes, contexts and heads, timed against the ceilings and against what else there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from gpu.bench import Bench
from gpu.correct import gqa, mla, verdict
from gpu.worlds import LATENT_TOLERANCE, TOLERANCE, World

BF16 = torch.bfloat16
POOL_SHARE = 0.55  # of the memory that is free: the largest cases are left out where it is too little
# What a dry run has instead of each size.
TINY = {1: 1, 8: 1, 32: 2, 128: 2, 1024: 5, 8192: 17, 32768: 18, 131072: 30}


def gqa_sweep(bench: Bench, seconds: float) -> None:
    """K 8, D 128, blocks of 16: groups of 1, 4, 8; the splits that the engine chooses, and for one sequence also one."""
    K, D, P = (2, 64, 16) if bench.dry else (8, 128, 16)
    cases = [
        (B, S, G, num_splits)
        for S in (8192, 1024, 32768, 131072)
        for B in (1, 8, 32, 128)
        for G in (4, 8, 1)
        for num_splits in ((None, 1) if B == 1 and G == 4 else (None,))
    ]
    memory = pool_memory(bench, max(B * S for B, S, *_ in cases) * K * D, arrays=2)
    for case in bench.within("gqa", cases, seconds):
        B, S, G, num_splits = tiny(bench, *case)
        about = {"B": B, "context": S, "G": G, "num_splits": num_splits or "chosen"}
        bench.attempt("gqa", about, lambda: gqa_row(bench, memory, B, S, G, K, D, P, num_splits))  # noqa: B023


def gqa_row(
    bench: Bench, memory: list[torch.Tensor], B: int, S: int, G: int, K: int, D: int, P: int, num_splits: int | None
) -> dict[str, Any]:
    k, v = (paged(array, B, S, P, K, D) for array in memory)
    world = World(random(bench, B, K * G, D), k, v, tables_of(bench, B, S, P), lengths_of(bench, B, S), D**-0.5)
    found = verdict(world.error(gqa(world, num_splits), ends(B)), TOLERANCE[BF16])
    if not found["right"]:
        return found
    num_bytes, flops = 2 * B * S * K * D * 2, 4 * B * S * K * G * D
    found |= bench.rates(bench.seconds(lambda: gqa(world, num_splits)), num_bytes, flops)
    if num_splits is None:
        # The same memory as keys and values that lie side by side. All queries of a group see all keys, so they can go in
        # as a sequence of queries: that needs no copy of K/V for each head.
        keys, values = (array[: B * K * S * D].view(B, K, S, D) for array in memory)
        q = world.q.view(B, K, G, D)
        found["SDPA us"] = other(bench, lambda: F.scaled_dot_product_attention(q, keys, values))
        found["FlashInfer us"] = flashinfer(bench, world, S)
    return found


def mla_sweep(bench: Bench, seconds: float) -> None:
    """Latents of 512 with rotary keys of 64, blocks of 64; 16 heads and 128."""
    Dc, Dr, P = (16, 16, 16) if bench.dry else (512, 64, 64)
    cases = [(B, S, H) for S in (8192, 1024, 32768) for H in (16, 128) for B in (1, 8, 32, 128)]
    memory = pool_memory(bench, max(B * S for B, S, _ in cases) * (Dc + Dr), arrays=1)
    for case in bench.within("mla", cases, seconds):
        B, S, H = tiny(bench, *case)
        bench.attempt("mla", {"B": B, "context": S, "H": H}, lambda: mla_row(bench, memory[0], B, S, H, Dc, Dr, P))  # noqa: B023


def mla_row(bench: Bench, memory: torch.Tensor, B: int, S: int, H: int, Dc: int, Dr: int, P: int) -> dict[str, Any]:
    pool = paged(memory, B, S, P, 1, Dc + Dr)
    q = random(bench, B, H, Dc + Dr)
    world = World(q, pool, pool[..., :Dc], tables_of(bench, B, S, P), lengths_of(bench, B, S), (Dc + Dr) ** -0.5)
    found = verdict(world.error(mla(world), ends(B)), LATENT_TOLERANCE[BF16])
    if not found["right"]:
        return found
    num_bytes, flops = B * S * (Dc + Dr) * 2, 2 * B * S * H * (2 * Dc + Dr)
    return found | bench.rates(bench.seconds(lambda: mla(world)), num_bytes, flops)


def pool_memory(bench: Bench, most: int, arrays: int) -> list[torch.Tensor]:
    """Flat bfloat16 memory for the largest case that fits, filled with random numbers once."""
    if bench.dry:
        most = 1 << 16
    else:
        torch.cuda.empty_cache()
        most = min(most, int(POOL_SHARE * torch.cuda.mem_get_info()[0]) // (2 * arrays))
    memory = [torch.empty(most, dtype=BF16, device=bench.device) for _ in range(arrays)]
    for array in memory:
        for part in array.split(1 << 28):
            part.normal_()
    return memory


def paged(memory: torch.Tensor, B: int, S: int, P: int, K: int, D: int) -> torch.Tensor:
    """The first blocks of the memory as a pool, as many as the case needs. MemoryError where there are not as many."""
    N = B * -(-S // P)
    if len(memory) < N * P * K * D:
        raise MemoryError(
            f"{N * P * K * D / 2**30:.0f} Gi numbers, and this GPU has room for {len(memory) / 2**30:.0f}"
        )
    return memory[: N * P * K * D].view(N, P, K, D)


def tables_of(bench: Bench, B: int, S: int, P: int) -> torch.Tensor:
    """Blocks in random order."""
    blocks = -(-S // P)
    return torch.randperm(B * blocks, device=bench.device).to(torch.int32).view(B, blocks)


def lengths_of(bench: Bench, B: int, S: int) -> torch.Tensor:
    return torch.full((B,), S, dtype=torch.int32, device=bench.device)


def random(bench: Bench, *shape: int) -> torch.Tensor:
    return torch.randn(shape, device=bench.device).to(BF16)


def ends(B: int) -> list[int]:
    """Which sequences are compared with float64, the first and the last: all would take longer than what is timed."""
    return sorted({0, B - 1})


def tiny(bench: Bench, *case: int | None) -> tuple[Any, ...]:
    """B and S of a dry run, the rest as it is."""
    return (TINY[case[0]], TINY[case[1]], *case[2:]) if bench.dry else case


def other(bench: Bench, run: Callable[[], object]) -> float | str | None:
    """Microseconds of somebody else's kernel, or why there are none."""
    try:
        seconds = bench.seconds(run)
    except Exception as error:
        return f"{type(error).__name__}"
    return None if seconds is None else round(seconds * 1e6, 1)


def flashinfer(bench: Bench, world: World, S: int) -> float | str | None:
    """FlashInfer's paged decode on the same pool and tables, where it is installed. None where it is not."""
    try:
        from flashinfer import BatchDecodeWithPagedKVCacheWrapper
    except ImportError:
        return None
    (B, H, D), (_, P, K, _), blocks = world.q.shape, world.k.shape, world.tables.shape[1]
    try:
        workspace = torch.empty(128 << 20, dtype=torch.uint8, device=bench.device)
        wrapper = BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=H // K >= 4)
        starts = torch.arange(B + 1, dtype=torch.int32, device=bench.device) * blocks
        last = torch.full((B,), (S - 1) % P + 1, dtype=torch.int32, device=bench.device)
        wrapper.plan(starts, world.tables.flatten(), last, H, K, D, P, q_data_type=BF16, kv_data_type=BF16)
    except Exception as error:
        return f"{type(error).__name__}"
    return other(bench, lambda: wrapper.run(world.q, (world.k, world.v)))
