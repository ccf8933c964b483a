"""What a model promises to whoever owns the cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mini_engine.catalog import ModelSpec
from mini_engine.models import UnsupportedModelError, random_model
from tests.oracle import GrowingCache, full_logits, row_error

SPEC = ModelSpec(
    num_hidden_layers=3, hidden_size=32, num_attention_heads=6, num_key_value_heads=2, head_dim=8, intermediate_size=48,
    vocab_size=61, max_position_embeddings=64,
)  # fmt: skip
IDS = np.random.default_rng(3).integers(0, 61, size=20).tolist()
BACKENDS = ["torch", "numpy"]


@pytest.fixture(params=BACKENDS)
def model(request):
    return random_model(SPEC, seed=5, backend=request.param)


def close(model, ours, theirs):
    """The same rows through products of other sizes: equal up to the order of summation."""
    assert row_error(ours, theirs) < (1e-5 if isinstance(ours, torch.Tensor) else 1e-12)


def test_attend_is_called_once_a_layer_with_rotated_q_and_k(model):
    calls = []

    def attend(layer, q, k, v):
        calls.append((layer, q.shape, k.shape, v.shape, np.asarray(q).copy(), np.asarray(k).copy()))
        return GrowingCache(SPEC).attend(layer, q, k, v)

    model.forward(IDS, range(20), attend)
    assert [call[:4] for call in calls] == [(layer, (20, 6, 8), (20, 2, 8), (20, 2, 8)) for layer in range(3)]
    first_q, first_k = calls[0][4:]
    model.forward(IDS, [0] * 20, attend)  # position 0 turns by nothing
    q, k = calls[3][4:]
    turn = np.arange(20)[:, None] * SPEC.rope_theta ** (-np.arange(4) / 4)
    for rotated, plain in ((first_q, q), (first_k, k)):
        pairs = (plain[..., :4] + 1j * plain[..., 4:]) * np.exp(1j * turn)[:, None]  # a rotation is a complex product
        np.testing.assert_allclose(rotated, np.concatenate((pairs.real, pairs.imag), -1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("rows", [[], [19], [0, 3, 3], range(20), np.array([5, 2])])
def test_only_the_rows_asked_for(model, rows):
    every = full_logits(model, IDS)
    some = model.forward(IDS, range(20), GrowingCache(SPEC).attend, rows)
    assert some.shape == (len(rows), 61)
    if len(rows):
        close(model, some, every[np.asarray(rows)])


@pytest.mark.parametrize("sizes", [[20], [1] * 20, [7, 1, 12], [19, 1]])
def test_chunks_give_the_logits_of_the_whole(model, sizes):
    cache, start, rows = GrowingCache(SPEC), 0, []
    for size in sizes:
        rows.append(np.asarray(model.forward(IDS[start : start + size], range(start, start + size), cache.attend)))
        start += size
    assert row_error(np.concatenate(rows), full_logits(model, IDS)) < 1e-5


def test_sequences_side_by_side_do_not_mix(model):
    """Three sequences flattened into one batch, as a paged engine does it."""
    sequences = [IDS[:5], IDS[5:6], IDS[6:]]
    bounds = [slice(0, 5), slice(5, 6), slice(6, 20)]
    caches = [GrowingCache(SPEC) for _ in sequences]

    def attend(layer, q, k, v):
        parts = [cache.attend(layer, q[rows], k[rows], v[rows]) for cache, rows in zip(caches, bounds)]
        return torch.cat(parts) if isinstance(q, torch.Tensor) else np.concatenate(parts)

    together = model.forward(IDS, [*range(5), 0, *range(14)], attend)
    close(model, together, np.concatenate([full_logits(model, ids) for ids in sequences]))


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, tuple])
def test_ids_may_be_lists_arrays_or_tensors(model, kind):
    assert row_error(full_logits(model, kind(IDS)), full_logits(model, IDS)) == 0


def test_no_tokens_give_no_rows(model):
    assert model.forward([], [], lambda layer, q, k, v: q).shape == (0, 61)


@pytest.mark.parametrize(
    ("ids", "positions", "message"),
    [
        ([61], [0], r"token 61 is outside 0 .. 60 \(vocab_size=61\)"),
        ([3, -1], [0, 1], "token -1"),
        ([3], [64], r"position 64 is outside 0 .. 63 \(max_position_embeddings=64\)"),
        ([3], [-1], "position -1"),
        ([3, 4], [0], "same|both"),
        ([[3]], [[0]], "shape"),
    ],
)
def test_tokens_and_positions_outside_are_refused_before_the_cache_is_touched(model, ids, positions, message):
    def attend(*_):
        pytest.fail("attend was called")

    with pytest.raises(ValueError, match=message):
        model.forward(ids, positions, attend)


def test_the_last_position_of_the_context_works(model):
    assert np.isfinite(np.asarray(model.forward([3], [63], GrowingCache(SPEC).attend))).all()


def test_numpy_and_torch_agree():
    ours, truth = (full_logits(random_model(SPEC, seed=5, backend=backend), IDS) for backend in BACKENDS)
    assert ours.dtype == np.float32
    assert truth.dtype == np.float64
    assert row_error(ours, truth) < 1e-5


def test_logits_need_no_gradient_and_weights_are_not_copied():
    model = random_model(SPEC, seed=5)
    logits = model.forward(IDS, range(20), GrowingCache(SPEC).attend)
    assert not logits.requires_grad


def test_random_models_repeat_and_differ():
    same, again, other = (full_logits(random_model(SPEC, seed=seed), IDS) for seed in (5, 5, 6))
    assert np.array_equal(same, again)
    assert row_error(same, other) > 0.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "GPT2LMHeadModel"}, "GPT2LMHeadModel"),
        (
            {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "num_moe_layers": 1},
            "experts in place of an MLP",
        ),
        ({"learned_positions": 64}, "learned positions"),
        ({"gated_mlp": False}, "MLP without a gate"),
        ({"layer_kv_shapes": ((2, 8), (2, 8), (1, 8))}, "K/V shapes of their own"),
        ({"layers_without_kv": ("mamba",), "layer_windows": ()}, "layers without attention"),
    ],
)
def test_shapes_that_cannot_be_built(changes, message):
    with pytest.raises(UnsupportedModelError, match=message):
        random_model(replace(SPEC, **changes))


def test_weights_drawn_by_the_device_are_those_of_their_seed():
    one, again, other = (random_model(SPEC, seed=seed, drawn_on_device=True) for seed in (5, 5, 6))
    assert torch.equal(one.embed, again.embed)
    assert not torch.equal(one.embed, other.embed)
    assert not torch.equal(one.embed, random_model(SPEC, seed=5).embed)
    assert (one.norm == 1).all()
    assert abs(one.embed.float().std().item() * SPEC.hidden_size**0.5 - 1) < 0.1
    rows = one.forward(IDS, range(20), GrowingCache(SPEC).attend)
    assert rows.isfinite().all()
    with pytest.raises(ValueError, match="'numpy' are drawn by the host"):
        random_model(SPEC, backend="numpy", drawn_on_device=True)
