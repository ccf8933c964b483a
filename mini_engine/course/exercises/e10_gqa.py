"""Lesson 10, a program a group: matrix products with padded rows, each number of the cache read once, a window."""

from __future__ import annotations

from typing import Any

import torch

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises.answers10_gqa import gqa_decode
from mini_engine.course.exercises.answers10_paged import paged_decode
from mini_engine.course.exercises.e10_paged import HALVES, LARGE_SCORES
from mini_engine.course.expect import expect
from mini_engine.course.kernel_cases import Cache, attends, compiles_decode, finds_far_blocks
from mini_engine.course.kernel_watch import watched
from mini_engine.course.planted import planted
from mini_engine.kernels import is_interpreted, paged_gqa_decode


def _reads_once(candidate: Any) -> None:
    """Counted by the interpreter: what is loaded of the pools, against K and V of all tokens once."""
    if not is_interpreted():
        return
    from mini_engine.kernels.traffic import traffic

    for cache in (Cache((64,), (4, 1), page=16), Cache((5, 70), (8, 2))):
        q, k_pool, v_pool, tables, lengths = cache.tensors()
        with watched(), traffic() as launches:
            candidate(q, k_pool, v_pool, tables, lengths, cache.scale)
        loaded = 0
        for launch in launches:
            pools = {
                name
                for name, x in launch.arguments.items()
                if isinstance(x, torch.Tensor) and x.data_ptr() in (k_pool.data_ptr(), v_pool.data_ptr())
            }
            loaded += sum(launch.loaded.get(name, 0) for name in pools)
        least = 2 * sum(cache.lengths) * cache.heads[1] * cache.size * 4
        expect(loaded == least, f"{cache}: bytes loaded from the two pools", expected=f"{least:,}", got=f"{loaded:,}")


GROUP, PADDED, LARGE, UNLIKE, RAGGED, ONCE, WINDOW, HALF, FAR, EMPTY, COMPILES = (
    "the heads of a group read one K/V head",
    "rows of padding are stored nowhere",
    "large scores, and scores far below 0",
    "each head of a group has its own maximum",
    "ragged contexts, unused slots, table tails, odd sizes",
    "each number of K and V is read once",
    "a window keeps the last tokens, the newest included",
    "float16 pools: sums are float32",
    "a block more than 2^31 numbers away is found",
    "a context of 0 tokens gives zeros",
    "compiles for a GPU",
)
V = "v = tl.load(v_ptr + at[:, None] + d[None, :], mask=tile, other=0.0)"
PAGE = "page = tl.load(table_ptr + row * table_stride + n // PAGE, mask=live, other=0).to(tl.int64)"
FIRST = "first = tl.maximum(length - WINDOW, 0)"


def _pads(candidate: Any) -> None:
    """In either order of the programs: a row that is no head of the group must not be seen in a neighbour's."""
    for backwards in (False, True):
        caches = Cache((64,), (4, 1), page=16), Cache((64,), (4, 2), page=16), Cache((64,), (20, 1), page=16)
        attends(*caches, backwards=backwards)(candidate)


def _instead(*changes: tuple[str, str]) -> Any:
    return planted(gqa_decode, *changes)


def _a_head_at_a_time(
    q: Any, k_pool: Any, v_pool: Any, block_tables: Any, context_lens: Any, scale: float, *, window: Any = None
) -> Any:
    return paged_decode(q, k_pool, v_pool, block_tables, context_lens, scale)


GQA = Exercise(
    id="10.gqa",
    title="A program for a group of heads",
    reference=paged_gqa_decode,
    seconds=60.0,
    properties=[
        Property(GROUP, attends(Cache((64,), (16, 1), page=16, size=16), Cache((128,), (32, 2), page=16, size=16, loud=0.5))),
        Property(PADDED, _pads),
        Property(UNLIKE, attends(Cache((64,), (2, 1), page=16, sharp=60.0), Cache((128,), (4, 2), page=16, sharp=60.0, loud=0.1))),
        Property(LARGE, attends(*LARGE_SCORES)),
        Property(RAGGED, attends(Cache((1,), (1, 1)), Cache((5,), (1, 1)), Cache((7,), (3, 1), page=1, size=10), Cache((1, 5, 66), (6, 2)))),
        Property(ONCE, _reads_once),
        Property(WINDOW, attends(*(Cache((n,), (1, 1), window=w) for n in (5, 70) for w in (1, 6, 64, 200)), Cache((5, 70), (4, 2), window=6))),
        Property(HALF, attends(*HALVES)),
        Property(FAR, finds_far_blocks((4, 2))),
        Property(EMPTY, attends(Cache((0,), (1, 1)), Cache((0, 3), (4, 2)))),
        Property(COMPILES, compiles_decode),
    ],
    mutants=[
        Mutant("one head for all groups", _instead(("kv_head * stride_k", "0 * stride_k")), GROUP, "Each group has a K/V head of its own."),
        Mutant("heads in turn", _instead(("(kv_head * GROUP + g)[:, None]", "(g * (out_stride_b // out_stride_h // GROUP) + kv_head)[:, None]")), GROUP, "A group are neighbours: h = kv_head * GROUP + g."),
        Mutant("padded rows are stored", _instead(("d[None, :], out, mask=rows)", "d[None, :], out, mask=(d < D)[None, :])")), PADDED, "Rows from GROUP on are no heads of this group."),
        Mutant("no padding", _instead(("BLOCK_H=max(16, triton.next_power_of_2(H // K))", "BLOCK_H=triton.next_power_of_2(H // K)")), PADDED, "tl.dot wants 16 rows on a GPU."),
        Mutant("16 rows and no more", _instead(("BLOCK_H=max(16, triton.next_power_of_2(H // K))", "BLOCK_H=16")), PADDED, "A group of 20 needs 32 rows."),
        Mutant("one maximum for all heads", _instead(("tl.maximum(top, tl.max(s, 1))", "tl.maximum(top, tl.max(tl.max(s, 1), 0))")), UNLIKE, "Beside a head with large scores, those of another vanish."),
        Mutant("rows over the neighbour's heads", _instead(("d[None, :], out, mask=rows)", "d[None, :], out, mask=(h < tl.num_programs(0) * GROUP) & (d < D)[None, :])")), PADDED, "Only the order of the programs hides it: the neighbour may be first."),
        Mutant("no maximum", _instead(("new_top = tl.maximum(top, tl.max(s, 1))", "new_top = tl.zeros([BLOCK_H], tl.float32)")), UNLIKE, "e to the 90 is more than a float32 holds."),
        Mutant("the maximum starts at 0", _instead(('tl.full([BLOCK_H], float("-inf"), tl.float32)', "tl.zeros([BLOCK_H], tl.float32)")), LARGE, "If all scores are far below, all weights vanish."),
        Mutant("the sum in float16", _instead(("        top = new_top\n", "        top = new_top\n        out = out.to(v.dtype).to(tl.float32)\n")), HALF, "A float16 ends at 65,504, and keeps 11 bits."),
        Mutant("weights as they are", _instead(("weights.to(v.dtype)", "weights")), HALF, "tl.dot wants two tiles of one type."),
        Mutant("the scale into the query", _instead(("s = tl.dot(q, tl.trans(k), input_precision=\"ieee\") * scale", "s = tl.dot(q * scale, tl.trans(k), input_precision=\"ieee\")")), COMPILES, "q times a float32 is a float32, and k is a float16."),
        Mutant("nothing for nothing", _instead(("    top = tl.full(", "    if length == 0:\n        return\n    top = tl.full(")), EMPTY, "What is not stored keeps what was in memory."),
        Mutant("the values do not shrink", _instead(("out * shrink[:, None] +", "out +")), GROUP, "What was summed is relative to the old maximum."),
        Mutant("0 times NaN", _instead((V, V.replace("mask=tile", "mask=(d < D)[None, :]"))), RAGGED, "A weight of 0 does not hide a NaN."),
        Mutant("reads the table's tail", _instead((PAGE, PAGE.replace(", mask=live, other=0", ""))), RAGGED, "Behind the table lies something else."),
        Mutant("whole tiles only", _instead(("range(first, length, BLOCK_N)", "range(first, length - BLOCK_N + 1, BLOCK_N)")), RAGGED, "The last tokens count too."),
        Mutant("a program a head", _a_head_at_a_time, ONCE, "Each head of the group loads the same tile again."),
        Mutant("no window", _instead(("WINDOW=window or 0", "WINDOW=0")), WINDOW, "Tokens before the window may be gone."),
        Mutant("a window one too wide", _instead((FIRST, FIRST.replace("WINDOW", "WINDOW - 1"))), WINDOW, "A window of w keeps w tokens."),
        Mutant("a window one too narrow", _instead((FIRST, FIRST.replace("WINDOW", "WINDOW + 1"))), WINDOW, "The newest token is one of the w."),
        Mutant("a window below 0", _instead((FIRST, "first = length - WINDOW")), WINDOW, "A context may be shorter than the window."),
        Mutant("32-bit offsets", _instead((PAGE, PAGE.replace(".to(tl.int64)", ""))), FAR, "Block times stride overflows, and points before the pool."),
        Mutant("divides by nothing", _instead(("tl.where(total == 0.0, 1.0, total)", "total")), EMPTY, "0 / 0 is NaN."),
    ],
    alternatives=[gqa_decode],
)  # fmt: skip
