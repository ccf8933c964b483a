"""Token ids against transformers and against a byte-pair encoder written out slowly from the published rules."""

from __future__ import annotations

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_engine.models import Tokenizer
from tests.models.damage import TOKENS, byte_level_tokenizer

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  two  spaces, a\ttab,\r\n a line\n\n\n and more   ",
    "def f(x):\n    return x ** 2  # 12345 + 3.14159e-10\n",
    "I'll say it's they've we'd I'm you're can't DON'T",
    "Il fait beau à Paris, n'est-ce pas? Straße, naïve, Ångström",
    "你好，世界。日本語のテキスト。한국어 텍스트.",
    "👩‍👩‍👧 🇫🇷 👍🏽 🗼 e\u0301 \u00a0 \u200b \ufeff \ufffd",
    "<|im_start|>user\nhello<|im_end|>\n<|endoftext|><repo_name>x",
    "<|im_start <|im_start|> <|im_start|>> <<|im_end|>",
    "\x00\x01\x7f\x80",
    "a" * 500,
    "1234567890" * 5,
]
DIGITS_AFTER_SPACES = ["\n 3.14", "a  1", "\n\n12", "  ½ ٣", "x = [\n    1,\n    2,\n]"]
GPT2_PATTERN = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


@pytest.fixture(scope="module")
def smollm2_gguf(smollm2):
    """The vocabulary of the file, read with the package alone."""
    import gguf

    fields = gguf.GGUFReader(smollm2.path).fields
    return {name: fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type", "merges")}


@pytest.fixture(scope="module")
def slow_encode(smollm2_gguf):
    """llama.cpp's rules for `smollm`: control tokens first, then every \\p{N} alone, then GPT-2's pattern, then merges by rank."""
    ids = {token: i for i, token in enumerate(smollm2_gguf["tokens"])}
    rank = {tuple(merge.split(" ")): i for i, merge in enumerate(smollm2_gguf["merges"])}
    control = [token for token, kind in zip(smollm2_gguf["tokens"], smollm2_gguf["token_type"]) if kind == 3]
    control_pattern = regex.compile("(" + "|".join(map(regex.escape, control)) + ")")
    stand_in, extra = {}, 0
    for byte in range(256):  # GPT-2's bytes_to_unicode
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
            stand_in[byte] = chr(byte)
        else:
            stand_in[byte], extra = chr(256 + extra), extra + 1

    def merge(word):
        parts = [stand_in[byte] for byte in word.encode()]
        while len(parts) > 1:
            best = min(range(len(parts) - 1), key=lambda i: rank.get((parts[i], parts[i + 1]), len(rank)))
            if (parts[best], parts[best + 1]) not in rank:
                break
            parts[best : best + 2] = [parts[best] + parts[best + 1]]
        return parts

    def encode(text):
        out = []
        for piece in control_pattern.split(text):
            if piece in control:
                out.append(ids[piece])
                continue
            for run in regex.split(r"(\p{N})", piece):
                for word in GPT2_PATTERN.findall(run):
                    out += [ids[part] for part in merge(word) if part in ids]  # some bytes have no token at all
        return out

    return encode


@pytest.mark.model
@pytest.mark.parametrize("text", TEXTS + DIGITS_AFTER_SPACES, ids=lambda text: repr(text[:20]))
def test_smollm2_ids_follow_the_rules(smollm2, slow_encode, text):
    ids = smollm2.tokenizer.encode(text)
    assert ids == slow_encode(text)
    assert smollm2.tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.model
@settings(max_examples=150)
@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \n\t'0aé字👍<|>"), max_size=40))
def test_smollm2_ids_follow_the_rules_for_any_text(smollm2, slow_encode, text):
    """The vocabulary has no token for a few bytes: six control characters and the unused planes from U+40000 on are lost."""
    ids = smollm2.tokenizer.encode(text)
    assert ids == slow_encode(text)
    if not any(character in "\x04\x06\x13\x14\x16\x1d" or ord(character) >= 0x40000 for character in text):
        assert smollm2.tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.model
def test_smollm2_ids_are_those_of_transformers(smollm2):
    """Except for a digit after white space: transformers rebuilds this tokenizer without the rule that digits stand alone."""
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(smollm2.path.parent, gguf_file=smollm2.path.name)
    for text in TEXTS:
        if regex.search(r"\s\s\p{N}|[^\p{N} ]\p{No}", text):
            continue
        assert smollm2.tokenizer.encode(text) == theirs(text)["input_ids"], text
    conversation = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "?"},
    ]
    assert smollm2.tokenizer.apply_chat_template(conversation) == theirs.apply_chat_template(
        conversation, tokenize=False, add_generation_prompt=True
    )


def test_tiny_gqa_ids_are_those_of_transformers(tiny_gqa):
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(tiny_gqa.path)
    for text in TEXTS + DIGITS_AFTER_SPACES:
        ids = tiny_gqa.tokenizer.encode(text)
        assert ids == theirs(text)["input_ids"], text
        assert tiny_gqa.tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_vocab_size_is_one_more_than_the_largest_id(tiny_gqa):
    assert tiny_gqa.tokenizer.vocab_size == tiny_gqa.spec.vocab_size == 2048
    assert Tokenizer(byte_level_tokenizer()).vocab_size == len(TOKENS)


def test_settings_of_a_training_run_are_dropped():
    backend = byte_level_tokenizer()
    backend.enable_truncation(4)
    backend.enable_padding(length=20)
    assert len(Tokenizer(backend).encode("many more than four tokens")) == len(
        byte_level_tokenizer().encode("many more than four tokens").ids
    )


def test_half_a_surrogate_pair_is_no_text(tiny_gqa):
    with pytest.raises(ValueError, match="cannot be encoded"):
        tiny_gqa.tokenizer.encode("\ud83d")


def test_decode_takes_arrays_and_drops_control_tokens(tiny_gqa):
    ids = [*tiny_gqa.tokenizer.encode("Emma"), 0]
    assert tiny_gqa.tokenizer.decode(np.array(ids)) == "Emma"
    assert tiny_gqa.tokenizer.decode(ids, skip_special_tokens=False) == "Emma<|endoftext|>"


def test_negative_ids_are_refused(tiny_gqa):
    with pytest.raises(ValueError, match="found -2"):
        tiny_gqa.tokenizer.decode([5, -2])


def test_a_model_without_a_chat_template_says_so(tiny_gqa):
    with pytest.raises(ValueError, match="no chat template"):
        tiny_gqa.tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}])
