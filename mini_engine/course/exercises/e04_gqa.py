"""Lesson 04, grouped attention in place: what a right answer satisfies, and the wrong ones that people write."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from mini_engine.attention import causal_attention
from mini_engine.course.exercise import Exercise, Mutant, Prediction, Property
from mini_engine.course.exercises import answers04_gqa as answers
from mini_engine.course.exercises.attention_cases import (
    every_digit,
    large_scores,
    mask_holds,
    offset_by_name_and_left_out,
    slow_attention,
    tokens_seen,
)
from mini_engine.course.exercises.memory04 import expect_frugal
from mini_engine.course.expect import expect, expect_close, expect_equal

Array = np.ndarray
Attention = Callable[..., Array]


def _tensors(T: int, S: int, H: int, K: int, D: int = 3) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(T + 10 * S + 100 * H + 1000 * K)
    return rng.normal(size=(T, H, D)), rng.normal(size=(S, K, D)), rng.normal(size=(S, K, D))


def _words(q: Array, k: Array, offset: int) -> str:
    return f"q {q.shape}, k and v {k.shape}, offset {offset}"


def _answer(candidate: Attention, q: Array, k: Array, v: Array, scale: float, offset: int) -> Array:
    with np.errstate(all="ignore"):
        got = candidate(q, k, v, scale, offset)
    expect(type(got) is np.ndarray and got.shape == q.shape, _words(q, k, offset), expected=f"shape {q.shape}", got=got)
    return got


def _who_shares(candidate: Attention) -> None:
    for H, K in ((4, 2), (6, 3), (6, 2), (3, 3)):
        q, k, v = _tensors(1, 3, H, K)
        before = _answer(candidate, q, k, v, 1.0, 2).copy()
        for head in range(K):
            changed_k, changed_v = k.copy(), v.copy()
            changed_k[:, head] += 1.0
            changed_v[:, head] -= 9.0
            after = _answer(candidate, q, changed_k, changed_v, 1.0, 2)
            moved = [h for h in range(H) if not np.allclose(before[0, h], after[0, h], rtol=0, atol=1e-9)]
            share = list(range(head * (H // K), (head + 1) * (H // K)))
            words = f"{H} query heads, {K} K/V heads: the query heads whose result changes with K/V head {head}"
            expect_equal(moved, share, words)


def _tokens_seen(candidate: Attention, T: int, S: int, offset: int) -> list[list[int]]:
    q, k, v = _tensors(T, S, 4, 2)

    def attend(token: int | None) -> Array:
        other_k, other_v = k.copy(), v.copy()
        if token is not None:
            other_k[token] += 1.0
            other_v[token] -= 9.0
        return _answer(candidate, q, other_k, other_v, 1.0, offset)

    return tokens_seen(attend, S, _words(q, k, offset))


def _who_sees(candidate: Attention) -> None:
    for T, S, offset in ((3, 3, 0), (1, 4, 3), (2, 5, 3), (2, 5, 1), (12, 14, 0)):
        for row, got in enumerate(_tokens_seen(candidate, T, S, offset)):
            words = f"{T} {'row' if T == 1 else 'rows'}, {S} tokens, offset {offset}"
            expect_equal(got, list(range(offset + row + 1)), f"{words}: the tokens whose k and v change row {row}")
    q, k, v = _tensors(2, 4, 4, 2)
    offset_by_name_and_left_out(candidate, (q, k, v, 1.0), f"q {q.shape}, k and v {k.shape}")


def _scale(candidate: Attention) -> None:
    q, k, v = _tensors(1, 3, 2, 1)
    want = _answer(candidate, 2 * q, k, v, 0.25, 2).copy()
    for gain, scale in ((1, 0.5), (0.25, 2.0), (4, 0.125)):
        words = f"{_words(q, k, 2)}: scale {scale} with q times {gain} against scale 0.25 with q times 2"
        expect_close(_answer(candidate, gain * q, k, v, scale, 2), want, words, rtol=1e-6, same_dtype=False)


def _repeated(candidate: Attention, T: int, S: int, H: int, K: int, scale: float) -> tuple[Array, Array, str]:
    """The candidate's answer, that of the loops on repeated K and V, and the case in words."""
    q, k, v = _tensors(T, S, H, K)
    want = slow_attention(q, np.repeat(k, H // K, axis=1), np.repeat(v, H // K, axis=1), scale, S - T)
    words = f"{_words(q, k, S - T)}, scale {scale}, against multi-head attention with K and V repeated to {H} heads"
    return _answer(candidate, q, k, v, scale, S - T), want, words


def _same_as_repeated(candidate: Attention) -> None:
    for case in (
        (1, 1, 1, 1, 1.0), (1, 2, 2, 1, 1.0), (1, 3, 4, 2, 0.5), (3, 3, 2, 2, 0.25), (2, 6, 6, 3, 2.0), (1, 9, 8, 1, 0.3),
        (2, 24, 12, 6, 1.0),
    ):  # fmt: skip
        expect_close(*_repeated(candidate, *case), rtol=1e-6, same_dtype=False)


def _by_hand(candidate: Attention, heads: int, kv_heads: int, scores: Array, values: Array, offset: int) -> Array:
    """Scores set by hand: key s is the unit vector of place s, so q holds the scores."""
    k = np.repeat(np.eye(len(values))[:, None], kv_heads, axis=1)
    v = np.broadcast_to(values[:, None, None], k.shape).copy()
    q = np.repeat(scores, heads // scores.shape[1], axis=1)
    return _answer(candidate, q, k, v, 1.0, offset)[:, :: heads // scores.shape[1], 0]


def _large_scores(candidate: Attention) -> None:
    large_scores(lambda *given: _by_hand(candidate, 4, 2, *given))


def _mask_holds(candidate: Attention) -> None:
    mask_holds(lambda *given: _by_hand(candidate, 2, 1, *given))


def _every_digit(candidate: Attention) -> None:
    for case in ((3, 5, 6, 2, 0.5), (2, 24, 12, 6, 0.5)):
        every_digit(*_repeated(candidate, *case), rtol=1e-12)


def _in_place(candidate: Attention) -> None:
    q, k, v = _tensors(1, 512, 16, 2, 16)
    words = f"{_words(q, k, 511)}: 8 query heads share a K/V head. Memory that the call takes, besides its inputs"
    both = k.nbytes + v.nbytes
    expect_frugal(
        candidate,
        (q, k, v, 0.2, 511),
        3 * both,
        words,
        f"three times K and V; repeated for each query head they are {8 * both:,}, one group after another {4 * both:,}",
    )


SHARES = "query head h reads K/V head h // (H // K)"
SEES = "row t sees tokens 0 to offset + t"
SAME = "the result is that of multi-head attention on repeated K/V heads"
SCALE = "every score is multiplied by the given scale"
LARGE = "large scores stay finite"
MASK = "the mask holds, however large the scores"
DIGITS = "every digit of float64 is right"
IN_PLACE = "K and V are read where they lie, not copied for each query head"

GQA_ATTENTION = Exercise(
    id="04.gqa_attention",
    title="Grouped attention, in place",
    reference=causal_attention,
    budget=20_000_000,  # plain loops, as in lesson 01, are right too
    properties=[
        Property(SHARES, _who_shares),
        Property(SEES, _who_sees),
        Property(SCALE, _scale),
        Property(SAME, _same_as_repeated),
        Property(LARGE, _large_scores),
        Property(MASK, _mask_holds),
        Property(DIGITS, _every_digit),
        Property(IN_PLACE, _in_place),
    ],
    mutants=[
        Mutant("dealt round", answers.dealt_round, SHARES, "Neighbours share a head. h % K is another model's order."),
        Mutant("one mean query a group", answers.mean_query, SAME, "Keys are shared. Each query stays its own."),
        Mutant("mean of the K/V heads", answers.mean_of_keys, SHARES, "That makes another model: one with one K/V head."),
        Mutant("groups outside", answers.groups_first, SHARES, "q[T, K, G, D] came from H = K x G: it goes back the same way."),
        Mutant("softmax over heads", answers.softmax_over_heads, SEES, "Weights sum to 1 over the tokens, not over the heads."),
        Mutant("mask forgets the offset", answers.square_mask, SEES, "A new token's row stands at place offset."),
        Mutant("no mask", answers.no_mask, SEES, "Spare keys behind the last row, and later tokens, count for nothing."),
        Mutant("its own scale", answers.own_scale, SCALE, "The scale is the caller's affair."),
        Mutant("no scale", answers.no_scale, SCALE, "Text still comes out; it is only worse."),
        Mutant("offset under another name", answers.offset_renamed, SEES, "Callers write offset=3; a parameter's name is part of the function."),
        Mutant("sees no token but earlier ones", answers.blind_to_itself, SEES, "The mask starts one place too early: row 0 sees nothing, and 0 / 0 is NaN."),
        Mutant("the first row's queries", answers.queries_of_row_zero, SAME, "Each row asks with its own query."),
        Mutant("dealt round when there are many", answers.many_dealt_round, SAME, "Right for the shapes of a first test, wrong for those of a model."),
        Mutant("scale by the group", answers.scale_per_group, SAME, "Sharing changes who reads a key, not how long it is."),
        Mutant("exp without the maximum", answers.overflows, LARGE, "One large score makes infinity, then NaN."),
        Mutant("one maximum for all", answers.global_maximum, LARGE, "Rows and heads far below the largest score become 0 / 0."),
        Mutant("one maximum for all heads", answers.maximum_over_heads, LARGE, "A head far below another becomes 0 / 0."),
        Mutant("maximum before the mask", answers.maximum_before_the_mask, MASK, "A hidden score far above the visible ones pushes them all to exp(-1000), which is 0."),
        Mutant("-1e4 for minus infinity", answers.mask_of(-1e4), MASK, "Scores below -10,000 exist, and then the hidden key is the largest."),
        Mutant("-1e9 for minus infinity", answers.mask_of(-1e9), MASK, "Only minus infinity is below every score."),
        Mutant("float32 inside", answers.float32_inside, DIGITS, "Rounded to 24 bits on the way: six or seven digits are right."),
        Mutant("repeats group by group", answers.repeats_by_group, IN_PLACE, "Copies in smaller portions: as many bytes are moved."),
        Mutant("repeats K and V", answers.repeats, IN_PLACE, "Right, and it moves as many bytes as multi-head attention does."),
        Mutant("repeats K only", answers.repeats_keys, IN_PLACE, "Half of the copies are still copies."),
        Mutant("multiplies by broadcasting", answers.product_by_broadcasting, IN_PLACE, "All products of all heads are held at once."),
    ],
    alternatives=[answers.head_by_head, answers.in_groups, answers.by_matmul, answers.on_sorted_copies],
)  # fmt: skip

MQA_GIB = Prediction(
    "04.mqa_gib",
    "80 layers, 64 query heads of 128 that share one K/V head, 2 bytes a number: GiB of cache for 8,192 tokens?",
    float(Fraction(2 * 80 * 1 * 128 * 2 * 8192, 2**30)),
    "GiB",
    mistakes=[
        (20, "That is 64 K/V heads, one for each query head."),
        (2.5, "That is 8 K/V heads, as in Llama-3-70B. Here there is one."),
        (0.15625, "That is K or V alone. Both are kept."),
        (0.33554432, "That is the number of GB. In GiB it is 0.3125."),
        (0.00390625, "That is one layer. Each of the 80 keeps its own."),
        (0.625, "That is 4 bytes a number. The question says 2."),
    ],
    because="2 (K and V) x 80 layers x 1 head x 128 x 2 bytes = 40,960 B a token; times 8,192 that is 0.3125 GiB.",
    rtol=0.01,
)  # fmt: skip
