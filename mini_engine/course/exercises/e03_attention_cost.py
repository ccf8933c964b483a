"""Lesson 03, attention of one decode step: its FLOPs and its bytes, for independent and for shared contexts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mini_engine.course.exercise import Exercise, Mutant, Prediction, Property
from mini_engine.course.expect import expect, expect_equal, show
from mini_engine.roofline import attn_decode_intensity

Cost = Callable[..., tuple[int, int]]


def attention_cost(H: int, K: int, D: int, S: int, B: int = 1, shared: bool = False) -> tuple[int, int]:
    """FLOPs and bytes of one layer's attention in a decode step of B sequences of S tokens, at 2 bytes a number."""
    flops = 4 * H * D * S * B
    cache = 2 * 2 * K * D * S * (1 if shared else B)
    query_and_output = 2 * 2 * H * D * B
    return flops, cache + query_and_output


def count_by_loops(H: int, K: int, D: int, S: int, B: int = 1, shared: bool = False) -> tuple[int, int]:
    """The same, by walking over heads and tokens and noting every number that is touched: the oracle."""
    flops = 0
    touched: set[tuple[Any, ...]] = set()
    for b in range(B):
        for h in range(H):
            touched |= {("q", b, h), ("o", b, h)}
            for s in range(S):
                owner = "all" if shared else b
                touched |= {(what, owner, h // (H // K), s) for what in "kv"}
                flops += 2 * D  # q times k
                flops += 2 * D  # weight times v
    return flops, 2 * D * len(touched)


SMALL = [(1, 1, 2, 1), (4, 4, 2, 3), (4, 2, 8, 5), (6, 1, 4, 2)]


def _got(candidate: Cost, *args: Any) -> tuple[Any, Any, str]:
    H, K, D, S, *rest = args
    words = f"H={H}, K={K}, D={D}, S={S}" + "".join(f", {k}={v}" for k, v in zip(("B", "shared"), rest))
    got = candidate(*args)
    pair = isinstance(got, (tuple, list, np.ndarray)) and len(got) == 2
    expect(pair, words, expected="two ints: FLOPs, bytes", got=show(got))
    return got[0], got[1], words


def _flops(candidate: Cost) -> None:
    for case in SMALL:
        flops, _, words = _got(candidate, *case)
        expect_equal(flops, count_by_loops(*case)[0], f"{words}: FLOPs")


def _per_token(candidate: Cost) -> None:
    for H, K, D, S in SMALL:
        (_, one, words), (_, more, _) = _got(candidate, H, K, D, S), _got(candidate, H, K, D, S + 1)
        want = count_by_loops(H, K, D, S + 1)[1] - count_by_loops(H, K, D, S)[1]
        expect_equal(more - one, want, f"{words}: bytes that one more cached token adds")


def _all_bytes(candidate: Cost) -> None:
    for case in SMALL:
        _, moved, words = _got(candidate, *case)
        expect_equal(moved, count_by_loops(*case)[1], f"{words}: bytes")


def _batch(candidate: Cost) -> None:
    for H, K, D, S in SMALL:
        flops, moved, words = _got(candidate, H, K, D, S, 3, False)
        expect_equal((flops, moved), count_by_loops(H, K, D, S, 3), f"{words}: FLOPs and bytes")


def _shared(candidate: Cost) -> None:
    for H, K, D, S in SMALL:
        flops, moved, words = _got(candidate, H, K, D, S, 3, True)
        expect_equal((flops, moved), count_by_loops(H, K, D, S, 3, True), f"{words}: FLOPs and bytes")


def _by_parts(H: int, K: int, D: int, S: int, B: int = 1, shared: bool = False) -> list[int]:
    scores = 2 * D * H * S * B
    contexts = 1 if shared else B
    k = v = 2 * D * K * S * contexts
    q = o = 2 * D * H * B
    return [2 * scores, k + v + q + o]


def _changed(*, flops: Any = None, moved: Any = None) -> Cost:
    """The right answer with one of its two numbers worked out another way."""

    def cost(H: int, K: int, D: int, S: int, B: int = 1, shared: bool = False) -> tuple[int, int]:
        right = attention_cost(H, K, D, S, B, shared)
        args = (H, K, D, S, B, shared)
        return flops(*args) if flops else right[0], moved(*args) if moved else right[1]

    return cost


def _contexts(B: int, shared: bool) -> int:
    return 1 if shared else B


FLOPS, PER_TOKEN = (
    "every query head computes a score and a value for every token",
    "K and V of a token are read once a K/V head",
)
BYTES, BATCH, SHARED = (
    "q is read and the output is written",
    "independent contexts are all read",
    "a shared context is read once",
)

ATTENTION_COST = Exercise(
    id="03.attention_cost",
    title="FLOPs and bytes of attention in a decode step",
    reference=attention_cost,
    properties=[
        Property(FLOPS, _flops),
        Property(PER_TOKEN, _per_token),
        Property(BYTES, _all_bytes),
        Property(BATCH, _batch),
        Property(SHARED, _shared),
    ],
    mutants=[
        Mutant("scores only", _changed(flops=lambda H, K, D, S, B, x: 2 * H * D * S * B), FLOPS, "The weighted sum of the values costs as much again, and a multiply-add is two FLOPs."),
        Mutant("K/V heads compute", _changed(flops=lambda H, K, D, S, B, x: 4 * K * D * S * B), FLOPS, "Each query head has scores of its own."),
        Mutant("query heads read", _changed(moved=lambda H, K, D, S, B, x: 4 * H * D * (S * _contexts(B, x) + B)), PER_TOKEN, "A group of query heads shares one K and one V."),
        Mutant("keys only", _changed(moved=lambda H, K, D, S, B, x: 2 * K * D * S * _contexts(B, x) + 4 * H * D * B), PER_TOKEN, "Values are read too."),
        Mutant("numbers, not bytes", _changed(moved=lambda H, K, D, S, B, x: 2 * K * D * S * _contexts(B, x) + 2 * H * D * B), PER_TOKEN, "A number takes 2 bytes."),
        Mutant("the cache only", _changed(moved=lambda H, K, D, S, B, x: 4 * K * D * S * _contexts(B, x)), BYTES, "The often quoted 4 S D bytes. With few tokens q and the output matter."),
        Mutant("q but no output", _changed(moved=lambda H, K, D, S, B, x: 4 * K * D * S * _contexts(B, x) + 2 * H * D * B), BYTES, "The output is written: as many bytes as q."),
        Mutant("always shared", _changed(moved=lambda H, K, D, S, B, x: 4 * K * D * S + 4 * H * D * B), BATCH, "Every sequence has a cache of its own."),
        Mutant("one q for all", _changed(moved=lambda H, K, D, S, B, x: 4 * K * D * S * _contexts(B, x) + 4 * H * D), BATCH, "Each sequence brings its own query."),
        Mutant("never shared", lambda H, K, D, S, B=1, shared=False: attention_cost(H, K, D, S, B), SHARED, "One reading serves all sequences of a shared context."),
        Mutant("shared work too", _changed(flops=lambda H, K, D, S, B, x: 4 * H * D * S * _contexts(B, x)), SHARED, "Each sequence computes its own scores: only the reading is shared."),
    ],
    alternatives=[_by_parts, count_by_loops],
)  # fmt: skip

BATCH_ATTENTION = Prediction(
    "03.batch_attention",
    "Attention of Llama-3-70B (64 query heads, 8 K/V heads), 8,192 tokens each: FLOP per byte at batch 32?",
    float(attn_decode_intensity(64, 8, 128, 8192)),
    "FLOP/B",
    mistakes=[
        (32, "That holds for weights, which all 32 sequences share. They do not share a cache."),
        (256, "Eight query heads share a K and a V, but 32 sequences share nothing here: 32 caches are read."),
        (1, "That is multi-head attention. Here eight query heads share each K and V."),
        (64, "All 64 query heads would have to share one K and V. Eight share one."),
        (4, "Each K/V pair takes 4 FLOPs a dimension and query head: a score and a value. Count both."),
    ],
    because="64 / 8 = 8, less a little for q and the output: 8192/1025 = 7.992. The batch cancels.",
)
