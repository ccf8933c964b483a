"""The loop: the right tokens by the right number of passes, and where it ends."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mini_engine.generation import GenerationStats, generate_tokens
from mini_engine.sampling import SamplingParams

PROMPT = [3, 1, 4, 1, 5]


def greedy(max_tokens: int, **options) -> SamplingParams:
    return SamplingParams(**{"temperature": 0, "ignore_eos": True} | options, max_tokens=max_tokens)


def last(branch):
    *_, completion = branch
    return completion


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("cache", ["contiguous", "none"])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 2), (1, 20), (5, 0), (5, 1), (5, 2), (5, 9), (17, 16)])
def test_tokens_and_counts_are_exact(history, backend, cache, n, m):
    model, stats = history.model(backend), GenerationStats()
    prompt = (PROMPT * 4)[:n]
    completion = last(generate_tokens(model, prompt, greedy(m), cache=cache, stats=stats))
    assert completion.token_ids == history.continuation(prompt, m)
    assert completion.finish_reason == "length"
    if m == 0:
        assert stats == GenerationStats()
        return
    cached = cache == "contiguous"
    assert stats.num_forwards == m
    assert stats.num_forward_tokens == (n + m - 1 if cached else m * n + m * (m - 1) // 2)
    assert (stats.num_prompt_tokens, stats.num_output_tokens, stats.num_decoded_tokens) == (n, m, m - 1)
    assert stats.prefill_seconds > 0
    assert (stats.decode_seconds > 0) == (m > 1)
    # logits of the last row alone, every time
    assert [rows for _, rows in model.calls] == [[tokens - 1] for tokens, _ in model.calls]


def test_speeds_are_tokens_by_seconds():
    stats = GenerationStats(num_prompt_tokens=100, num_decoded_tokens=10, prefill_seconds=0.5, decode_seconds=2.0)
    assert (stats.prompt_tokens_per_second, stats.output_tokens_per_second) == (200, 5)
    assert (GenerationStats().prompt_tokens_per_second, GenerationStats().output_tokens_per_second) == (0, 0)


@pytest.mark.parametrize(("room", "max_tokens", "given"), [(0, 9, 0), (1, 9, 1), (4, 9, 4), (4, 4, 4), (4, 3, 3)])
def test_the_context_is_filled_and_never_passed(history, room, max_tokens, given):
    model = history.model(context=len(PROMPT) + room)
    completion = last(generate_tokens(model, PROMPT, greedy(max_tokens)))
    assert completion.token_ids == history.continuation(PROMPT, given)
    assert completion.finish_reason == "length"


def test_the_model_stops_at_its_own_token_and_the_checks_take_the_limits_into_account(history):
    whole = history.continuation([2], 60)
    at = whole.index(history.EOS)
    completion = last(generate_tokens(history.model(), [2], greedy(60, ignore_eos=False)))
    assert completion.token_ids == whole[: at + 1]
    assert completion.finish_reason == "stop"
    # asked for more tokens first, the end token is masked, and the text goes another way
    longer = last(generate_tokens(history.model(), [2], greedy(60, ignore_eos=False, min_tokens=at + 1)))
    assert longer.token_ids[:at] == whole[:at]
    assert longer.token_ids[at] != history.EOS
    assert len(longer.token_ids) > at + 1


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        ([], {}, "the prompt is empty"),
        ([1, 32], {}, "prompt token 32 is outside the vocabulary: ids run from 0 to 31"),
        ([-1], {}, "prompt token -1 is outside"),
        ([1] * 65, {}, "65 tokens and the model's context holds 64"),
        ([1], {"stop_token_ids": (32,)}, "stop_token_ids 32 is outside"),
        ([1], {"stop": ("x",)}, "stop strings need a tokenizer"),
    ],
    ids=str,
)
def test_what_the_model_cannot_take_is_refused_before_any_pass(history, prompt, params, message):
    model, stats = history.model(), GenerationStats()
    with pytest.raises(ValueError, match=message):
        last(generate_tokens(model, prompt, greedy(3, **params), stats=stats))
    assert model.calls == []
    assert stats == GenerationStats()


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "seed": 1}, {"logprobs": 1}], ids=str)
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_broken_logits_are_an_error_on_every_path(history, backend, options, poison):
    model = history.model(backend)
    model.poison = poison
    with pytest.raises(ValueError, match=f"logit 3 is {poison}"):
        last(generate_tokens(model, PROMPT, greedy(3, **options)))


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_sampling_is_the_same_in_every_library_and_with_every_cache(history, backend):
    params = SamplingParams(seed=5, temperature=2.0, top_p=0.9, max_tokens=30, ignore_eos=True)
    expected = last(generate_tokens(history.model("numpy"), PROMPT, params, cache="none")).token_ids
    assert last(generate_tokens(history.model(backend), PROMPT, params)).token_ids == expected
    assert expected != history.continuation(PROMPT, 30)
    other = dataclasses.replace(params, seed=6)
    assert last(generate_tokens(history.model(backend), PROMPT, other)).token_ids != expected
    assert last(generate_tokens(history.model(backend), PROMPT, params, index=1)).token_ids != expected


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_logprobs_come_with_every_token(history, backend):
    completion = last(generate_tokens(history.model(backend), PROMPT, greedy(4, logprobs=2)))
    # the fake's logits: the best, then -0.5 for each of the 31 ids that follow it
    total = np.log(np.exp(-0.5 * np.arange(32)).sum())
    for token, report in zip(completion.token_ids, completion.logprobs, strict=True):
        assert list(report) == [token, (token + 1) % 32]
        assert list(report.values()) == pytest.approx([-total, -0.5 - total])


def test_an_own_cache_gets_room_for_exactly_what_is_stored(history):
    made = []

    class Exact:
        def __init__(self, num_layers, capacity, num_kv_heads, head_dim):
            made.append(capacity)
            self.k = [np.empty((0, num_kv_heads, head_dim))] * num_layers
            self.v = list(self.k)

        def append(self, layer, k, v):
            self.k[layer] = np.concatenate([self.k[layer], k])
            self.v[layer] = np.concatenate([self.v[layer], v])
            assert len(self.k[layer]) <= made[-1]
            return self.k[layer], self.v[layer]

    completion = last(generate_tokens(history.model(), PROMPT, greedy(6), cache=Exact))
    assert completion.token_ids == history.continuation(PROMPT, 6)
    assert made == [5 + 6 - 1]
