"""Logits against transformers: what configurations look like, half precision, and the trained models."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mini_engine.models import load_model, load_weights, open_checkpoint
from tests.oracle import (
    FAMILIES,
    ROW_TOLERANCE,
    GrowingCache,
    assert_same_greedy,
    export_hf,
    full_logits,
    greedy,
    row_error,
    save_random_model,
    transformers_logits,
)

IDS = np.random.default_rng(1).integers(0, 131, size=200).tolist()


@pytest.fixture(scope="module", params=FAMILIES)
def random_model(request, tmp_path_factory):
    return save_random_model(tmp_path_factory.mktemp("random"), request.param)


def test_config_of_older_transformers(tmp_path):
    """rope_theta at the top level, torch_dtype, rope_scaling null: what most published folders still look like."""
    import json

    folder = save_random_model(tmp_path, rope_parameters={"rope_theta": 300.0, "rope_type": "default"})
    expected = full_logits(load_weights(folder), IDS)
    config = json.loads((folder / "config.json").read_text())
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config |= {"rope_scaling": None, "torch_dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config))
    assert np.array_equal(full_logits(load_weights(folder), IDS), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_computation_stays_near(random_model, dtype):
    """Each of a few dozen roundings in sequence may move a value by one unit in the last place."""
    exact = full_logits(load_weights(random_model, backend="numpy"), IDS)
    model = load_weights(random_model, dtype=dtype)
    assert model.embed.dtype == getattr(torch, dtype)

    def attend(layer, q, k, v):
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        scale = model.spec.head_dim**-0.5
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=scale, enable_gqa=True
        ).transpose(0, 1)

    logits = model.forward(IDS, range(len(IDS)), attend)
    assert logits.dtype == model.dtype
    assert row_error(logits.float(), exact) < 50 * torch.finfo(model.dtype).eps


@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_tiny_gqa(tiny_gqa, backend):
    model = load_model("tiny-gqa", backend=backend).model
    ids = tiny_gqa.tokenizer.encode(
        "It is a truth universally acknowledged, that a whale in want of a wife must be 3 yards long.\n"
    )
    assert row_error(full_logits(model, ids), transformers_logits(tiny_gqa.path)(ids)) < ROW_TOLERANCE


@pytest.mark.parametrize(("backend", "tolerance"), [("torch", ROW_TOLERANCE), ("numpy", 1e-3)])
def test_tiny_gqa_at_the_end_of_its_context(tiny_gqa, backend, tolerance):
    """In float32 an angle of 4095 radians is off by up to 2.4e-4, in torch and transformers alike; the NumPy model's is not."""
    model = load_model("tiny-gqa", backend=backend).model
    first = tiny_gqa.spec.max_position_embeddings - 64
    logits = model.forward(IDS[:64], range(first, first + 64), GrowingCache(model.spec).attend)
    assert row_error(logits, transformers_logits(tiny_gqa.path)(IDS[:64], first)) < tolerance


@pytest.fixture(scope="module")
def smollm2_oracle(smollm2, tmp_path_factory):
    """SmolLM2's weights as we decode them, saved as a Hugging Face folder and loaded by transformers."""
    folder = export_hf(open_checkpoint(smollm2.path), tmp_path_factory.mktemp("smollm2"))
    return folder, transformers_logits(folder)


TEN_PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n",
    "Call me Ishmael.",
    "The three laws of motion are",
    "Q: What is 12 times 12?\nA:",
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "Ingredients: 200 g flour, 3 eggs,",
    "La capitale de la France est",
    "It was the best of times, it was the worst of times, " * 6,
)
PARAGRAPH = (
    "The capital of France is Paris. In 1889 the tower was 300 metres tall; `print(2 ** 10)` prints 1024. "
    "巴黎是法国的首都。 Il fait beau à Paris aujourd'hui, n'est-ce pas? 🗼"
)


@pytest.mark.model
def test_smollm2(smollm2, smollm2_oracle):
    ids = smollm2.tokenizer.encode(PARAGRAPH)
    assert row_error(full_logits(smollm2.model, ids), smollm2_oracle[1](ids)) < ROW_TOLERANCE


@pytest.mark.model
def test_smollm2_from_gguf_equals_smollm2_from_safetensors(smollm2, smollm2_oracle):
    ids = smollm2.tokenizer.encode(PARAGRAPH)
    again = load_weights(smollm2_oracle[0])
    assert again.spec.eos_token_ids == smollm2.spec.eos_token_ids
    assert np.array_equal(full_logits(again, ids), full_logits(smollm2.model, ids))


def assert_ten_greedy_texts_agree(model, tokenizer, oracle):
    prompts = [tokenizer.encode(prompt) for prompt in TEN_PROMPTS]
    together = dict(zip(map(tuple, prompts), greedy(model, prompts, 64)))

    def generate(ids, n):  # after a tie the rest is generated alone
        return together[tuple(ids)] if n == 64 else greedy(model, [ids], n)[0]

    for prompt in prompts:
        assert_same_greedy(generate, oracle, prompt, 64)


@pytest.mark.model
def test_smollm2_greedy_text(smollm2, smollm2_oracle):
    assert_ten_greedy_texts_agree(smollm2.model, smollm2.tokenizer, smollm2_oracle[1])


@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_tiny_gqa_greedy_text(tiny_gqa, backend):
    model = load_model("tiny-gqa", backend=backend).model
    assert_ten_greedy_texts_agree(model, tiny_gqa.tokenizer, transformers_logits(tiny_gqa.path))


def test_the_tie_rule_itself():
    """A made-up oracle: token 1 always, token 2 just behind it at the third step, far behind elsewhere."""

    def oracle(ids):
        rows = np.zeros((len(ids), 4))
        rows[:, 1], rows[:, 2] = 5.0, 4.0
        rows[2, 2] = 5.0 - 5e-4
        return rows

    def always(token_at):
        return lambda ids, n: [token_at(len(ids) + i) for i in range(n)]

    assert assert_same_greedy(always(lambda at: 1), oracle, [0], 6) == 0
    assert assert_same_greedy(always(lambda at: 2 if at == 3 else 1), oracle, [0], 6) == 1
    with pytest.raises(AssertionError, match="token 3: 2, but the oracle prefers 1"):
        assert_same_greedy(always(lambda at: 2 if at in (3, 4) else 1), oracle, [0], 6)
