"""Are the kernels right on this GPU: against float64, with poison wherever nobody may look, and far into a large pool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from gpu.bench import Bench
from gpu.worlds import LATENT_TOLERANCE, NOWHERE, TOLERANCE, World, make_world
from mini_engine.kernels import paged_gqa_decode, paged_mla_decode, write_kv

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
LENGTHS = (0, 1, 15, 16, 17, 200, 1000)
# head size, block size, group, key/value heads
GQA = (
    (32, 1, 3, 3),
    (64, 16, 4, 2),
    (80, 8, 7, 1),
    (96, 32, 1, 5),
    (128, 16, 8, 2),
    (128, 16, 20, 1),
    (256, 256, 16, 1),
)
# heads, latent, rotary key, block size
MLA = ((16, 512, 64, 64), (128, 512, 64, 64), (8, 64, 16, 16))


def gqa(world: World, num_splits: int | None = None) -> torch.Tensor:
    return paged_gqa_decode(
        world.q, world.k, world.v, world.tables, world.lengths, world.scale, num_splits=num_splits,
        window=world.window, k_scale=world.k_scale, v_scale=world.v_scale,
    )  # fmt: skip


def mla(world: World, num_splits: int | None = None) -> torch.Tensor:
    q_latent, q_rope = world.q.tensor_split([world.v.shape[-1]], dim=-1)
    scale = None if world.k_scale is None else world.k_scale[..., 0]
    return paged_mla_decode(
        q_latent, q_rope, world.k[:, :, 0], world.tables, world.lengths, world.scale, num_splits=num_splits,
        latent_scale=scale,
    )  # fmt: skip


def cases(dry: bool) -> list[dict[str, Any]]:
    """What differs from case to case; all of it is in the row."""
    options = [
        dict(zip(("dtype", "num_splits", "window", "int8"), each))
        for each in [(BF16, 1, None, False), (FP16, 5, None, False), (FP32, None, None, False), (BF16, 3, 70, True)]
    ]
    shapes: list[dict[str, Any]] = [{"kernel": "gqa", "D": D, "P": P, "G": G, "K": K} for D, P, G, K in GQA]
    latent = [{"kernel": "mla", "D": Dc + Dr, "Dv": Dc, "P": P, "G": H, "K": 1} for H, Dc, Dr, P in MLA]
    if dry:  # as many, and small: one tile
        shapes = [{**shape, "D": 32, "P": 4, "G": 2, "K": 1} for shape in shapes]
        latent = [{**shape, "D": 32, "Dv": 16, "P": 4, "G": 2} for shape in latent]
    found = [{**shape, **option} for shape in shapes for option in options]
    return found + [{**shape, **option, "window": None} for shape in latent for option in options]


def correctness(bench: Bench, seconds: float) -> None:
    every = cases(bench.dry)
    for number, case in enumerate(bench.within("correct", every, seconds)):
        bench.attempt(
            "correct", {**case, "dtype": str(case["dtype"])[6:]}, lambda case=case, seed=number: one(bench, case, seed)
        )
    bench.attempt("correct", {"kernel": "gqa", "pool": "far blocks"}, lambda: far_blocks(bench))
    for int8 in (False, True):
        bench.attempt("correct", {"kernel": "write_kv", "int8": int8}, lambda int8=int8: writes(bench, int8))


def one(bench: Bench, case: dict[str, Any], seed: int) -> dict[str, Any]:
    lengths = (0, 1, 5, 9) if bench.dry else LENGTHS
    world = make_world(
        lengths, bench.device, P=case["P"], K=case["K"], G=case["G"], D=case["D"], dtype=case["dtype"],
        int8=case["int8"], window=case["window"], value_dim=case.get("Dv"), seed=seed,
    )  # fmt: skip
    out = (mla if "Dv" in case else gqa)(world, case["num_splits"])
    tolerance = (LATENT_TOLERANCE if "Dv" in case else TOLERANCE)[case["dtype"]]
    return verdict(world.error(out), tolerance)


def verdict(error: float, tolerance: float) -> dict[str, Any]:
    return {"error": error, "allowed": tolerance, "right": error <= tolerance}


def far_blocks(bench: Bench) -> dict[str, Any]:
    """The blocks of a small world, at the end of a pool of more than 2^31 numbers (of a small one in a dry run)."""
    near = make_world(
        (100, 1, 60), bench.device, P=16, K=8, G=1 if bench.dry else 4, D=32 if bench.dry else 128, dtype=BF16
    )
    N, P, K, D = near.k.shape
    blocks = N + 5 if bench.dry else 2**31 // (P * K * D) + N + 1
    first = blocks - N
    pools = [torch.empty(blocks, P, K, D, dtype=BF16, device=bench.device) for _ in range(2)]
    for pool, small in zip(pools, (near.k, near.v)):
        pool[first:] = small
    tables = torch.where(near.tables == NOWHERE, near.tables, near.tables + first)
    far = replace(near, k=pools[0], v=pools[1], tables=tables)
    return {
        "numbers": pools[0].numel(),
        **verdict(max(near.error(gqa(far, splits)) for splits in (1, 3)), TOLERANCE[BF16]),
    }


def writes(bench: Bench, int8: bool) -> dict[str, Any]:
    """Every row in its slot, skipped ones nowhere, the rest of the pool as it was."""
    T, P, K, D = (5, 4, 2, 16) if bench.dry else (300, 16, 8, 128)
    N = 2 * T // P + 2
    new = torch.randn(2, T, K, D, device=bench.device).bfloat16()
    slots = torch.randperm(N * P)[:T].to(bench.device)
    slots[::4] = -1
    pools = torch.full((2, N, P, K, D), 7, dtype=torch.int8 if int8 else BF16, device=bench.device)
    scales = torch.full((2, N, P, K), 7.0, device=bench.device)
    given = {"k_scale": scales[0], "v_scale": scales[1]} if int8 else {}
    write_kv(new[0], new[1], pools[0], pools[1], slots, **given)
    wanted, wanted_scales = torch.full_like(pools, 7), torch.full_like(scales, 7.0)
    live = slots >= 0
    x = new[:, live]
    if int8:
        size = x.float().abs().amax(-1) / 127
        wanted_scales.view(2, -1, K)[:, slots[live]] = size
        x = (x.float() / size[..., None]).round().to(torch.int8)
    wanted.view(2, -1, K, D)[:, slots[live]] = x
    # A GPU may divide by 127 as it multiplies by 1/127: the last bit of a scale, and a code at a tie, may differ.
    off = (pools.float() - wanted.float()).abs().max().item() if int8 else float(not torch.equal(pools, wanted))
    right = off <= int8 and (not int8 or torch.allclose(scales, wanted_scales, rtol=1e-6))
    return {"error": off, "right": bool(right)}
