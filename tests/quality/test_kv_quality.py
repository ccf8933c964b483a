"""How the cost of a lossy cache is measured: against transformers' loss, against real decoding, on texts of known make-up."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mini_engine import LLM, SamplingParams, get_model
from mini_engine.attention import KVScheme
from mini_engine.data_files import data_dir
from mini_engine.geometry import kv_bytes_quant
from mini_engine.kv_quality import (
    NAMES,
    QUESTION,
    SCHEMES,
    Haystack,
    haystacks,
    kv_bytes,
    logits,
    losses,
    pool_losses,
    retrieved,
)
from mini_engine.models import load_model

TEXT = (data_dir() / "text" / "moby_dick_61.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def encode(tiny_gqa):
    return partial(tiny_gqa.tokenizer.encode, add_special_tokens=False)


def test_the_exact_loss_is_transformers(tiny_gqa, encode):
    from transformers import LlamaForCausalLM

    ids = encode(TEXT)[:100]
    theirs = LlamaForCausalLM.from_pretrained(tiny_gqa.path, dtype=torch.float32)
    found = losses(tiny_gqa.model, ids, length=40)
    assert found.shape == (2 * 39,)  # two whole texts, each with its first token given
    for i, start in enumerate((0, 40)):
        text = torch.tensor([ids[start : start + 40]])
        with torch.no_grad():
            expected = theirs(input_ids=text, labels=text).loss.item()
        assert found[39 * i : 39 * (i + 1)].mean() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_says_what_decoding_with_its_cache_says(name, encode):
    """Greedy text of the cache inside the engine, token by token, against one pass over the whole."""
    model = load_model("tiny-gqa", backend="numpy")
    scheme = SCHEMES[name]
    if scheme.window:
        scheme = KVScheme(window=9 - scheme.num_sinks, num_sinks=scheme.num_sinks)
    prompt = encode(TEXT)[:1]  # tokens of a longer prompt would come together, and see each other past the window
    count = 40
    out = LLM(model, cache=scheme.cache).generate(
        [prompt], SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)
    )
    ids = prompt + out[0].outputs[0].token_ids
    rows = logits(model.model, ids[:-1], scheme, range(count))
    assert rows.argmax(axis=-1).tolist() == ids[1:]


def test_losses_grow_as_bits_go(tiny_gqa, encode):
    ids = encode(TEXT)[:512]
    mean = {name: losses(tiny_gqa.model, ids, SCHEMES[name], 256).mean() for name in SCHEMES}
    exact = mean["fp32"]
    assert abs(mean["int8 per token"] - exact) < 2e-3
    assert exact < mean["int4 per token, no zero"] < mean["int2 KIVI, zero"] < mean["int2 per token, zero"]


@pytest.mark.parametrize(
    ("name", "bits", "group", "scale", "zero"),
    [
        ("fp8", 8, 64, 0, 0),
        ("int8 per token", 8, 64, 2, 0),
        ("int4 per token, no zero", 4, 32, 2, 0),
        ("int4 KIVI, no zero", 4, 32, 2, 0),
        ("int4 per token, zero", 4, 32, 2, 2),
        ("int4 KIVI, zero", 4, 32, 2, 2),
        ("int2 KIVI, zero", 2, 32, 2, 2),
    ],
)
def test_bytes_are_the_formulas(name, bits, group, scale, zero):
    spec = get_model("smollm2-135m")
    assert kv_bytes(spec, SCHEMES[name], 64) == 64 * kv_bytes_quant(spec, bits, group, scale, zero)


def test_windows_of_the_same_bytes_are_compared():
    spec = get_model("smollm2-135m")
    assert kv_bytes(spec, SCHEMES["window 128"], 512) == kv_bytes(spec, SCHEMES["window 124 + 4 sinks"], 512)
    assert kv_bytes(spec, SCHEMES["window 128"], 512) == kv_bytes(spec, SCHEMES["fp32"], 128)


@pytest.mark.parametrize(("length", "num_facts"), [(512, 4), (301, 3), (256, 1)])
def test_a_haystack_holds_each_fact_once_in_its_own_part_and_asks_for_it(tiny_gqa, encode, length, num_facts):
    filler = encode(TEXT)
    made = haystacks(encode, filler, 3, num_facts=num_facts, length=length, seed=5)
    assert len({tuple(stack.token_ids) for stack in made}) == 3
    assert made == haystacks(encode, filler, 3, num_facts=num_facts, length=length, seed=5)
    for stack in made:
        assert len(stack.token_ids) == length
        first_question = min(stack.answers, key=lambda answer: answer.start)
        asked_at = (
            first_question.start - len(encode(QUESTION.format(name=NAMES[0]))) - 2
        )  # names differ in their tokens
        body = tiny_gqa.tokenizer.decode(stack.token_ids[:asked_at])
        text = tiny_gqa.tokenizer.decode(stack.token_ids)
        places = []
        for answer in stack.answers:
            number = tiny_gqa.tokenizer.decode(stack.token_ids[answer]).strip()
            assert len(number) == 5
            (name,) = [n for n in NAMES if f"The number of {n} is {number}.\n" in body]
            assert text.count(number) == text.count(f"The number of {name} is {number}") == 2, "one fact, one answer"
            places.append(body.index(number) / len(body))
        for i, place in enumerate(places):
            assert i / num_facts - 0.12 < place < (i + 1) / num_facts + 0.12


def test_haystacks_that_cannot_be_are_refused(encode):
    with pytest.raises(ValueError, match="length=60: 4 facts and their questions leave room for -"):
        haystacks(encode, encode(TEXT), 1, length=60)
    with pytest.raises(ValueError, match="and 10 are given"):
        haystacks(encode, encode(TEXT)[:10], 1)


class Parrot:
    """Says after every token what `says` maps its position to."""

    def __init__(self, says: dict[int, int]) -> None:
        self.spec, self.says = SimpleNamespace(is_mla=False, head_dim=2), says

    def forward(self, token_ids, positions, attend, rows):
        logits = np.zeros((len(rows), 10))
        for i, row in enumerate(rows):
            logits[i, self.says[row]] = 1
        return logits


def test_a_fact_is_found_when_every_token_of_its_answer_is():
    stack = Haystack([0, 1, 2, 3, 4, 5, 6], [slice(5, 7), slice(2, 4)])
    right = {4: 5, 5: 6, 1: 2, 2: 3}
    assert retrieved(Parrot(right), stack) == [True, True]
    assert retrieved(Parrot(right | {5: 9}), stack) == [False, True]
    assert retrieved(Parrot(right | {1: 9}), stack) == [True, False]


def test_what_cannot_be_measured_is_refused(tiny_gqa):
    with pytest.raises(ValueError, match="length=8: must be between 2 and the 7 tokens given"):
        losses(tiny_gqa.model, [1] * 7, length=8)
    latent = SimpleNamespace(spec=SimpleNamespace(is_mla=True))
    with pytest.raises(ValueError, match="one latent vector a token"):
        losses(latent, [1] * 8, length=8)


@pytest.mark.model
def test_the_real_model_finds_facts_unless_a_window_has_dropped_them(smollm2):
    encode = partial(smollm2.tokenizer.encode, add_special_tokens=False)
    stacks = haystacks(encode, encode(TEXT), 3, length=256, num_facts=2)
    assert sum(sum(retrieved(smollm2.model, stack)) for stack in stacks) >= 4
    gone = KVScheme(window=40, num_sinks=4)
    assert sum(sum(retrieved(smollm2.model, stack, gone)) for stack in stacks) == 0


@pytest.mark.parametrize(("kv_cache_dtype", "scheme"), [("auto", "fp32"), ("fp8", "fp8"), ("int8", "int8 per token")])
@pytest.mark.parametrize("length", [16, 100])
def test_the_engines_pools_lose_what_the_schemes_lose(tiny_gqa, encode, kv_cache_dtype, scheme, length):
    ids = encode(TEXT)[:200]
    pools = pool_losses(tiny_gqa.model, ids, kv_cache_dtype, length)
    expected = losses(tiny_gqa.model, ids, SCHEMES[scheme], length)
    assert pools.shape == expected.shape
    # The schemes keep int8's scales in 16 bits, the pools in 32, so single tokens may differ where rounding does.
    tolerance = 1e-4 if kv_cache_dtype == "auto" else 0.05
    np.testing.assert_allclose(pools, expected, atol=tolerance)
    assert pools.mean() == pytest.approx(expected.mean(), abs=5e-3)
