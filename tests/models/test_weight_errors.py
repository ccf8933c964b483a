"""Safetensors that are cut off, contradict themselves or belong to another model, in every family."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from mini_engine.models import CorruptModelError, UnsupportedModelError, load_weights
from tests.models.damage import DEEP, edit_json, edit_tensors, fails, make_folder
from tests.oracle import full_logits

Q = "model.layers.1.self_attn.q_proj.weight"


@pytest.mark.parametrize("keep", [0, 4, 8, 100, 0.5, -1])
def test_truncated_weights(folder, keep):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])
    fails(CorruptModelError, folder, "model.safetensors", "fetch it again")


def test_truncated_weights_name_the_tensor_and_the_sizes(folder):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    fails(CorruptModelError, folder, "the tensor model.norm.weight", str(len(data)), str(len(data) - 1))


def test_weights_that_are_not_safetensors(folder):
    (folder / "model.safetensors").write_bytes(b"\x10" + bytes(7) + b"not a JSON text.")
    fails(CorruptModelError, folder, "model.safetensors", "not that of a safetensors file")


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]},
        {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]},
        {"dtype": "F32", "shape": [0], "data_offsets": [4, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 4]},
        {"dtype": "F32", "shape": [1]},
        {"dtype": "F32", "shape": ["x"], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [float("inf")], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, float("nan")]},
        [],
    ],
    ids=str,
)
def test_headers_that_contradict_themselves(folder, entry):
    header = json.dumps({"x": entry}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    fails(CorruptModelError, folder, "model.safetensors")


@pytest.mark.parametrize(
    ("change", "fragments"),
    [
        (lambda t: t.update({Q: t[Q][:-1].clone()}), [Q, "[47, 48]|[79, 48]", "expected [48, 48]|expected [80, 48]"]),
        (lambda t: t.update({"model.norm.weight": torch.ones(1)}), ["model.norm.weight", "[1]", "expected [48]"]),
        (lambda t: t.pop(Q), [Q, "missing"]),
        (lambda t: t.pop("lm_head.weight"), ["lm_head.weight", "missing"]),
        (lambda t: t.update({"model.layers.3.input_layernorm.weight": torch.ones(48)}), ["model.layers.3", "3 layers"]),
        (lambda t: t.update({"model.layers.0.mlp.up_proj.bias": torch.ones(80)}), ["up_proj.bias", "not part of a"]),
        (lambda t: t[Q].view(-1)[5:6].fill_(float("nan")), [Q, "not finite"]),
    ],
    ids=["wrong shape", "wrong norm", "missing", "no head", "extra layer", "a bias", "NaN"],
)
@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_tensors_that_do_not_fit(folder, change, fragments, backend):
    edit_tensors(folder / "model.safetensors", change)
    fails(CorruptModelError, folder, *fragments, load=lambda path: load_weights(path, backend=backend))


@pytest.mark.parametrize("family", ["llama", "qwen3"], indirect=True)
def test_biases_that_the_configuration_promises(folder):
    edit_json(folder / "config.json", attention_bias=True)
    fails(CorruptModelError, folder, "model.layers.0.self_attn.q_proj.bias [48] is missing")


@pytest.mark.parametrize(
    ("family", "part"), [("qwen2", "k_proj.bias"), ("qwen3", "k_norm.weight")], indirect=["family"]
)
@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_what_only_some_families_have_is_missed_and_checked(folder, part, backend):
    name = f"model.layers.2.self_attn.{part}"

    def load(path):
        return load_weights(path, backend=backend)

    edit_tensors(folder / "model.safetensors", lambda t: t[name][0].fill_(float("inf")))
    fails(CorruptModelError, folder, name, "not finite", load=load)
    edit_tensors(folder / "model.safetensors", lambda t: t.update({name: torch.ones(3)}))
    fails(CorruptModelError, folder, name, "has shape [3]", load=load)
    edit_tensors(folder / "model.safetensors", lambda t: t.pop(name))
    fails(CorruptModelError, folder, name, "missing", load=load)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3"], indirect=True)
def test_biases_that_the_configuration_does_not_know(folder):
    edit_tensors(
        folder / "model.safetensors", lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": torch.ones(48)})
    )
    fails(CorruptModelError, folder, "q_proj.bias", "not part of a")


def test_quantised_tensors(folder):
    edit_tensors(folder / "model.safetensors", lambda t: t.update({Q: t[Q].to(torch.int8)}))
    fails(UnsupportedModelError, folder, Q, "I8")


@pytest.mark.parametrize("dtype", [[], {}, None, 5], ids=str)
def test_a_dtype_that_is_no_name(folder, dtype):
    header = json.dumps({"x": {"dtype": dtype, "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    fails(UnsupportedModelError, folder, "model.safetensors", f"stored as {dtype}")


def test_a_header_that_is_nested_too_deeply(folder):
    header = f'{{"x": {DEEP}}}'.encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    fails(CorruptModelError, folder, "model.safetensors", "fetch")


def test_stored_rope_frequencies_are_ignored(folder):
    expected = full_logits(load_weights(folder), range(20))
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    edit_tensors(folder / "model.safetensors", lambda t: t.update(extra))
    assert np.array_equal(full_logits(load_weights(folder), range(20)), expected)


def test_a_tied_model_may_store_its_head_only_if_it_is_the_same(family, tmp_path):
    folder = make_folder(tmp_path, family, tie_word_embeddings=True)
    expected = full_logits(load_weights(folder), range(20))
    copy = {}
    edit_tensors(
        folder / "model.safetensors",
        lambda t: t.update(copy | {"lm_head.weight": t["model.embed_tokens.weight"].clone()}),
    )
    assert np.array_equal(full_logits(load_weights(folder), range(20)), expected)
    edit_tensors(folder / "model.safetensors", lambda t: t["lm_head.weight"][0, 0].add_(1))
    fails(CorruptModelError, folder, "tie_word_embeddings", "lm_head.weight")


@pytest.fixture
def sharded(family, tmp_path):
    return make_folder(tmp_path / "sharded", family, shard="60KB")


def test_a_missing_shard(sharded):
    shard = sorted(sharded.glob("model-*"))[1]
    shard.unlink()
    fails(CorruptModelError, sharded, shard.name, "missing")


def test_a_truncated_shard(sharded):
    shard = sorted(sharded.glob("model-*"))[1]
    shard.write_bytes(shard.read_bytes()[:-1])
    fails(CorruptModelError, sharded, shard.name, "fetch it again")


def test_an_index_that_misplaces_a_tensor(sharded):
    index = sharded / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    other = next(shard for shard in weight_map.values() if shard != weight_map[Q])
    edit_json(index, weight_map=weight_map | {Q: other})
    fails(CorruptModelError, sharded, Q, other)


def test_a_tensor_in_two_shards(sharded):
    """Whichever shard comes last would win elsewhere: it must not matter."""
    weight_map = json.loads((sharded / "model.safetensors.index.json").read_text())["weight_map"]
    other = sharded / next(shard for shard in weight_map.values() if shard != weight_map[Q])
    tensor = load_file(sharded / weight_map[Q])[Q]
    edit_tensors(other, lambda tensors: tensors.update({Q: tensor}))
    load_weights(sharded)
    edit_tensors(other, lambda tensors: tensors[Q].mul_(1.5))
    fails(CorruptModelError, sharded, f"{other.name}: it holds the tensor {Q} too, and not as {weight_map[Q]}")
    edit_tensors(other, lambda tensors: tensors.update({Q: tensor[:-1].clone()}))
    fails(CorruptModelError, sharded, f"{other.name}: it holds the tensor {Q} too")


INDEXES = [{Q: name} for name in ("../elsewhere.safetensors", "/etc/passwd", "..", ".", "", "a\0b", "x" * 300, 3)]


@pytest.mark.parametrize("weight_map", [*INDEXES, [], "x"], ids=lambda value: str(value)[:80])
def test_an_index_that_is_no_index(sharded, weight_map):
    edit_json(sharded / "model.safetensors.index.json", weight_map=weight_map)
    fails(CorruptModelError, sharded, "index.json")
