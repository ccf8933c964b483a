"""Batches made by hand, and any schedule of them against a model without a cache: for every tensor backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mini_engine.backends.base import BatchInput
from mini_engine.catalog import ModelSpec

SMALL = {
    "grouped": ModelSpec(
        num_hidden_layers=2, hidden_size=24, num_attention_heads=6, num_key_value_heads=2, head_dim=8, intermediate_size=40,
        vocab_size=50, max_position_embeddings=128,
    ),
    "latent": ModelSpec(
        architecture="DeepseekV2ForCausalLM", model_type="deepseek_v2", num_hidden_layers=2, hidden_size=24,
        num_attention_heads=3, num_key_value_heads=3, head_dim=14, intermediate_size=40, vocab_size=50,
        max_position_embeddings=128, kv_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=10, v_head_dim=6,
        rope_interleave=True,
    ),
}  # fmt: skip
"""A model of each kind of attention, as small as they come."""


def make_batch(rows: list[tuple[list[int], int, list[int]]], block_size: int) -> BatchInput:
    """rows: (new tokens, tokens computed before, block table); table tails are padded with a block that does not exist."""
    width = max(len(table) for _, _, table in rows)
    spans = [range(start, start + len(tokens)) for tokens, start, _ in rows]
    slots = [
        table[at // block_size] * block_size + at % block_size
        for span, (_, _, table) in zip(spans, rows)
        for at in span
    ]
    starts = np.cumsum([0] + [len(tokens) for tokens, _, _ in rows])
    return BatchInput(
        token_ids=np.array([token for tokens, _, _ in rows for token in tokens], dtype=np.int64),
        positions=np.array([at for span in spans for at in span], dtype=np.int64),
        slot_mapping=np.array(slots, dtype=np.int64),
        block_tables=np.array([table + [9999] * (width - len(table)) for _, _, table in rows], dtype=np.int32),
        context_lens=np.array([span.stop for span in spans], dtype=np.int32),
        query_start_loc=starts.astype(np.int32),
        logits_rows=starts[1:] - 1,
    )


def poison(backend: Any) -> None:
    """Spoil every slot but the null block's: no output may depend on a slot that was not written.

    NaN, or where codes are stored 0x7F: fp8's NaN, and int8's largest number under a scale that is NaN.
    """
    for pool in backend.pools.values():
        pool[:, 1:] = np.nan if "float" in str(pool.dtype) else 0x7F


def check_any_schedule(
    data: st.DataObject,
    backend: Any,
    expected_logits: Callable[[list[int]], np.ndarray],
    block_size: int,
    seed: int,
    tolerance: float = 2e-5,
) -> None:
    """Sequences of drawn lengths go through the backend in drawn chunks, over blocks in random order, poisoned before."""
    rng = np.random.default_rng(seed)
    lengths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    sequences = [rng.integers(0, backend.vocab_size, n).tolist() for n in lengths]
    tables: list[list[int]] = [[] for _ in sequences]
    done = [0] * len(sequences)
    needed = sum(-(-n // block_size) for n in lengths)
    free = (rng.permutation(needed) + 1).tolist()
    backend.init_kv(needed, block_size)
    poison(backend)
    while done != lengths:
        rows, who = [], []
        for i, tokens in enumerate(sequences):
            n = data.draw(st.integers(0, 9)) if sum(done) else 1  # some sit a step out; the first step has a lone token
            n = min(n, len(tokens) - done[i])
            if n:
                while len(tables[i]) * block_size < done[i] + n:
                    tables[i].append(free.pop())
                rows.append((tokens[done[i] : done[i] + n], done[i], tables[i]))
                who.append(i)
                done[i] += n
        if rows:
            result = backend.execute(make_batch(rows, block_size))
            for row, i in enumerate(who):
                expected = expected_logits(sequences[i][: done[i]])
                np.testing.assert_allclose(result.logits(row), expected, atol=tolerance * np.abs(expected).max())
                assert result.argmax()[row] == result.logits(row).argmax()
