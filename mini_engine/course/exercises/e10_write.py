"""Lesson 10, new K and V into their slots, by a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers10_write as answers
from mini_engine.course.expect import expect, expect_close, in_case
from mini_engine.course.kernel_cases import FAR as FAR_BLOCK
from mini_engine.course.kernel_cases import reserved
from mini_engine.course.kernel_compile import compiles
from mini_engine.course.kernel_watch import watched
from mini_engine.course.planted import planted
from mini_engine.kernels import is_interpreted, kernel_device, write_kv

SHAPE = (5, 4, 2, 6)  # blocks, slots, heads, size


def _new(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V of some tokens as views, k of what one product made of q, k and v, and v of a tensor with other strides."""
    rng = np.random.default_rng(count)
    made, wide = (rng.normal(size=(count, heads, size)).astype(np.float32) for heads, size in ((8, 6), (3, 9)))
    k, v = (torch.from_numpy(each).to(kernel_device()) for each in (made, wide))
    return k[:, 4:6], v[:, 1:, :6]


def _writes(*mappings: Sequence[int], others: bool = False) -> Callable[[Any], None]:
    """Write by each mapping, then look at its slots, or at all others."""

    def run(candidate: Any) -> None:
        for slots in mappings:
            new = _new(len(slots))
            filled = torch.arange(float(np.prod(SHAPE))).reshape(SHAPE).to(kernel_device())
            pools = filled + 1000.0, filled + 5000.0
            with in_case(f"pools of 5 blocks of 4, 2 heads of size 6, slots {list(slots)}"), watched():
                candidate(*new, *pools, torch.tensor(slots, dtype=torch.int64).to(kernel_device()))
            for name, tokens, pool, offset in zip("KV", new, pools, (1000.0, 5000.0)):
                for slot in range(SHAPE[0] * SHAPE[1]):
                    if (slot in slots) == others:
                        continue
                    place = slot // SHAPE[1], slot % SHAPE[1]
                    want = filled[place] + offset if others else tokens[slots.index(slot)]
                    kind = "not written to" if others else "written to"
                    case = f"pools of 5 blocks of 4, slots {list(slots)}\n{name} in slot {slot}, which is {kind}"
                    expect_close(pool[place].cpu().numpy(), want.cpu().numpy(), case, rtol=0)

    return run


def _skips(candidate: Any) -> None:
    for others in (False, True):
        _writes([6, -1], [-1, 9, -1, 4], [-1], others=others)(candidate)


def _far(candidate: Any) -> None:
    pools = [reserved(2, 6) for _ in "kv"]
    if not is_interpreted() or None in pools:
        return
    k, v = (x.half() for x in _new(1))
    with watched():
        candidate(k, v, *pools, torch.tensor([FAR_BLOCK * 4 + 2]))
    for name, x, pool in zip("KV", (k, v), pools):
        got = pool[FAR_BLOCK, 2].float().numpy()  # type: ignore[index]
        case = f"{name} in slot 2 of block {FAR_BLOCK}, {2**28:,} numbers from block to block"
        expect(bool((got == x[0].float().numpy()).all()), case, expected=x[0].float().numpy(), got=got)


def _call(candidate: Any) -> None:
    half = {"dtype": torch.float16, "device": kernel_device()}
    made, pools = torch.zeros((2, 48, 128), **half), torch.zeros((2, 5, 16, 8, 128), **half)  # type: ignore[call-overload]
    candidate(made[:, 32:40], made[:, 40:], *pools, torch.zeros(2, dtype=torch.int64, device=kernel_device()))


LANDS, FIRST, OTHERS, SKIPPED, FAR, COMPILES = (
    "K and V of each token land in its slot",
    "slot 0 is a slot like any other",
    "all other slots keep what they held",
    "a slot of -1 is skipped",
    "a block more than 2^31 numbers away is found",
    "compiles for a GPU",
)
STORE_V, STORED = "tl.store(v_pool_ptr + at, v, mask=stored)", "stored = (d < D) & (slot >= 0)"


def _instead(*changes: tuple[str, str]) -> Any:
    return planted(answers.write_kv, *changes)


WRITE_KV = Exercise(
    id="10.write_kv",
    title="New K and V into their slots",
    reference=write_kv,
    may_change=("k_pool", "v_pool"),
    seconds=60.0,
    properties=[
        Property(LANDS, _writes([6], [4, 6, 9, 15], [7, 9], [13, 2, 18])),
        Property(FIRST, _writes([0], [5, 0])),
        Property(OTHERS, _writes([6], [13, 2, 17], others=True)),
        Property(SKIPPED, _skips),
        Property(FAR, _far),
        Property(COMPILES, compiles(_call)),
    ],
    mutants=[
        Mutant("keys twice", _instead((STORE_V, STORE_V.replace("at, v", "at, k"))), LANDS, "The values are lost."),
        Mutant("values by the keys' stride", _instead(("v_ptr + t * v_stride_t + h * v_stride_h", "v_ptr + t * k_stride_t + h * k_stride_h")), LANDS, "K and V are two views, and each has its strides."),
        Mutant("above 0", _instead((STORED, STORED.replace(">= 0", "> 0"))), FIRST, "Only -1 is padding."),
        Mutant("a number becomes a tile", _instead(("slot = tl.load(slot_ptr + t)", "slot = tl.load(slot_ptr + t)\n    for _ in range(2):\n        slot = tl.maximum(slot, slot + d * 0)")), COMPILES, "A variable keeps its shape from turn to turn of a loop."),
        Mutant("block and offset swapped", _instead(("slot // PAGE * stride_n + slot % PAGE * stride_p", "slot % PAGE * stride_n + slot // PAGE * stride_p")), LANDS, "The quotient is the block, the rest the offset."),
        Mutant("tokens side by side", _instead(("t * k_stride_t", "t * 2 * D")), LANDS, "k is a view: the next token lies behind q and v."),
        Mutant("one head", _instead(("+ h * stride_k + d", "+ d")), LANDS, "Each head has its own place in a slot."),
        Mutant("the token's number for its slot", _instead(("slot = tl.load(slot_ptr + t)", "slot = t + 0 * tl.load(slot_ptr + t)")), LANDS, "The mapping says where."),
        Mutant("whole tiles are stored", _instead(("tl.store(k_pool_ptr + at, k, mask=stored)", "tl.store(k_pool_ptr + at, k, mask=(slot >= 0) & (d < BLOCK_D))")), LANDS, "The tile has 8 lanes, a head 6 numbers."),
        Mutant("the last head's whole tile", _instead(("tl.store(k_pool_ptr + at, k, mask=stored)", "tl.store(k_pool_ptr + at, k, mask=(slot >= 0) & ((d < D) | (h == 1)))")), OTHERS, "What lies behind is the next slot."),
        Mutant("padding into a slot", _instead((STORED, "stored = d < D"), ("slot = tl.load(slot_ptr + t)", "slot = tl.maximum(tl.load(slot_ptr + t), 0)")), SKIPPED, "Slot 0 is a slot. Padding must not be stored."),
        Mutant("stores at -1", _instead((STORED, "stored = d < D")), SKIPPED, "That lies before the pool."),
        Mutant("32-bit slots", _instead(("slot = tl.load(slot_ptr + t)", "slot = tl.load(slot_ptr + t).to(tl.int32)")), FAR, "Block times stride overflows, and points before the pool."),
    ],
    alternatives=[answers.write_kv],
)  # fmt: skip
