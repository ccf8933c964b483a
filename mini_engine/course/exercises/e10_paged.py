"""Lesson 10, decode attention through a block table: a program a query head."""

from __future__ import annotations

from typing import Any

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises.answers10_paged import paged_decode
from mini_engine.course.kernel_cases import Cache, attends, finds_far_blocks
from mini_engine.course.planted import planted
from mini_engine.kernels import paged_gqa_decode

WHOLE, SEVERAL, GROUPS, TAIL, FAR, EMPTY = (
    "whole tiles, in blocks that do not touch",
    "several sequences, each with its own table and length",
    "query head h reads K/V head h // group",
    "unused slots and table tails are never read",
    "a block more than 2^31 numbers away is found",
    "a context of 0 tokens gives zeros",
)
K = "k = tl.load(k_ptr + at[:, None] + d[None, :], mask=tile, other=0.0)"
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
        Property(WHOLE, attends(Cache((64,), (1, 1), page=16), Cache((128,), (2, 2), page=16, loud=0.5))),
        Property(SEVERAL, attends(Cache((64, 128), (1, 1), page=16))),
        Property(GROUPS, attends(Cache((64,), (6, 2), page=16))),
        Property(TAIL, attends(Cache((1,)), Cache((5, 66)), Cache((7,), page=1, size=10))),
        Property(FAR, finds_far_blocks((2, 2))),
        Property(EMPTY, attends(Cache((0, 3)))),
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
        Mutant("0 times NaN", _instead((V, V.replace("mask=tile", "mask=(d < D)[None, :]"))), TAIL, "A weight of 0 does not hide a NaN."),
        Mutant("whole blocks", _instead(("live = n < length", "live = n < tl.cdiv(length, PAGE) * PAGE")), TAIL, "The last block holds slots without a token."),
        Mutant("whole tiles only", _instead(("range(0, length, BLOCK_N)", "range(0, length - BLOCK_N + 1, BLOCK_N)")), TAIL, "The last tokens count too."),
        Mutant("reads the table's tail", _instead((PAGE, PAGE.replace(", mask=live, other=0", ""))), TAIL, "Behind the table lies something else."),
        Mutant("no other", _instead((K, K.replace(", other=0.0", "")), ("tl.where(live, tl.sum(q[None, :] * k, 1) * scale, float(\"-inf\"))", "tl.sum(q[None, :] * k, 1) * scale + tl.where(live, 0.0, float(\"-inf\"))")), TAIL, "A masked lane without `other` holds anything."),
        Mutant("32-bit offsets", _instead((PAGE, PAGE.replace(".to(tl.int64)", ""))), FAR, "Block times stride overflows, and points before the pool."),
        Mutant("64 bits too late", _instead((PAGE, PAGE.replace(".to(tl.int64)", "")), ("page * stride_n", "(page * stride_n).to(tl.int64)")), FAR, "The product has overflowed before it is widened."),
        Mutant("divides by nothing", _instead(("tl.where(total == 0.0, 1.0, total)", "total")), EMPTY, "0 / 0 is NaN."),
    ],
    alternatives=[paged_gqa_decode],
)  # fmt: skip
