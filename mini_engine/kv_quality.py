"""What a lossy KV cache costs a model: its loss on real text, and whether it still finds a fact far back.

Both are counted as in decoding, where a query reads what the cache holds at its step (`lossy_attention`), in one forward
pass a text.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mini_engine.attention import Fp8Codec, IntCodec, KVScheme, kivi, lossy_attention
from mini_engine.backends.contiguous import to_numpy
from mini_engine.catalog import ModelSpec

INT8, INT4 = IntCodec(8), IntCodec(4, group=32)
INT4_ZERO, INT2_ZERO = (IntCodec(bits, group=32, symmetric=False) for bits in (4, 2))
INT4_CHANNEL = IntCodec(4, "channel", group=32)

SCHEMES = {
    "fp32": KVScheme(),
    "fp8": KVScheme(Fp8Codec(), Fp8Codec()),
    "int8 per token": KVScheme(INT8, INT8),
    "int4 per token, no zero": KVScheme(INT4, INT4),
    "int4 KIVI, no zero": KVScheme(INT4_CHANNEL, INT4),
    "int4 per token, zero": KVScheme(INT4_ZERO, INT4_ZERO),
    "int4 KIVI, zero": KVScheme(*kivi(4)),
    "int2 per token, zero": KVScheme(INT2_ZERO, INT2_ZERO),
    "int2 KIVI, zero": KVScheme(*kivi(2)),
    "window 128": KVScheme(window=128),
    "window 124 + 4 sinks": KVScheme(window=124, num_sinks=4),
}
"""Codecs with fp16 scales, and zeros where the name says so: int8 one a head and token, int4 and int2 one for 32 numbers.

"KIVI" is its grouping: keys per channel, values per token. KIVI itself stores zeros."""

BLOCK_SIZE = 16
NAMES = ("Alice", "Boris", "Clara", "David", "Esther", "Felix", "Grace", "Hugo", "Irene", "Jonas")
NEEDLE = "\n\nThe number of {name} is {number}.\n\n"
QUESTION = "\n\nThe number of {name} is"


def kv_bytes(spec: ModelSpec, scheme: KVScheme, num_tokens: int) -> int:
    """Bytes that a cache of this scheme holds after `num_tokens` tokens: codes, scales, zeros, and what waits in float32."""
    cache = scheme.cache(spec.num_hidden_layers, num_tokens, spec.num_key_value_heads, spec.head_dim)
    x = np.zeros((num_tokens, spec.num_key_value_heads, spec.head_dim), dtype=np.float32)
    for layer in range(spec.num_hidden_layers):
        cache.append(layer, x, x)
    return cache.nbytes


def logits(model: Any, token_ids: Sequence[int], scheme: KVScheme, rows: Sequence[int]) -> np.ndarray:
    """Logits [R, V] in float64 after the tokens at `rows`. ValueError for a model that caches a latent."""
    if model.spec.is_mla:
        raise ValueError("schemes are for keys and values per head; this model caches one latent vector a token")

    def attend(layer: int, q: Any, k: Any, v: Any) -> Any:
        out = lossy_attention(to_numpy(q), to_numpy(k), to_numpy(v), model.softmax_scale, scheme)
        return out if isinstance(q, np.ndarray) else q.new_tensor(out)

    return to_numpy(model.forward(token_ids, range(len(token_ids)), attend, list(rows))).astype(np.float64)


def losses(model: Any, token_ids: Sequence[int], scheme: KVScheme = SCHEMES["fp32"], length: int = 512) -> np.ndarray:
    """Nats of every predicted token, in texts of `length` tokens that each start without history; a shorter rest is left out.

    Their mean is the loss, its exponential the perplexity. The first token of a text is given. ValueError when there is
    not one whole text.
    """
    return _losses(token_ids, length, lambda text: logits(model, text, scheme, range(length - 1)))


def pool_losses(model: Any, token_ids: Sequence[int], kv_cache_dtype: str, length: int = 512) -> np.ndarray:
    """`losses` of the engine's own torch backend, whose paged pool is kept in `kv_cache_dtype`; latent attention included."""
    from mini_engine.backends import BatchInput, TorchBackend

    backend = TorchBackend(model, kv_cache_dtype=kv_cache_dtype)
    num_blocks = -(-length // BLOCK_SIZE)
    backend.init_kv(num_blocks, BLOCK_SIZE)

    def text_logits(text: Sequence[int]) -> np.ndarray:
        batch = BatchInput(
            token_ids=np.array(text, dtype=np.int64),
            positions=np.arange(length),
            slot_mapping=np.arange(length) + BLOCK_SIZE,  # block 0 is the null block
            block_tables=np.arange(1, num_blocks + 1, dtype=np.int32)[None],
            context_lens=np.array([length], dtype=np.int32),
            query_start_loc=np.array([0, length], dtype=np.int32),
            logits_rows=np.arange(length - 1),
        )
        result = backend.execute(batch)
        return np.stack([result.logits(row) for row in range(length - 1)]).astype(np.float64)

    return _losses(token_ids, length, text_logits)


def _losses(token_ids: Sequence[int], length: int, text_logits: Callable[[Sequence[int]], np.ndarray]) -> np.ndarray:
    if not 2 <= length <= len(token_ids):
        raise ValueError(f"length={length}: must be between 2 and the {len(token_ids)} tokens given")
    found = []
    for start in range(0, len(token_ids) - length + 1, length):
        text = token_ids[start : start + length]
        x = text_logits(text)
        x -= x.max(axis=-1, keepdims=True)
        found.append(np.log(np.exp(x).sum(axis=-1)) - x[np.arange(length - 1), text[1:]])
    return np.concatenate(found)


@dataclass(frozen=True)
class Haystack:
    """A text with facts in it, and at its end a question about each, followed by its answer."""

    token_ids: list[int]
    answers: list[slice]  # where in token_ids, in the order in which the facts stand in the text


def haystacks(
    encode: Callable[[str], list[int]],
    filler: Sequence[int],
    count: int,
    *,
    num_facts: int = 4,
    length: int = 512,
    seed: int = 0,
) -> list[Haystack]:
    """`count` texts of exactly `length` tokens: a passage of `filler` with `num_facts` facts, one in each equal part of it.

    A fact is "The number of Clara is 48213." with a name of NAMES and five random digits. At the end every fact is asked
    for in random order; a question sees the right answers to those before it. ValueError when the texts do not fit.
    """
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        facts = [(name, str(rng.randrange(10_000, 100_000))) for name in rng.sample(NAMES, num_facts)]
        needles = [encode(NEEDLE.format(name=name, number=number)) for name, number in facts]
        tail: list[int] = []
        answers = [slice(0)] * num_facts
        for i in rng.sample(range(num_facts), num_facts):
            name, number = facts[i]
            tail += encode(QUESTION.format(name=name))
            answer = encode(f" {number}")
            answers[i] = slice(len(tail), len(tail) + len(answer))
            tail += answer
        room = length - len(tail) - sum(map(len, needles))
        if room < num_facts or room > len(filler):
            raise ValueError(
                f"length={length}: {num_facts} facts and their questions leave room for {room} tokens of filler; there must "
                f"be room for at least {num_facts}, and {len(filler)} are given"
            )
        start = rng.randrange(len(filler) - room + 1)
        part = room // num_facts
        token_ids: list[int] = []
        for i, needle in enumerate(needles):
            passage = list(filler[start + i * part : start + (i + 1) * part])
            at = rng.randrange(part)
            token_ids += passage[:at] + needle + passage[at:]
        token_ids += list(filler[start + num_facts * part : start + room])
        base = len(token_ids)
        made.append(Haystack(token_ids + tail, [slice(base + a.start, base + a.stop) for a in answers]))
    return made


def retrieved(model: Any, haystack: Haystack, scheme: KVScheme = SCHEMES["fp32"]) -> list[bool]:
    """For each fact, whether greedy decoding answers with exactly its number.

    It does so if and only if every token of the answer is the most likely one after the right tokens before it, which one
    pass over the text shows for all of them.
    """
    rows = [at - 1 for answer in haystack.answers for at in range(answer.start, answer.stop)]
    best = dict(zip(rows, logits(model, haystack.token_ids, scheme, rows).argmax(axis=-1).tolist()))
    return [
        all(best[at - 1] == haystack.token_ids[at] for at in range(answer.start, answer.stop))
        for answer in haystack.answers
    ]
