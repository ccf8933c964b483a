"""A model whose next token is an exact function of the whole history, reached through attention and the cache alone."""

from __future__ import annotations

import codecs
from types import SimpleNamespace

import numpy as np

from mini_engine.catalog import ModelSpec

PIECES = [bytes([letter]) for letter in b"abcdefghijklmnopqrstuvwxyz ."] + [b"\xc3", b"\xa9", b"", b""]
EOS = 31
VOCAB = len(PIECES)
CONTEXT = 64


def next_token(history: list[int]) -> int:
    """The oracle: every token counts, at its place. The end-of-sequence token comes about once in 32."""
    return sum((token + 1) * (position + 3) for position, token in enumerate(history)) * 7 % 1009 % VOCAB


def continuation(prompt: list[int], count: int) -> list[int]:
    history = list(prompt)
    for _ in range(count):
        history.append(next_token(history))
    return history[len(prompt) :]


class HistoryModel:
    """Queries are 0, so attention is the plain mean over the keys it sees; the mean times their number is the oracle's sum.

    A cache that loses, repeats, moves or leaks a token changes the sum, and with it the next token.
    """

    def __init__(self, backend: str = "numpy", context: int = CONTEXT) -> None:
        self.spec = ModelSpec(
            name="history",
            num_hidden_layers=2,
            hidden_size=8,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=2,
            intermediate_size=8,
            vocab_size=VOCAB,
            max_position_embeddings=context,
            eos_token_ids=(EOS,),
        )
        self.softmax_scale = 2**-0.5
        self.dtype = np.dtype(np.float64)
        self.wrap = np.asarray
        self.calls: list[tuple[int, list[int]]] = []  # (tokens in the pass, rows of logits asked for)
        self.poison: float | None = None
        if backend == "torch":
            import torch

            self.device, self.dtype, self.wrap = torch.device("cpu"), torch.float64, torch.as_tensor

    def forward(self, token_ids, positions, attend, logits_rows=None):
        token_ids, positions = np.asarray(token_ids), np.asarray(positions)
        self.calls.append((len(token_ids), list(logits_rows)))
        term = ((token_ids + 1) * (positions + 3)).astype(float)
        kv = np.broadcast_to(term[:, None, None], (len(token_ids), 2, 2)).copy()
        q = np.zeros((len(token_ids), 4, 2))
        for layer in range(2):
            out = np.asarray(attend(layer, self.wrap(q), self.wrap(kv), self.wrap(kv * (layer + 1))))
            assert out.shape == q.shape
            totals = out[:, 0, 0] / (layer + 1) * (positions + 1)
            np.testing.assert_allclose(totals, np.round(totals), atol=1e-2, err_msg="not a mean over the whole history")
        logits = np.empty((len(logits_rows), VOCAB))
        for i, row in enumerate(logits_rows):
            best = int(np.round(totals[row])) * 7 % 1009 % VOCAB
            logits[i] = -0.5 * ((np.arange(VOCAB) - best) % VOCAB)  # falls off after the best token
        if self.poison is not None:
            logits[:, 3] = self.poison
        return self.wrap(logits)


class ByteTokenizer:
    """One token per byte of PIECES: the two bytes of "é" are two tokens, and the end token has no text."""

    eos_token_ids = (EOS,)
    vocab_size = VOCAB
    bos: tuple[int, ...] = ()

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [*(self.bos if add_special_tokens else ())] + [PIECES.index(bytes([byte])) for byte in text.encode()]

    def decode(self, ids) -> str:
        return b"".join(PIECES[i] for i in ids).decode(errors="replace")

    def apply_chat_template(self, messages) -> str:
        return "".join(f"{m['role'][0]} {m['content']}." for m in messages)

    def detokenizer(self):
        stream = codecs.getincrementaldecoder("utf-8")(errors="replace")
        return SimpleNamespace(add=lambda i: stream.decode(PIECES[i]), finish=lambda: stream.decode(b"", final=True))


def loaded(backend: str = "numpy", *, tokenizer: bool = True, context: int = CONTEXT) -> SimpleNamespace:
    """What `load_model` would give."""
    model = HistoryModel(backend, context)
    return SimpleNamespace(model=model, tokenizer=ByteTokenizer() if tokenizer else None, spec=model.spec)
