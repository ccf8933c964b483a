"""Text that grows token by token is the text of all tokens at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers

from mini_engine.models import Tokenizer
from mini_engine.models.detokenizer import ByteLevelDetokenizer, WindowDetokenizer
from tests.models.damage import byte_level_tokenizer

REPLACEMENT = "\ufffd"
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("aé€字👍\u200d\ufffd"), max_size=30)


def byte_fallback_tokenizer() -> Backend:
    """SentencePiece's kind, as Llama 2 has it: spaces are ▁, unknown characters are spelt in byte tokens."""
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "▁hello",
        "hello",
        *map(chr, range(33, 127)),
    ]
    backend = Backend(
        models.BPE({token: i for i, token in enumerate(tokens)}, [], byte_fallback=True, unk_token="<unk>")
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(["<s>", "</s>"])
    return backend


def word_tokenizer() -> Backend:
    backend = Backend(models.WordLevel({"[UNK]": 0, "one": 1, "two": 2, "three": 3}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return backend


BYTE_LEVEL, BYTE_FALLBACK, WORDS = (
    Tokenizer(backend) for backend in (byte_level_tokenizer(), byte_fallback_tokenizer(), word_tokenizer())
)


def pieces_of(tokenizer, ids):
    detokenizer = tokenizer.detokenizer()
    pieces = [detokenizer.add(token_id) for token_id in ids]
    pieces.append(detokenizer.finish())
    assert detokenizer.text == "".join(pieces)
    return pieces


def test_each_kind_of_vocabulary_gets_its_detokenizer():
    assert isinstance(BYTE_LEVEL.detokenizer(), ByteLevelDetokenizer)
    assert isinstance(BYTE_FALLBACK.detokenizer(), WindowDetokenizer)
    assert isinstance(WORDS.detokenizer(), WindowDetokenizer)


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, BYTE_FALLBACK], ids=["byte level", "byte fallback"])
@given(TEXT)
def test_any_text(tokenizer, text):
    ids = tokenizer.encode(text)
    pieces = pieces_of(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids)
    if REPLACEMENT not in text:
        assert not any(REPLACEMENT in piece for piece in pieces)


@settings(max_examples=300)
@given(st.lists(st.integers(0, BYTE_LEVEL.vocab_size + 5), max_size=40))
def test_any_ids_of_a_byte_level_vocabulary(ids):
    """Mostly broken UTF-8, with control tokens and ids that have no token in between."""
    pieces = pieces_of(BYTE_LEVEL, ids)
    whole = BYTE_LEVEL.decode(ids)
    assert "".join(pieces) == whole
    if REPLACEMENT not in whole:
        assert not any(REPLACEMENT in piece for piece in pieces)


@given(st.lists(st.integers(0, 2047), max_size=60))
def test_any_ids_of_tiny_gqa(tiny_gqa, ids):
    assert "".join(pieces_of(tiny_gqa.tokenizer, ids)) == tiny_gqa.tokenizer.decode(ids)


@pytest.mark.model
@given(st.lists(st.integers(0, 49151), max_size=60))
def test_any_ids_of_smollm2(smollm2, ids):
    assert "".join(pieces_of(smollm2.tokenizer, ids)) == smollm2.tokenizer.decode(ids)


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, BYTE_FALLBACK], ids=["byte level", "byte fallback"])
def test_a_character_appears_with_its_last_byte(tokenizer):
    ids = tokenizer.encode("👍")  # four tokens here, one for each byte
    pieces = pieces_of(tokenizer, ids)
    assert pieces[-5:] == ["", "", "", "👍", ""]


def test_an_unfinished_character_is_replaced_at_the_end():
    ids = BYTE_LEVEL.encode("x👍")[:-1]
    assert pieces_of(BYTE_LEVEL, ids) == ["x", "", "", "", REPLACEMENT]


def test_spaces_between_words_and_at_the_start():
    ids = BYTE_FALLBACK.encode("hello hello")
    assert "".join(pieces_of(BYTE_FALLBACK, ids)) == "hello hello"
    assert pieces_of(WORDS, [1, 2, 3]) == ["one", " two", " three", ""]
    control = BYTE_FALLBACK.backend.token_to_id("</s>")
    assert "".join(pieces_of(BYTE_FALLBACK, [control, *ids, control, *ids])) == "hello hello hello hello"


def test_endless_broken_bytes_do_not_pile_up():
    """A model that emits nothing but stray bytes must not hold its text back for ever."""
    stray = BYTE_FALLBACK.backend.token_to_id("<0xFF>")
    detokenizer = BYTE_FALLBACK.detokenizer()
    for _ in range(40):
        detokenizer.add(stray)
    assert len(detokenizer.text) >= 36
    assert detokenizer.text + detokenizer.finish() == BYTE_FALLBACK.decode([stray] * 40)


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, BYTE_FALLBACK], ids=["byte level", "byte fallback"])
def test_work_does_not_grow_with_the_text(tokenizer, monkeypatch):
    """Counted, not timed: how many ids and bytes are looked at for each token."""
    ids = tokenizer.encode("hello 👍 " * 500)
    looked_at = 0
    decode, token_bytes = Tokenizer.decode, Tokenizer._token_bytes

    def counting_decode(self, some, **options):
        nonlocal looked_at
        looked_at += len(some)
        return decode(self, some, **options)

    def counting_bytes(self, token_id):
        nonlocal looked_at
        looked_at += 1
        return token_bytes(self, token_id)

    monkeypatch.setattr(Tokenizer, "decode", counting_decode)
    monkeypatch.setattr(Tokenizer, "_token_bytes", counting_bytes)
    pieces_of(tokenizer, ids)
    assert len(ids) <= looked_at <= 12 * len(ids)
