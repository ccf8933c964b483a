"""TorchBackend against the float64 model without a cache: any schedule, any blocks, anything in the slots that are nobody's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_engine.attention import causal_attention
from mini_engine.backends.base import BatchInput
from mini_engine.backends.torch_attention import GROUP_TOKENS, AttentionPlan
from mini_engine.backends.torch_backend import TorchBackend
from mini_engine.cache import CacheOp
from mini_engine.catalog import ModelSpec
from mini_engine.models import random_model
from tests.backends.schedules import check_any_schedule, make_batch

SPEC = ModelSpec(
    num_hidden_layers=2, hidden_size=24, num_attention_heads=6, num_key_value_heads=2, head_dim=8, intermediate_size=40,
    vocab_size=50, max_position_embeddings=64,
)  # fmt: skip


def uncached_logits(model, tokens: list[int]) -> np.ndarray:
    """Logits after the last token, in float64, over the whole sequence at once."""
    scale = model.spec.head_dim**-0.5
    return model.forward(tokens, range(len(tokens)), lambda layer, q, k, v: causal_attention(q, k, v, scale), [-1])[0]


@pytest.fixture(scope="module")
def models():
    return random_model(SPEC, seed=3), random_model(SPEC, seed=3, backend="numpy")


@settings(max_examples=60)
@given(data=st.data(), block_size=st.sampled_from([1, 2, 5, 16]), seed=st.integers(0, 2**16))
def test_any_schedule_equals_the_uncached_model(models, data, block_size, seed):
    check_any_schedule(data, TorchBackend(models[0]), lambda ids: uncached_logits(models[1], ids), block_size, seed)


def test_copies_swaps_and_skipped_slots(models):
    backend = TorchBackend(models[0])
    backend.init_kv(4, 4, num_swap_blocks=2)
    tokens = [5, 6, 7, 8, 9, 10]
    backend.execute(make_batch([(tokens, 0, [3, 1])], 4))
    expected = uncached_logits(models[1], [*tokens, 11])

    # Copy both blocks by way of the host, then let NaN take the place of everything else.
    ops = [CacheOp("swap_out", 3, 1), CacheOp("copy", 1, 2), CacheOp("copy", 2, 1), CacheOp("swap_in", 1, 4)]
    backend.apply_ops(ops)
    before = backend.block(3)["k"]
    for pool in backend.pools.values():
        pool[:, [1, 3]] = math.nan
    np.testing.assert_array_equal(backend.block(4)["k"], before)
    batch = make_batch([([11], 6, [4, 2])], 4)
    np.testing.assert_allclose(backend.execute(batch).logits(0), expected, atol=2e-5 * np.abs(expected).max())

    # A slot of -1 writes nothing: not in the null block, not in the last one.
    held = backend.pools["k"].clone()
    padded = BatchInput(
        token_ids=np.array([1, 2]), positions=np.array([0, 1]), slot_mapping=np.array([-1, -1]),
        block_tables=np.zeros((1, 1), np.int32), context_lens=np.array([2], np.int32),
        query_start_loc=np.array([0, 2], np.int32), logits_rows=np.array([1]),
    )  # fmt: skip
    backend.execute(padded)
    assert torch.equal(held.nan_to_num(-1), backend.pools["k"].nan_to_num(-1))


def test_decodes_are_grouped_by_length_and_never_padded_to_the_longest():
    """One long row among short ones must not make the short ones cost as much."""
    lengths = np.array([16] * 40 + [2000] + [30] * 20, dtype=np.int32)
    blocks = -(-lengths // 16)
    tables = np.zeros((len(lengths), blocks.max()), np.int32)
    for row, n in enumerate(blocks):
        tables[row, :n] = np.arange(n) * 3 + 1
    starts = np.arange(len(lengths) + 1, dtype=np.int32)
    batch = BatchInput(starts[:-1], lengths - 1, starts[:-1], tables, lengths, starts, starts[:-1])
    plan = AttentionPlan(batch, 16, torch.device("cpu"))
    read = sum(group.gather.shape[0] * group.gather.shape[1] for group in plan.groups)
    assert blocks.sum() <= read <= 1.25 * blocks.sum()
    assert sorted(np.concatenate([group.rows for group in plan.groups])) == list(range(len(lengths)))
    assert all(
        g.gather.shape[0] == 1 or g.gather.shape[0] * g.gather.shape[1] * 16 <= GROUP_TOKENS for g in plan.groups
    )


def test_consecutive_blocks_are_read_where_they_lie():
    tables = np.array([[4, 5, 6, 0], [9, 8, 7, 0]], np.int32)
    lengths = np.array([48, 48], np.int32)
    starts = np.array([0, 1, 2], np.int32)
    for row, consecutive in [(0, True), (1, False)]:
        batch = BatchInput(
            starts[:1], lengths[:1] - 1, starts[:1], tables[row : row + 1], lengths[:1], starts[:2], starts[:1]
        )
        (group,) = AttentionPlan(batch, 16, torch.device("cpu")).groups
        pool = torch.randn(12, 16, 2, 8)
        found = group.gather.read(pool, torch.empty(3, 16, 2, 8))
        assert torch.equal(found[0].transpose(0, 1).reshape(3, 16, 2, 8), pool[tables[row, :3].tolist()])
        assert (found.untyped_storage().data_ptr() == pool.untyped_storage().data_ptr()) == consecutive
