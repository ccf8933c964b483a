"""LLM end to end on real weights: the text of transformers without a cache, whatever the cache and the backend here."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mini_engine import LLM, SamplingParams
from mini_engine.attention import causal_attention
from mini_engine.models import load_model, load_weights

PROMPTS = [[5], [7, 3, 11, 2], list(range(40, 73))]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A tiny random Llama as transformers saves it, and transformers' own greedy continuations, computed uncached."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=97,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.3,
        eos_token_id=None,
        bos_token_id=None,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    folder = tmp_path_factory.mktemp("llama")
    model.save_pretrained(folder)
    expected = []
    for prompt in PROMPTS:
        ids = list(prompt)
        for _ in range(24):
            with torch.no_grad():
                logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
            top = logits.topk(2).values
            assert top[0] - top[1] > 1e-3, "a near-tie proves nothing: choose another seed"
            ids.append(int(logits.argmax()))
        expected.append(ids[len(prompt) :])
    return folder, expected


@pytest.mark.parametrize("backend", ["torch", "numpy"])
@pytest.mark.parametrize(
    "options", [{}, {"cache": "none"}, {"attention": causal_attention}], ids=["", "no cache", "attention"]
)
def test_greedy_equals_transformers(checkpoint, backend, options):
    folder, expected = checkpoint
    model = load_weights(folder, backend=backend)
    llm = LLM(SimpleNamespace(model=model, tokenizer=None, spec=model.spec), **options)
    outputs = llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=24))
    assert [output.outputs[0].token_ids for output in outputs] == expected


@pytest.mark.parametrize(("backend", "cache"), [("torch", "contiguous"), ("torch", "none"), ("numpy", "none")])
def test_tiny_gqa_says_the_same_on_every_path(tiny_gqa, backend, cache):
    """Against NumPy in float64 with a cache. Where its two best logits are within 1e-3 either token is right."""
    prompts = ["It was the best of times", "Call me Ishmael.", "No one who had ever seen Catherine", "1, 2, 3"]
    steps = SamplingParams(temperature=0, max_tokens=24, logprobs=2)
    truth = LLM("tiny-gqa", "numpy").generate(prompts, steps)
    path = LLM(tiny_gqa if backend == "torch" else load_model("tiny-gqa", backend="numpy"), cache=cache)
    compared = 0
    for expected, got in zip((o.outputs[0] for o in truth), (o.outputs[0] for o in path.generate(prompts, steps))):
        for right, token, logprobs in zip(expected.token_ids, got.token_ids, expected.logprobs):
            if token != right:
                best, second = list(logprobs.values())[:2]
                assert best - second < 1e-3
                break
            compared += 1
    assert compared >= 64


@pytest.mark.model
def test_smollm2_reads_and_answers(smollm2):
    llm = LLM(smollm2)
    greedy = SamplingParams(temperature=0, max_tokens=12)
    (output,) = llm.generate("The capital of France is", greedy)
    assert "Paris" in output.outputs[0].text
    (answer,) = llm.chat(
        [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}], greedy
    )
    assert answer.outputs[0].text == "The capital of France is Paris."
    assert answer.outputs[0].finish_reason == "stop"
    assert answer.outputs[0].token_ids[-1] in llm.eos_token_ids


@pytest.mark.model
def test_smollm2_is_the_same_without_a_cache(smollm2):
    greedy = SamplingParams(temperature=0, max_tokens=8)
    cached, uncached = (LLM(smollm2, cache=cache) for cache in ("contiguous", "none"))
    prompt = "Once upon a time"
    assert cached.generate(prompt, greedy)[0].outputs == uncached.generate(prompt, greedy)[0].outputs
    n = cached.last_stats.num_prompt_tokens
    assert cached.last_stats.num_forward_tokens == n + 7
    assert uncached.last_stats.num_forward_tokens == 8 * n + 28
