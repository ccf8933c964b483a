"""Text as it grows: one token in, the new characters out, never half a character, in time that does not grow with the text."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
LONGEST_CHARACTER = 4  # bytes of UTF-8


class IncrementalDetokenizer:
    """What every detokenizer offers. The pieces, joined, are what decoding all ids at once gives."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def add(self, token_id: int) -> str:
        """The text this token completes: "" while a character is still incomplete."""
        return self._keep(self._next(token_id))

    def finish(self) -> str:
        """The text still held back; an incomplete character becomes U+FFFD."""
        return self._keep(self._rest())

    @property
    def text(self) -> str:
        """All text so far, without what is held back."""
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def _keep(self, piece: str) -> str:
        if piece:
            self._pieces.append(piece)
        return piece

    def _next(self, token_id: int) -> str:
        raise NotImplementedError

    def _rest(self) -> str:
        raise NotImplementedError


class ByteLevelDetokenizer(IncrementalDetokenizer):
    """For byte-level BPE (GPT-2, Llama 3, SmolLM2): a token is a string of bytes, so the text is one UTF-8 stream."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        super().__init__()
        self._token_bytes = token_bytes
        self._stream = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def _next(self, token_id: int) -> str:
        return self._stream.decode(self._token_bytes(token_id))

    def _rest(self) -> str:
        return self._stream.decode(b"", final=True)


class WindowDetokenizer(IncrementalDetokenizer):
    """For any other tokenizer: decode the last few tokens with and without the new one, and emit the difference.

    The tokens before the new one are there for what depends on neighbours, such as the spaces between words.
    A decoder that rewrites earlier text when later tokens arrive cannot be followed exactly; none in use does so for valid UTF-8.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], skip: Callable[[int], bool]) -> None:
        super().__init__()
        self._decode, self._skip = decode, skip
        self._before: list[int] = []  # already emitted
        self._new: list[int] = []  # not yet emitted

    def _next(self, token_id: int) -> str:
        if self._skip(token_id):
            return ""
        self._new.append(token_id)
        if len(self._new) < LONGEST_CHARACTER and self._decode(self._before + self._new).endswith(REPLACEMENT):
            return ""
        return self._rest()

    def _rest(self) -> str:
        piece = self._decode(self._before + self._new)[len(self._decode(self._before)) :]
        if self._new:
            self._before, self._new = self._new, []
        return piece
