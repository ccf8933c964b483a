"""Text to token ids and back, from a Hugging Face `tokenizer.json` or from a GGUF's own vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers.decoders import ByteLevel

from mini_engine.catalog import ModelSpec
from mini_engine.models.chat_template import render
from mini_engine.models.detokenizer import ByteLevelDetokenizer, IncrementalDetokenizer, WindowDetokenizer
from mini_engine.models.errors import CorruptModelError


def byte_of_character() -> dict[str, int]:
    """GPT-2's printable stand-in for every byte, inverted: printable Latin-1 stands for itself, the rest follow from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_OF_CHARACTER = byte_of_character()


class Tokenizer:
    """A fast tokenizer with the little an engine needs of it."""

    def __init__(
        self,
        backend: Backend,
        *,
        eos_token_ids: Iterable[int] = (),
        chat_template: str | None = None,
        special_tokens: Mapping[str, str] | None = None,
    ) -> None:
        """`special_tokens` are the names a chat template may use: bos_token, eos_token, ..."""
        backend.no_truncation()  # some tokenizer.json files carry the settings of a training run
        backend.no_padding()
        self.backend = backend
        self.eos_token_ids = tuple(eos_token_ids)
        self.chat_template = chat_template
        self.special_tokens = dict(special_tokens or {})
        self._special_ids = {i for i, token in backend.get_added_tokens_decoder().items() if token.special}

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids. Control tokens written in the text become single tokens; BOS is added only if the tokenizer says so.

        Pass add_special_tokens=False for text from a chat template, which contains its own. ValueError for text that is not Unicode.
        """
        try:
            return self.backend.encode(text, add_special_tokens=add_special_tokens).ids
        except (TypeError, UnicodeError) as error:
            raise ValueError(f"the text cannot be encoded: {error}") from error

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of the ids; control tokens are left out, bytes that are not UTF-8 become U+FFFD. ValueError for a negative id."""
        try:
            return self.backend.decode(list(ids), skip_special_tokens=skip_special_tokens)
        except OverflowError as error:
            raise ValueError(f"token ids must be 0 or more, found {min(ids)}") from error

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> str:
        """The prompt for a conversation [{"role": ..., "content": ...}, ...]. ValueError when the model has no chat template."""
        if self.chat_template is None:
            raise ValueError("this model has no chat template: give it plain text, or use an instruction-tuned model")
        return render(self.chat_template, messages, add_generation_prompt=add_generation_prompt, **self.special_tokens)

    def detokenizer(self) -> IncrementalDetokenizer:
        """A new incremental detokenizer, for one output."""
        if isinstance(self.backend.decoder, ByteLevel):
            return ByteLevelDetokenizer(self._token_bytes)
        return WindowDetokenizer(self.decode, self._special_ids.__contains__)

    def _token_bytes(self, token_id: int) -> bytes:
        """What a token of a byte-level vocabulary adds to the text: nothing for control tokens and ids without a token."""
        token = None if token_id in self._special_ids else self.backend.id_to_token(token_id)
        if token is None:
            return b""
        try:
            return bytes(map(BYTE_OF_CHARACTER.__getitem__, token))
        except KeyError:  # an added token, stored as plain text
            return token.encode("utf-8")


def check_vocabulary(tokenizer: Tokenizer, spec: ModelSpec, source: object) -> None:
    """Raise CorruptModelError when the tokenizer can produce ids for which the model has no embedding."""
    if tokenizer.vocab_size > spec.vocab_size:
        raise CorruptModelError(
            f"{source}: the tokenizer has {tokenizer.vocab_size} ids, the model's vocab_size is {spec.vocab_size}; "
            "they do not belong together: fetch both again"
        )
