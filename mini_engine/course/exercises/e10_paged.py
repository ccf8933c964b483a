"""Lesson 10, decode attention through a block table: a program a query head."""

from __future__ import annotations

from typing import Any

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises.answers10_paged import paged_decode
from mini_engine.course.kernel_cases import Cache, attends, compiles_decode, finds_far_blocks
from mini_engine.course.planted import planted
from mini_engine.kernels import paged_gqa_decode

WHOLE, GROUPS, SEVERAL, LARGE, TAIL, HALF, FAR, EMPTY, COMPILES = (
    "whole tiles, in blocks that do not touch",
    "query head h reads K/V head h // group",
    "several sequences, each with its own table and length",
    "large scores, and scores far below 0",
    "unused slots and table tails are never read",
    "float16 pools: products and sums are float32",
    "a block more than 2^31 numbers away is found",
    "a context of 0 tokens gives zeros",
    "compiles for a GPU",
)
LARGE_SCORES = (
    Cache((64,), (1, 1), page=16, sharp=60.0),
    Cache((128,), (1, 1), page=16, sharp=60.0, loud=0.1),
    Cache((128,), (1, 1), page=16, sharp=60.0, loud=9.0),
    Cache((64,), (1, 1), page=16, sharp=900.0, below=True),
)
HALVES = (
    Cache((64,), (1, 1), page=16, keys=100.0, half=True),
    Cache((1024,), (1, 1), page=16, sharp=0.0, tall=100.0, half=True),
)
K = "k = tl.load(k_ptr + at[:, None] + d[None, :], mask=tile, other=0.0).to(tl.float32)"
V = "v = tl.load(v_ptr + at[:, None] + d[None, :], mask=tile, other=0.0)"
PAGE = "page = tl.load(table_ptr + row * table_stride + n // PAGE, mask=live, other=0).to(tl.int64)"


def _instead(*changes: tuple[str, str]) -> Any:
    return planted(paged_decode, *changes)


PAGED = Exercise(
    id="10.paged",
    title="Through the block table",
    reference=paged_decode,
    seconds=60.0,
    properties=[
        Property(WHOLE, attends(Cache((64,), (1, 1), page=16), Cache((128,), (1, 1), page=16, loud=0.5))),
        Property(GROUPS, attends(Cache((64,), (2, 2), page=16), Cache((64,), (6, 2), page=16))),
        Property(SEVERAL, attends(Cache((64, 128), (1, 1), page=16))),
        Property(LARGE, attends(*LARGE_SCORES)),
        Property(TAIL, attends(Cache((1,), (1, 1)), Cache((5,), (1, 1)), Cache((7,), (2, 2), page=1, size=10), Cache((5, 66), (2, 2)))),
        Property(HALF, attends(*HALVES)),
        Property(FAR, finds_far_blocks((2, 2))),
        Property(EMPTY, attends(Cache((0,), (1, 1)), Cache((0, 3)))),
        Property(COMPILES, compiles_decode),
    ],
    mutants=[
        Mutant("as if in one run", _instead((PAGE, "page = (n // PAGE).to(tl.int64)")), WHOLE, "The table says which block comes at that index."),
        Mutant("no offset", _instead((" + n % PAGE * stride_p", "")), WHOLE, "That is the first slot of the block."),
        Mutant("a block is one row", _instead(("page * stride_n", "page * stride_p")), WHOLE, "From block to block it is stride_n."),
        Mutant("values from the keys", _instead((V, V.replace("v_ptr", "k_ptr"))), WHOLE, "V lies in a pool of its own."),
        Mutant("the values do not shrink", _instead(("out * shrink +", "out +")), WHOLE, "What was summed is relative to the old maximum."),
        Mutant("the first table for all", _instead((PAGE, PAGE.replace("row * table_stride + ", ""))), SEVERAL, "Each sequence has a row of its own."),
        Mutant("the first length for all", _instead(("tl.load(length_ptr + row)", "tl.load(length_ptr)")), SEVERAL, "Contexts are ragged."),
        Mutant("queries side by side", _instead(("row * q_stride_b", "row * out_stride_b")), SEVERAL, "q is a view: its rows do not touch."),
        Mutant("heads in turn", _instead(("h // GROUP * stride_k", "h % 2 * stride_k")), GROUPS, "A group are neighbours."),
        Mutant("no maximum", _instead(("weights = tl.exp(s - new_top)", "weights = tl.exp(s)"), ("shrink = tl.exp(top - new_top)", "shrink = 1.0")), LARGE, "e to the 90 is more than a float32 holds."),
        Mutant("the maximum of the first tile", _instead(("new_top = tl.maximum(top, tl.max(s, 0))", "new_top = tl.where(start == 0, tl.max(s, 0), top)")), LARGE, "A later score may be larger by far."),
        Mutant("the maximum of the tile", _instead(("new_top = tl.maximum(top, tl.max(s, 0))", "new_top = tl.max(s, 0)")), LARGE, "A maximum that falls lets old weights grow without bound."),
        Mutant("the maximum starts at 0", _instead(('top = float("-inf")', "top = 0.0")), LARGE, "If all scores are far below, all weights vanish."),
        Mutant("keys without a mask", _instead((K, K.replace("mask=tile", "mask=(d < D)[None, :]"))), TAIL, "What is thrown away has been fetched, and may be anybody's."),
        Mutant("products in float16", _instead(("other=0.0).to(tl.float32)\n    length", "other=0.0)\n    length"), (K, K.replace(".to(tl.float32)", ""))), HALF, "q, k and their product have 11 bits then. Widen what you load."),
        Mutant("the sum in float16", _instead(("tl.sum(weights[:, None] * v, 0)\n", "tl.sum(weights[:, None] * v, 0)\n        out = out.to(q_ptr.dtype.element_ty).to(tl.float32)\n")), HALF, "A float16 ends at 65,504, and keeps 11 bits."),
        Mutant("0 times NaN", _instead((V, V.replace("mask=tile", "mask=(d < D)[None, :]"))), TAIL, "A weight of 0 does not hide a NaN."),
        Mutant("whole blocks", _instead(("live = n < length", "live = n < tl.cdiv(length, PAGE) * PAGE")), TAIL, "The last block holds slots without a token."),
        Mutant("whole tiles only", _instead(("range(0, length, BLOCK_N)", "range(0, length - BLOCK_N + 1, BLOCK_N)")), TAIL, "The last tokens count too."),
        Mutant("reads the table's tail", _instead((PAGE, PAGE.replace(", mask=live, other=0", ""))), TAIL, "Behind the table lies something else."),
        Mutant("no other", _instead((K, K.replace(", other=0.0", "")), ("tl.where(live, tl.sum(q[None, :] * k, 1) * scale, float(\"-inf\"))", "tl.sum(q[None, :] * k, 1) * scale + tl.where(live, 0.0, float(\"-inf\"))")), TAIL, "A masked lane without `other` holds anything."),
        Mutant("32-bit offsets", _instead((PAGE, PAGE.replace(".to(tl.int64)", ""))), FAR, "Block times stride overflows, and points before the pool."),
        Mutant("64 bits too late", _instead((PAGE, PAGE.replace(".to(tl.int64)", "")), ("page * stride_n", "(page * stride_n).to(tl.int64)")), FAR, "The product has overflowed before it is widened."),
        Mutant("divides by nothing", _instead(("tl.where(total == 0.0, 1.0, total)", "total")), EMPTY, "0 / 0 is NaN."),
        Mutant("nothing for nothing", _instead(('top = float("-inf")', 'if length == 0:\n        return\n    top = float("-inf")')), EMPTY, "What is not stored keeps what was in memory."),
        Mutant("a number becomes a tile", _instead(("out = tl.zeros([BLOCK_D], tl.float32)", "out = 0.0")), COMPILES, "A variable keeps its shape from turn to turn of a loop."),
    ],
    alternatives=[paged_gqa_decode],
)  # fmt: skip
