"""Lesson 01, prefill and decode: the loop that uses the cache, and the wrong loops that people write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers01_generate as answers
from mini_engine.course.exercises.answers01_kv_cache import KVCache
from mini_engine.course.exercises.attention_cases import slow_attention
from mini_engine.course.expect import expect, expect_close, expect_equal

Array = np.ndarray
Generate = Callable[..., list[int]]


class ToyModel:
    """A two-layer transformer with random weights and the face of `NumpyDecoder`. It writes down every pass.

    `passes` holds the positions of each; `attended` holds q, k, v and what `attend` made of them, in layer 0 of each.

    `forward(token_ids[T], positions[T], attend, logits_rows=None) -> logits[R, V]`; `heads` query heads share `kv_heads`
    K/V heads of size `size`.
    """

    def __init__(self, seed: int = 0, heads: int = 2, kv_heads: int = 1, size: int = 4) -> None:
        self.attended: list[tuple[Array, Array, Array, Array]] = []
        rng = np.random.default_rng(seed)
        hidden = heads * size
        self.spec = SimpleNamespace(
            num_hidden_layers=2,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=size,
            hidden_size=hidden,
            vocab_size=23,
        )
        self.embedding = rng.normal(size=(23, hidden))
        self.places = rng.normal(size=(64, hidden))
        square, to_kv = (hidden, hidden), (2, hidden, kv_heads * size)
        gain = (8 / hidden) ** 0.5  # scores of the same size in every shape
        self.layers = [
            (rng.normal(0, gain, square), *rng.normal(0, gain, to_kv), rng.normal(0, gain, square)) for _ in "01"
        ]
        self.passes: list[list[int]] = []

    def forward(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        attend: Callable[..., Array],
        logits_rows: Sequence[int] | None = None,
    ) -> Array:
        ids, places = [int(i) for i in token_ids], [int(i) for i in positions]
        expect(
            len(ids) == len(places), f"{len(ids)} tokens were passed with {len(places)} positions: one position a token"
        )
        self.passes.append(places)
        x = self.embedding[ids] + self.places[places]
        for layer, (to_q, to_k, to_v, to_out) in enumerate(self.layers):
            q, k, v = ((x @ w).reshape(len(ids), -1, self.spec.head_dim) for w in (to_q, to_k, to_v))
            attended = attend(layer, q, k, v)
            if layer == 0:
                self.attended.append((q, k, v, attended))
            x = np.tanh(x + attended.reshape(len(ids), -1) @ to_out)
        rows = x if logits_rows is None else x[list(logits_rows)]
        return rows @ self.embedding.T


def generate_slowly(prompt: Sequence[int], max_tokens: int, seed: int = 0, **shape: int) -> list[int]:
    """The same tokens with no cache and attention by loops: the oracle."""
    model, tokens = ToyModel(seed, **shape), list(prompt)

    def attend(layer: int, q: Array, k: Array, v: Array) -> Array:
        return slow_attention(q, k, v, model.spec.head_dim**-0.5)

    for _ in range(max_tokens):
        logits = model.forward(tokens, range(len(tokens)), attend)
        tokens.append(int(np.argmax(logits[-1])))
    return tokens[len(prompt) :]


WIDE = {"heads": 4, "kv_heads": 2, "size": 16}
"""Another model: more K/V heads, another scale."""


def _run(
    candidate: Generate, prompt: list[int], max_tokens: int, seed: int = 0, **shape: int
) -> tuple[list[int], ToyModel, KVCache]:
    model = ToyModel(seed, **shape)
    spec = model.spec
    cache = KVCache(spec.num_hidden_layers, 64, spec.num_key_value_heads, spec.head_dim)
    return candidate(model, cache, list(prompt), max_tokens), model, cache


def _first_pass(candidate: Generate) -> None:
    for shape in ({}, WIDE):
        _, model, _ = _run(candidate, [9, 2], 1, **shape)
        size = model.spec.head_dim
        expect(len(model.attended) > 0, "prompt [9, 2], max_tokens 1: the model is run", expected="1 pass", got="none")
        q, k, v, got = model.attended[0]
        scale = f"the scale is {size} ** -0.5 = {size**-0.5}"
        case = f"prompt [9, 2], a model with head_dim {size}: what attend returned in layer 0; {scale}"
        expect_close(np.asarray(got).reshape(q.shape), slow_attention(q, k, v, size**-0.5)[-len(q) :], case)


def _same_tokens(candidate: Generate) -> None:
    for seed, prompt in enumerate(([4], [9, 2], [3, 1, 4, 1, 5])):
        for max_tokens in (1, 2, 6):
            got, *_ = _run(candidate, prompt, max_tokens, seed)
            expect_equal(got, generate_slowly(prompt, max_tokens, seed), f"prompt {prompt}, max_tokens {max_tokens}")
    got, *_ = _run(candidate, [9, 2], 6, **WIDE)
    case = "prompt [9, 2], max_tokens 6, a model with 4 query heads and 2 K/V heads"
    expect_equal(got, generate_slowly([9, 2], 6, **WIDE), case)


def _one_pass_each(candidate: Generate) -> None:
    for prompt, max_tokens in (([4], 2), ([9, 2], 2), ([3, 1, 4], 5)):
        _, model, cache = _run(candidate, prompt, max_tokens)
        got, expected = [len(places) for places in model.passes], [len(prompt)] + [1] * (max_tokens - 1)
        case = f"prompt of {len(prompt)}, max_tokens {max_tokens}"
        expect_equal(got, expected, f"{case}: tokens in each pass")
        expect_equal(cache.num_tokens, sum(expected), f"{case}: tokens in the cache that was given, afterwards")


def _positions_go_on(candidate: Generate) -> None:
    for prompt, max_tokens in (([4], 2), ([9, 2], 3)):
        _, model, _ = _run(candidate, prompt, max_tokens)
        got = [place for places in model.passes for place in places]
        expected = list(range(len(prompt) + max_tokens - 1))
        expect_equal(got, expected, f"prompt of {len(prompt)}, max_tokens {max_tokens}: positions, in the order run")


def _exactly_max_tokens(candidate: Generate) -> None:
    for max_tokens in (0, 1, 2):
        got, model, _ = _run(candidate, [9, 2], max_tokens)
        expect_equal(got, generate_slowly([9, 2], max_tokens), f"prompt [9, 2], max_tokens {max_tokens}")
        expect_equal(len(model.passes), max_tokens, f"prompt [9, 2], max_tokens {max_tokens}: forward passes")


SCALE = "the first pass attends, with the scale of the model it was given"
SAME = "the tokens are those of running everything each time"
PASSES = "the prompt runs once, then one token a pass"
PLACES = "positions go on where the prompt ended"
LIMIT = "max_tokens tokens, and 0 runs nothing"

GENERATE_CACHED = Exercise(
    id="01.generate_cached",
    title="Prefill, then decode",
    reference=answers.generate_cached,
    properties=[
        Property(SCALE, _first_pass),
        Property(SAME, _same_tokens),
        Property(PASSES, _one_pass_each),
        Property(PLACES, _positions_go_on),
        Property(LIMIT, _exactly_max_tokens),
    ],
    mutants=[
        Mutant("scale of another model", answers.scale_of_another_model, SCALE, "A global `scale` of the notebook belongs to tiny-gqa, whose heads have size 32."),
        Mutant("scale of 0.5", answers.scale_of_the_first_model, SCALE, "Right for heads of size 4 and for no other."),
        Mutant("heads dealt round", answers.heads_dealt_round, SCALE, "With one K/V head every order of dealing is right; with two it is not."),
        Mutant("a cache of its own", answers.a_cache_of_its_own, PASSES, "The caller's cache stays empty, and whoever wants to go on from it starts again."),
        Mutant("reads the first row", answers.first_row, SAME, "Row 0 predicts the token after the first prompt token."),
        Mutant("offset forgotten", answers.offset_forgotten, SAME, "The new token's row sees key 0 only. The prompt still looks right, so the first token is right too."),
        Mutant("positions restart", answers.positions_restart, PLACES, "Each new token claims to stand at the start of the text."),
        Mutant("runs the whole sequence again", answers.whole_sequence_again, PASSES, "The cache is filled a second time with tokens that it holds already."),
        Mutant("last prompt token twice", answers.last_prompt_token_twice, PASSES, "The cache then holds the last prompt token in two places."),
        Mutant("runs the last token too", answers.last_token_too, PASSES, "n + m passes' work: its K and V are never read."),
        Mutant("one token at least", answers.always_one, LIMIT, "The first token is taken before the limit is looked at."),
    ],
    alternatives=[answers.spelled_out, answers.loop],
)  # fmt: skip
