"""Models with latent attention against transformers: logits, and what they leave in the cache, entry by entry."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from mini_engine.backends import NumpyBackend, TorchBackend
from mini_engine.models import load_weights
from tests.backends.schedules import make_batch
from tests.deepseek import YARN, transformers_run, uncached_logits
from tests.oracle import ROW_TOLERANCE, row_error, save_random_model

SHAPES = {
    "V2": ("deepseek_v2", {}),
    "V2, low-rank queries": ("deepseek_v2", {"q_lora_rank": 20}),
    "V2, tied, other constants": (
        "deepseek_v2",
        {
            "tie_word_embeddings": True,
            "rms_norm_eps": 1e-2,  # the norms on the latent and the query keep 1e-6
            "rope_parameters": {"rope_theta": 300.0, "rope_type": "default"},
        },
    ),
    "V2, YaRN": ("deepseek_v2", {"rope_parameters": YARN}),
    "V2, one layer, one head, wide values": (
        "deepseek_v2",
        {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "v_head_dim": 40},
    ),
    "V3": ("deepseek_v3", {}),
    "V3, low-rank queries, tied": (
        "deepseek_v3",
        {"q_lora_rank": 20, "tie_word_embeddings": True, "rms_norm_eps": 1e-2},
    ),
    "V3, halves": ("deepseek_v3", {"rope_interleave": False}),
    "V3, YaRN, low-rank queries": (
        "deepseek_v3",
        {"q_lora_rank": 20, "rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}},
    ),
}
IDS = np.random.default_rng(1).integers(0, 131, size=200).tolist()


@pytest.fixture(scope="module", params=SHAPES)
def random_deepseek(request, tmp_path_factory):
    family, shape = SHAPES[request.param]
    return save_random_model(tmp_path_factory.mktemp("random"), family, **shape)


@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_logits(random_deepseek, backend):
    model = load_weights(random_deepseek, backend=backend)
    assert row_error(uncached_logits(model, IDS), transformers_run(random_deepseek)(IDS)[0]) < ROW_TOLERANCE


@pytest.mark.parametrize("backend", [TorchBackend, NumpyBackend])
def test_logits_and_cache_through_the_pool(random_deepseek, backend):
    """In three chunks, then token by token, over blocks in any order: both forms of attention, and every entry of the cache."""
    model = load_weights(random_deepseek, backend="torch" if backend is TorchBackend else "numpy")
    engine, expected = backend(model), transformers_run(random_deepseek)(IDS)
    engine.init_kv(num_blocks=40, block_size=7)
    table = np.random.default_rng(0).permutation(40)[:29] + 1
    ends = [1, 60, 100, 160, *range(161, 201)]
    for start, end in zip([0, *ends], ends):
        logits = engine.execute(make_batch([(IDS[start:end], start, table.tolist())], 7)).logits(0)
        assert row_error(logits[None], expected[0][end - 1 : end]) < ROW_TOLERANCE

    assert list(engine.pools) == ["latent"]
    blocks = [engine.block(block)["latent"] for block in table]  # [L, P, 1, Dc + Dr] each
    cached = np.concatenate(blocks, axis=1)[:, :200, 0]
    for ours, theirs in zip(cached, expected[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_half_precision_files(tmp_path, dtype, backend):
    folder = save_random_model(tmp_path, "deepseek_v2", dtype=dtype, q_lora_rank=20)
    model = load_weights(folder, backend=backend)
    assert row_error(uncached_logits(model, IDS), transformers_run(folder)(IDS)[0]) < ROW_TOLERANCE


@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_sharded_files(tmp_path, backend):
    folder = save_random_model(tmp_path, "deepseek_v3", shard="40KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2, "the checkpoint was meant to be split"
    model = load_weights(folder, backend=backend)
    assert row_error(uncached_logits(model, IDS), transformers_run(folder)(IDS)[0]) < ROW_TOLERANCE


def test_config_as_deepseek_publishes_it(tmp_path):
    """rope_theta at the top level, rope_scaling with a type, no head_dim, fields of the training of experts."""
    folder = save_random_model(tmp_path, "deepseek_v2", rope_parameters=YARN)
    expected = uncached_logits(load_weights(folder), IDS)
    config = json.loads((folder / "config.json").read_text())
    scaling = dict(config.pop("rope_parameters"))
    scaling["type"] = scaling.pop("rope_type")
    for name in ("head_dim", "qk_head_dim"):
        del config[name]
    config |= {"rope_theta": scaling.pop("rope_theta"), "rope_scaling": scaling, "torch_dtype": "float32"}
    config |= {"moe_layer_freq": 1, "scoring_func": "softmax", "aux_loss_alpha": 0.001, "seq_aux": True, "ep_size": 1}
    (folder / "config.json").write_text(json.dumps(config))
    assert np.array_equal(uncached_logits(load_weights(folder), IDS), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_computation_stays_near(random_deepseek, dtype):
    exact = uncached_logits(load_weights(random_deepseek, backend="numpy"), IDS)
    model = load_weights(random_deepseek, dtype=dtype)
    engine = TorchBackend(model)
    engine.init_kv(num_blocks=13, block_size=16)
    for start, end in [(0, 199), (199, 200)]:
        logits = engine.execute(make_batch([(IDS[start:end], start, list(range(1, 14)))], 16)).logits(0)
        assert row_error(logits[None], exact[end - 1 : end]) < 50 * torch.finfo(model.dtype).eps
    assert engine.pools["latent"].dtype == model.dtype


@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_tiny_mla(tiny_mla, backend):
    """A trained model on real text, with the logits of transformers and a cache of 80 numbers a token and layer."""
    model = load_weights(tiny_mla.path, backend=backend)
    ids = tiny_mla.tokenizer.encode(
        "It is a truth universally acknowledged, that a whale in want of a wife must be 3 yards."
    )
    logits, cached = transformers_run(tiny_mla.path)(ids)
    assert row_error(uncached_logits(model, ids), logits) < ROW_TOLERANCE
    assert {layer.shape for layer in cached} == {(len(ids), model.spec.latent_dim)} == {(len(ids), 80)}
