"""Lesson 04, absorption by hand: scores of all heads against latents, without making a key."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mini_engine.course.exercise import Exercise, Mutant, Prediction, Property
from mini_engine.course.exercises.attention_cases import every_digit
from mini_engine.course.expect import expect, expect_close

Array = np.ndarray
Scores = Callable[..., Array]


def absorbed_scores(q: Array, latent: Array, w_uk: Array) -> Array:
    """Every head's query against every token's key W_UK c: q[H, Dn], latent[S, Dc], w_uk[H, Dn, Dc] -> [H, S]."""
    return np.einsum("hn,hnc->hc", q, w_uk) @ latent.T


def slow_scores(q: Array, latent: Array, w_uk: Array) -> Array:
    """The same with every key made, number by number: the oracle."""
    (H, N), (S, C) = q.shape, latent.shape
    out = np.empty((H, S))
    for h in range(H):
        for s in range(S):
            key = [math.fsum(w_uk[h, n, c] * latent[s, c] for c in range(C)) for n in range(N)]
            out[h, s] = math.fsum(q[h, n] * key[n] for n in range(N))
    return out


def _inputs(H: int, S: int, N: int, C: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(H + 10 * S + 100 * N + 1000 * C)
    return rng.normal(size=(H, N)), rng.normal(size=(S, C)), rng.normal(size=(H, N, C))


def _words(q: Array, latent: Array, w_uk: Array) -> str:
    return f"q {q.shape}, latent {latent.shape}, w_uk {w_uk.shape}"


def _answer(candidate: Scores, q: Array, latent: Array, w_uk: Array) -> Array:
    got, shape = candidate(q, latent, w_uk), (len(q), len(latent))
    expect(type(got) is np.ndarray and got.shape == shape, _words(q, latent, w_uk), expected=f"shape {shape}", got=got)
    return got


def _by_hand(candidate: Scores) -> None:
    q, latent, w_uk = np.array([[2.0, 3.0]]), np.array([[3.0, 1.0]]), np.array([[[5.0, 7.0], [1.0, 0.0]]])
    case = f"one head, q {q[0].tolist()}, c {latent[0].tolist()}, W_UK {w_uk[0].tolist()}: the key is [22, 3]"
    expect_close(_answer(candidate, q, latent, w_uk), np.array([[53.0]]), case, same_dtype=False)


def _same_as_keys(candidate: Scores) -> None:
    for H, S, N, C in ((1, 1, 1, 1), (1, 2, 2, 3), (2, 3, 2, 4), (3, 2, 4, 2), (2, 4, 3, 3)):
        q, latent, w_uk = _inputs(H, S, N, C)
        got, want = _answer(candidate, q, latent, w_uk), slow_scores(q, latent, w_uk)
        expect_close(got, want, _words(q, latent, w_uk), rtol=1e-6, same_dtype=False)


def _own_matrix(candidate: Scores) -> None:
    q, latent, w_uk = _inputs(3, 2, 2, 3)
    before = _answer(candidate, q, latent, w_uk).copy()
    for head in range(3):
        other = w_uk.copy()
        other[head] *= 2.0
        after = _answer(candidate, q, latent, other)
        want = [float(w) for w in np.where(np.arange(3) == head, 2.0, 1.0)]
        got = [round(float(a / b), 6) for a, b in zip(after[:, 0], before[:, 0])]
        expect(got == want, f"W_UK of head {head} doubled: each head's score grows by", expected=want, got=got)


def _no_keys(candidate: Scores) -> None:
    """Brackets can be told apart: W c is infinite where q W is not. That shows a key however little memory it took."""
    q, latent, w_uk = (
        np.array([[2e-200, 3e-200]]),
        np.array([[3e200, 1e200]]),
        np.array([[[5e200, 7e200], [1e200, 0.0]]]),
    )
    case = f"the numbers of the small case, but q {q[0].tolist()}, c {latent[0].tolist()}, W_UK {w_uk[0].tolist()}."
    with np.errstate(all="ignore"):
        got = _answer(candidate, q, latent, w_uk)
    case += " W_UK c, the key, is infinite; q W_UK and the score are not. Was W_UK multiplied with c first?"
    expect_close(got, np.array([[53e200]]), case, rtol=1e-6, same_dtype=False)


def _every_digit(candidate: Scores) -> None:
    inputs = _inputs(2, 5, 4, 6)
    every_digit(_answer(candidate, *inputs), slow_scores(*inputs), _words(*inputs), 1e-12)


HAND = "one head, one token, by hand"
KEYS = "the scores are those against every token's key W_UK c"
OWN = "each head has its own W_UK"
NONE = "no key of a cached token is made"
DIGITS = "every digit of float64 is right"


def _makes_keys(q: Array, latent: Array, w_uk: Array) -> Array:
    return np.einsum("hn,shn->hs", q, np.einsum("hnc,sc->shn", w_uk, latent, optimize=True))


def _makes_keys_flat(q: Array, latent: Array, w_uk: Array) -> Array:
    H, N, C = w_uk.shape
    keys = (latent @ w_uk.reshape(H * N, C).T).reshape(len(latent), H, N)
    return (keys * q).sum(-1).T


def _transposed(q: Array, latent: Array, w_uk: Array) -> Array:
    turned = w_uk.reshape(len(q), w_uk.shape[2], w_uk.shape[1]).transpose(0, 2, 1)
    return absorbed_scores(q, latent, turned)


def _one_matrix(q: Array, latent: Array, w_uk: Array) -> Array:
    return q @ w_uk[0] @ latent.T


def _mean_matrix(q: Array, latent: Array, w_uk: Array) -> Array:
    return q @ w_uk.mean(axis=0) @ latent.T


def _sums_heads(q: Array, latent: Array, w_uk: Array) -> Array:
    total = np.einsum("hn,hnc->c", q, w_uk) @ latent.T
    return np.broadcast_to(total, (len(q), len(latent))).copy()


def _sums_queries(q: Array, latent: Array, w_uk: Array) -> Array:
    return np.einsum("gn,hnc->hc", q, w_uk) @ latent.T


def _scaled(q: Array, latent: Array, w_uk: Array) -> Array:
    return absorbed_scores(q, latent, w_uk) * q.shape[1] ** -0.5


def _float32(q: Array, latent: Array, w_uk: Array) -> Array:
    q, latent, w_uk = (x.astype(np.float32) for x in (q, latent, w_uk))
    return absorbed_scores(q, latent, w_uk).astype(np.float64)


def _loop_over_heads(q: Array, latent: Array, w_uk: Array) -> Array:
    return np.stack([latent @ (w_uk[h].T @ q[h]) for h in range(len(q))])


def _makes_keys_by_head(q: Array, latent: Array, w_uk: Array) -> Array:
    return np.stack([(latent @ w_uk[h].T) @ q[h] for h in range(len(q))])


def _makes_one_key(q: Array, latent: Array, w_uk: Array) -> Array:
    return np.array([[q[h] @ (w_uk[h] @ c) for c in latent] for h in range(len(q))])


def _by_broadcasting(q: Array, latent: Array, w_uk: Array) -> Array:
    return (q[:, :, None] * w_uk).sum(1) @ latent.T


def _one_einsum(q: Array, latent: Array, w_uk: Array) -> Array:
    """Slow, as it multiplies all three for each place; but no key is made."""
    return np.einsum("hn,hnc,sc->hs", q, w_uk, latent)


def _one_einsum_in_order(q: Array, latent: Array, w_uk: Array) -> Array:
    return np.einsum("hn,hnc,sc->hs", q, w_uk, latent, optimize=["einsum_path", (0, 1), (0, 1)])


def _by_loops(q: Array, latent: Array, w_uk: Array) -> Array:
    (H, N), (S, C) = q.shape, latent.shape
    out = np.zeros((H, S))
    for h in range(H):
        query = [sum(q[h, n] * w_uk[h, n, c] for n in range(N)) for c in range(C)]
        for s in range(S):
            out[h, s] = sum(query[c] * latent[s, c] for c in range(C))
    return out


def _batched(q: Array, latent: Array, w_uk: Array) -> Array:
    return (q[:, None] @ w_uk)[:, 0] @ latent.T


ABSORBED_SCORES = Exercise(
    id="04.absorbed_scores",
    title="Move the matrix to the query",
    reference=absorbed_scores,
    budget=20_000_000,  # plain loops are right too
    properties=[
        Property(HAND, _by_hand),
        Property(OWN, _own_matrix),
        Property(KEYS, _same_as_keys),
        Property(DIGITS, _every_digit),
        Property(NONE, _no_keys),
    ],
    mutants=[
        Mutant("scaled", _scaled, HAND, "The scale is one number for the whole score, and it comes later."),
        Mutant("rows for columns", _transposed, HAND, "w_uk[h] has a row for each number of the key: q multiplies from the left."),
        Mutant("sums over heads", _sums_heads, OWN, "h stands on both sides: heads are kept apart."),
        Mutant("sums the queries", _sums_queries, KEYS, "Two letters for the head's axis: every head is then asked by all queries at once."),
        Mutant("the first head's matrix", _one_matrix, OWN, "The latent is shared, W_UK is not."),
        Mutant("the mean of the matrices", _mean_matrix, OWN, "The latent is shared, W_UK is not."),
        Mutant("makes the keys", _makes_keys, NONE, "Right, and it makes again what the cache was meant to spare."),
        Mutant("makes the keys in one product", _makes_keys_flat, NONE, "One large product makes the keys all the same."),
        Mutant("makes the keys head by head", _makes_keys_by_head, NONE, "W @ q after latent @ W: the brackets stand on the left, whatever the loop."),
        Mutant("makes one key at a time", _makes_one_key, NONE, "Little memory at once, and all the work of making every key."),
        Mutant("float32 inside", _float32, DIGITS, "Rounded to 24 bits on the way: six or seven digits are right."),
    ],
    alternatives=[_loop_over_heads, _batched, _by_broadcasting, _one_einsum, _one_einsum_in_order, _by_loops],
)  # fmt: skip

STATIC_WEIGHTS = Prediction(
    "04.static_weights",
    "One head: W_Q is 1,536 x 128, W_UK is 128 x 512. How many numbers does their product have?",
    1536 * 512,
    mistakes=[
        (1536 * 128 + 128 * 512, "That is what the two factors have together. The product is larger."),
        (1536 * 128, "That is W_Q. The product is as wide as the latent, 512, not as a head."),
        (128 * 512, "That is W_UK. The product has a row for each of the 1,536 numbers that the query comes from."),
        (1536 * 128 * 512, "Those are the multiplications it takes. The product is a matrix of 1,536 x 512."),
        (128 * 128, "The 128 is the side where the two meet. It disappears."),
    ],
    because="1,536 x 512 = 786,432, against 262,144 for the two factors: three times as many.",
    rtol=0,
)  # fmt: skip
