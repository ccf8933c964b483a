"""Answers to lesson 01's cached loop: right ones, written another way, and the wrong ones that people write."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mini_engine.attention import causal_attention
from mini_engine.course.exercises import answers01_attention
from mini_engine.course.exercises.answers01_kv_cache import KVCache
from mini_engine.course.exercises.attention_cases import slow_attention

Array = np.ndarray


def generate_cached(model, cache, prompt: Sequence[int], max_tokens: int) -> list[int]:
    """`max_tokens` greedy tokens: one pass over the prompt, then one pass of one token for each token after the first."""
    scale = model.spec.head_dim**-0.5

    def attend(layer: int, q: Array, k: Array, v: Array) -> Array:
        k_all, v_all = cache.append(layer, k, v)
        return causal_attention(q, k_all, v_all, scale, offset=len(k_all) - len(q))

    output: list[int] = []
    new, position = list(prompt), 0
    while len(output) < max_tokens:
        positions = range(position, position + len(new))
        logits = model.forward(np.array(new), np.array(positions), attend, logits_rows=[len(new) - 1])
        position += len(new)
        new = [int(np.argmax(logits[0]))]
        output += new
    return output


def spelled_out(model, cache, prompt: Sequence[int], max_tokens: int) -> list[int]:
    """Another right answer: prefill first, then the decode loop."""
    if max_tokens == 0:
        return []

    def attend(layer: int, q: Array, k: Array, v: Array) -> Array:
        k_all, v_all = cache.append(layer, k, v)
        return slow_attention(q, k_all, v_all, model.spec.head_dim**-0.5, len(k_all) - len(q))

    output = [int(model.forward(prompt, list(range(len(prompt))), attend)[-1].argmax())]
    for position in range(len(prompt), len(prompt) + max_tokens - 1):
        output.append(int(model.forward(output[-1:], [position], attend)[-1].argmax()))
    return output


def loop(
    model,
    cache,
    prompt: Sequence[int],
    max_tokens: int,
    *,
    row: int = -1,
    restart: bool = False,
    offset: bool = True,
    repeat_last: bool = False,
    whole: bool = False,
    one_more: bool = False,
    at_least: int = 0,
    scale: float | None = None,
    attention: Callable[..., Array] = slow_attention,
) -> list[int]:
    """The right loop with a switch at every place where people go wrong."""

    scale = scale or model.spec.head_dim**-0.5

    def attend(layer: int, q: Array, k: Array, v: Array) -> Array:
        k_all, v_all = cache.append(layer, k, v)
        return attention(q, k_all, v_all, scale, len(k_all) - len(q) if offset else 0)

    output: list[int] = []
    new, position = list(prompt), 0
    for _ in range(max(at_least, max_tokens)):
        logits = model.forward(new, range(position, position + len(new)), attend)
        token = int(np.argmax(logits[row]))
        position = 0 if restart else position + len(new)
        if whole:
            new = [*new, token]
        elif repeat_last and not output:
            new = [new[-1], token]
        else:
            new = [token]
        output.append(token)
    if one_more and output:
        model.forward(new, [position], attend)
    return output


def first_row(model, cache, prompt: Sequence[int], max_tokens: int) -> list[int]:
    return loop(model, cache, prompt, max_tokens, row=0)


def positions_restart(model, cache, prompt: Sequence[int], max_tokens: int) -> list[int]:
    return loop(model, cache, prompt, max_tokens, restart=True)


def offset_forgotten(model, cache, prompt: Sequence[int], max_tokens: int) -> list[int]:
    return loop(model, cache, prompt, max_tokens, offset=False)


def last_prompt_token_twice(model, cache, prompt: Sequence[int], max_tokens: int) -> list[int]:
    return loop(model, cache, prompt, max_tokens, repeat_last=True)


def whole_sequence_again(model, cache, prompt: Sequence[int], max_tokens: int) -> list[int]:
    return loop(model, cache, prompt, max_tokens, whole=True)


def last_token_too(model, cache, prompt: Sequence[int], max_tokens: int) -> list[int]:
    return loop(model, cache, prompt, max_tokens, one_more=True)


def always_one(model, cache, prompt: Sequence[int], max_tokens: int) -> list[int]:
    return loop(model, cache, prompt, max_tokens, at_least=1)


def scale_of_another_model(model, cache, prompt: Sequence[int], max_tokens: int) -> list[int]:
    return loop(model, cache, prompt, max_tokens, scale=32**-0.5)


def scale_of_the_first_model(model, cache, prompt: Sequence[int], max_tokens: int) -> list[int]:
    return loop(model, cache, prompt, max_tokens, scale=0.5)


def heads_dealt_round(model, cache, prompt: Sequence[int], max_tokens: int) -> list[int]:
    return loop(model, cache, prompt, max_tokens, attention=answers01_attention.heads_dealt_round)


def a_cache_of_its_own(model, cache, prompt: Sequence[int], max_tokens: int) -> list[int]:
    spec = model.spec
    own = KVCache(spec.num_hidden_layers, 64, spec.num_key_value_heads, spec.head_dim)
    return loop(model, own, prompt, max_tokens)
