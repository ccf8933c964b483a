"""When a continuation ends, and how much of its text may already be shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from mini_engine.outputs import FinishReason
from mini_engine.sampling import SamplingParams


class Detokenizer(Protocol):
    """Turns tokens into text as they come (`Tokenizer.detokenizer()`)."""

    def add(self, token_id: int) -> str:
        """The text that is certain after this token; "" in the middle of a character."""

    def finish(self) -> str:
        """What was held back, once no token follows."""


class StopChecker:
    """Follows one branch, token by token. `text` never holds anything that a stop string could still cut.

    After each token the checks come in this order: within `min_tokens` nothing but the length ends the branch;
    a stop token; a stop string; the length. Without a detokenizer the text stays empty, and stop strings raise.
    max_tokens: the limit to keep when the context leaves less room than `params.max_tokens`.
    """

    def __init__(
        self,
        params: SamplingParams,
        eos_token_ids: Iterable[int] = (),
        detokenizer: Detokenizer | None = None,
        *,
        max_tokens: int | None = None,
    ) -> None:
        if params.stop and detokenizer is None:
            raise ValueError(f"stop={params.stop!r}: stop strings need a tokenizer; use stop_token_ids without one")
        self.max_tokens = params.max_tokens if max_tokens is None else min(max_tokens, params.max_tokens)
        self.num_tokens = 0
        self.text = ""
        self.finish_reason: FinishReason | None = "length" if self.max_tokens == 0 else None
        self._min_tokens = params.min_tokens
        self._stop_ids = params.all_stop_token_ids(eos_token_ids)
        self._matcher = StopStringMatcher(tuple(params.stop))
        self._detokenizer = detokenizer

    def add(self, token_id: int) -> FinishReason | None:
        """Take the next token; returns why the branch ends with it, or None."""
        if self.finish_reason is not None:
            raise ValueError(f"token {token_id} after the end: this branch finished with {self.finish_reason!r}")
        self.num_tokens += 1
        may_stop = self.num_tokens > self._min_tokens
        if may_stop and token_id in self._stop_ids:
            self.finish("stop")  # the token itself gives no text
        elif self._detokenizer is not None:
            self.text += self._matcher.push(self._detokenizer.add(token_id), may_stop)
            if self._matcher.matched is not None:
                self.finish_reason = "stop"
        if self.finish_reason is None and self.num_tokens >= self.max_tokens:
            self.finish("length")
        return self.finish_reason

    def finish(self, reason: FinishReason) -> None:
        """End here, by the owner's decision or ours: no stop string can complete any more, so what was held back is text."""
        self.finish_reason = reason
        if self._detokenizer is not None:
            self.text += self._matcher.flush() + self._detokenizer.finish()


class StopStringMatcher:
    """Cuts a text that arrives in pieces before the stop string that is complete first, however it is pieced.

    Text that may be the beginning of a stop string is held back until it is known not to be one.
    """

    def __init__(self, stop: tuple[str, ...]) -> None:
        self.matched: str | None = None
        self._stop = stop
        self._prefixes = {text[:size] for text in stop for size in range(1, len(text))}
        self._longest = max(map(len, stop), default=1) - 1
        self._held = ""
        self._passed = 0  # leading characters of _held in which no stop string may end

    def push(self, text: str, may_stop: bool = True) -> str:
        """The text that may be shown now. Sets `matched` when a stop string ends in it and `may_stop` allows."""
        text = self._held + text
        if not may_stop:
            self._passed = len(text)
        ends = []
        for stop in self._stop:
            start = text.find(stop, max(0, self._passed - len(stop) + 1))
            if start >= 0:
                ends.append((start + len(stop), start, stop))
        if ends:
            _, start, self.matched = min(ends)
            self._held = ""
            return text[:start]
        held = next((n for n in range(min(self._longest, len(text)), 0, -1) if text[-n:] in self._prefixes), 0)
        show, self._held = text[: len(text) - held], text[len(text) - held :]
        self._passed = max(0, self._passed - len(show))
        return show

    def flush(self) -> str:
        """What is still held back: no more text will come."""
        text, self._held = self._held, ""
        return text
