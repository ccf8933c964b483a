"""Every way a Hugging Face folder can be wrong, each with the message a reader needs."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
import torch

from mini_engine.models import CorruptModelError, UnsupportedModelError, load_model, load_weights
from tests.models.damage import VOCAB_SIZE, edit_json, edit_tensors, make_folder
from tests.oracle import full_logits


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def folder(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "model")


def fails(error, folder, *fragments, load=load_model):
    with pytest.raises(error) as caught:
        load(folder)
    for fragment in (str(folder), *fragments):
        assert fragment in str(caught.value), f"{fragment!r} is not in: {caught.value}"


def test_the_sound_folder_loads(folder):
    loaded = load_model(folder)
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("hello wörld")) == "hello wörld"
    assert loaded.tokenizer.eos_token_ids == (2,)
    assert loaded.path == folder
    assert loaded.spec.name == "model"


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, ["GemmaForCausalLM", "only LlamaForCausalLM, MistralForCausalLM"]),
        (
            {"architectures": ["MistralForCausalLM"]},
            ["model_type is 'llama'", "only 'mistral' with MistralForCausalLM"],
        ),
        ({"architectures": ["LlamaForCausalLM", "MistralForCausalLM"]}, ["architectures"]),
        ({"architectures": None, "model_type": "gpt2"}, ["gpt2"]),
        ({"model_type": "gpt2"}, ["model_type is 'gpt2'"]),
        ({"model_type": "mistral"}, ["model_type is 'mistral'"]),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, ["rope_scaling", "dynamic", "'llama3', 'yarn'"]),
        ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, ["rope_parameters", "longrope"]),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [2, 2, 2]}}, ["mrope"]),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "mscale": 0.7}}, ["field mscale is 0.7", "'linear'"]),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, ["field full_attention"]),
        ({"layer_types": ["full_attention"] * 3}, ["layer_types", "'llama'"]),
        ({"logit_scale": 0.5}, ["logit_scale is 0.5", "only 1 can be run"]),
        ({"brand_new_idea": 3}, ["brand_new_idea=3", "not known", "take it out"]),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}, ["0.5"]),
        ({"hidden_act": "gelu"}, ["hidden_act", "gelu"]),
        ({"mlp_bias": True}, ["mlp_bias"]),
        ({"quantization_config": {"quant_method": "gptq"}}, ["quantization_config", "gptq"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_unsupported_configurations(folder, changes, fragments):
    edit_json(folder / "config.json", **changes)
    fails(UnsupportedModelError, folder, "config.json", *fragments)


@pytest.mark.parametrize(
    "changes",
    [
        {"sliding_window": 256},  # as wide as the context: no token is ever outside
        {"sliding_window": 32, "use_sliding_window": False},
        {"rope_scaling": {"type": "default"}},
        {"architectures": None, "model_type": "llama"},
        {"model_type": None},
        {"bos_token_id": []},
        {"eos_token_id": [0, VOCAB_SIZE - 1]},
        {"pretraining_tp": 2},  # a way to compute, not what
        {"brand_new_idea": False},
        {"logit_scale": 1.0},
    ],
    ids=str,
)
def test_harmless_configurations_change_nothing(folder, changes):
    expected = full_logits(load_weights(folder), range(20))
    edit_json(folder / "config.json", **changes)
    assert np.array_equal(full_logits(load_weights(folder), range(20)), expected)


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"hidden_size": None}, ["hidden_size"]),
        ({"num_hidden_layers": 0}, ["num_hidden_layers=0 must be at least 1"]),
        ({"num_hidden_layers": 10**6}, ["num_hidden_layers=1000000 must be at most 10000"]),
        ({"num_hidden_layers": 10**9}, ["num_hidden_layers=1000000000 must be at most 10000"]),
        ({"max_position_embeddings": 10**9}, ["max_position_embeddings must be at most 4194304, found 1000000000"]),
        ({"bos_token_id": "x"}, ["bos_token_id='x' must be a token id, a list of them, or null"]),
        ({"bos_token_id": [-1]}, ["bos_token_id must be in 0 .. 279 (vocab_size=280), found -1"]),
        ({"eos_token_id": "x"}, ["eos_token_id='x' must be a token id"]),
        ({"eos_token_id": 1.5}, ["eos_token_id=1.5 must be a token id"]),
        ({"eos_token_id": True}, ["eos_token_id=True must be a token id"]),
        ({"eos_token_id": {}}, ["eos_token_id={} must be a token id"]),
        ({"eos_token_id": [1, "a"]}, ["eos_token_id=[1, 'a'] must be a token id"]),
        ({"eos_token_id": -1}, ["eos_token_id must be in 0 .. 279 (vocab_size=280), found -1"]),
        ({"eos_token_id": VOCAB_SIZE}, ["eos_token_id", "found 280"]),
        ({"eos_token_id": [1, 10**9]}, ["eos_token_id", "found 1000000000"]),
        ({"tie_word_embeddings": "no"}, ["tie_word_embeddings='no' must be true or false"]),
        ({"tie_word_embeddings": 0}, ["tie_word_embeddings=0 must be true or false"]),
        ({"rms_norm_eps": float("inf")}, ["rms_norm_eps=inf must be a finite number above 0"]),
        ({"rms_norm_eps": float("nan")}, ["rms_norm_eps=nan must be a finite number above 0"]),
        ({"rms_norm_eps": [1e-5]}, ["rms_norm_eps=[1e-05] must be"]),
        ({"rope_parameters": {"rope_theta": float("inf")}}, ["rope_theta=inf must be"]),
        ({"hidden_size": "48"}, []),
        ({"num_key_value_heads": 4}, ["num_attention_heads=6", "num_key_value_heads=4"]),
        ({"head_dim": 7}, ["head_dim", "7"]),
        ({"rms_norm_eps": -1.0}, ["rms_norm_eps", "-1.0"]),
        ({"rms_norm_eps": "tiny"}, ["tiny"]),
        ({"rope_parameters": "default"}, []),
        ({"rope_scaling": {"type": "linear"}}, ["factor must be a finite number of at least 1, found None"]),
        ({"rope_scaling": {"type": "linear", "factor": 0.5}}, ["factor", "0.5"]),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, ["high_freq_factor", "found None"]),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4, "high_freq_factor": 4}},
            ["high_freq_factor=4 must be more than low_freq_factor=4"],
        ),
        ({"rope_scaling": {"rope_type": "yarn", "factor": "wide"}}, ["factor", "'wide'"]),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 1, "beta_slow": 2}}, ["beta_fast=1"]),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": "no"}}, ["truncate", "'no'"]),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 1e9, "original_max_position_embeddings": 4096}}, ["4194304"]),
        ({"sliding_window": "wide"}, []),
    ],
    ids=str,
)
def test_impossible_configurations(folder, changes, fragments):
    edit_json(folder / "config.json", **changes)
    fails(CorruptModelError, folder, "config.json", *fragments)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b'{"hidden_size": }'])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json"])
def test_files_that_are_not_json(folder, name, content):
    (folder / name).write_bytes(content)
    fails(CorruptModelError, folder, name)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_missing_files(folder, name):
    (folder / name).unlink()
    fails(CorruptModelError, folder, name)


@pytest.mark.parametrize(
    "name",
    ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "model.safetensors"],
)  # fmt: skip
def test_a_folder_in_place_of_a_file(folder, name):
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    fails(CorruptModelError, folder, name, "fetch")


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"])
def test_json_that_is_nested_too_deeply(folder, name):
    (folder / name).write_text(f'{{"eos_token_id": {DEEP}}}')
    fails(CorruptModelError, folder, name, "fetch")


@pytest.mark.parametrize("depth", [100, 900, 3000])
def test_a_value_that_is_too_deep_to_print(folder, depth):
    text = (folder / "config.json").read_text().rstrip().removesuffix("}")
    (folder / "config.json").write_text(f'{text}, "eos_token_id": {"[" * depth}{"]" * depth}}}')
    fails(CorruptModelError, folder, "config.json", "fetch")


@pytest.mark.parametrize("eos", ["x", -1, [0, VOCAB_SIZE], {}], ids=str)
def test_end_tokens_of_the_generation_config_are_checked_as_well(folder, eos):
    edit_json(folder / "generation_config.json", eos_token_id=eos)
    fails(CorruptModelError, folder, "generation_config.json", "eos_token_id")


@pytest.mark.parametrize("template", [5, {}, [{"name": "default", "template": 5}]], ids=str)
def test_a_chat_template_that_is_no_text(folder, template):
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    fails(CorruptModelError, folder, "tokenizer_config.json", "chat_template must be a text")


@pytest.mark.parametrize(
    "config", [{"chat_template": [3, {}, {"name": "tool"}]}, {"eos_token": {}}, {"eos_token": 3}], ids=str
)
def test_a_tokenizer_config_without_what_we_look_for(folder, config):
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_model(folder).tokenizer.chat_template is None


def test_a_chat_template_that_is_not_utf_8(folder):
    (folder / "chat_template.jinja").write_bytes(b"caf\xe9")
    fails(CorruptModelError, folder, "chat_template.jinja", "0xe9")


def test_without_a_tokenizer_the_weights_still_load(folder):
    (folder / "tokenizer.json").unlink()
    fails(CorruptModelError, folder, "tokenizer.json", "load_weights")
    assert load_weights(folder).spec.vocab_size == VOCAB_SIZE


def test_pickled_weights_are_refused(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    fails(UnsupportedModelError, folder, "safetensors")


def test_a_tokenizer_larger_than_the_model(folder):
    content = json.loads((folder / "tokenizer.json").read_text())
    content["added_tokens"].append(content["added_tokens"][0] | {"id": VOCAB_SIZE, "content": "<|one too many|>"})
    content["model"]["vocab"] |= {f"filler {i}": i for i in range(len(content["model"]["vocab"]), VOCAB_SIZE)}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    fails(CorruptModelError, folder, "tokenizer.json", f"{VOCAB_SIZE + 1} ids", f"vocab_size is {VOCAB_SIZE}")


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
        (lambda t: t.update({Q: t[Q][:-1].clone()}), [Q, "[47, 48]", "expected [48, 48]"]),
        (lambda t: t.update({"model.norm.weight": torch.ones(1)}), ["model.norm.weight", "[1]", "expected [48]"]),
        (lambda t: t.pop(Q), [Q, "missing"]),
        (lambda t: t.pop("lm_head.weight"), ["lm_head.weight", "missing"]),
        (lambda t: t.update({"model.layers.3.input_layernorm.weight": torch.ones(48)}), ["model.layers.3", "3 layers"]),
        (lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": torch.ones(48)}), ["q_proj.bias"]),
        (lambda t: t[Q].view(-1)[5:6].fill_(float("nan")), [Q, "not finite"]),
    ],
    ids=["wrong shape", "wrong norm", "missing", "no head", "extra layer", "a bias", "NaN"],
)
@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_tensors_that_do_not_fit(folder, change, fragments, backend):
    edit_tensors(folder / "model.safetensors", change)
    fails(CorruptModelError, folder, *fragments, load=lambda path: load_weights(path, backend=backend))


def test_biases_that_the_configuration_promises(folder):
    edit_json(folder / "config.json", attention_bias=True)
    fails(CorruptModelError, folder, "model.layers.0.self_attn.q_proj.bias [48] is missing")


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


def test_a_tied_model_may_store_its_head_only_if_it_is_the_same(tmp_path):
    folder = make_folder(tmp_path, tie_word_embeddings=True)
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
def sharded(tmp_path):
    return make_folder(tmp_path / "sharded", shard="60KB")


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


@pytest.mark.parametrize("weight_map", [{Q: "../elsewhere.safetensors"}, {Q: 3}, [], "x"], ids=str)
def test_an_index_that_is_no_index(sharded, weight_map):
    edit_json(sharded / "model.safetensors.index.json", weight_map=weight_map)
    fails(CorruptModelError, sharded, "index.json")


def test_generation_config_names_the_end_tokens(folder):
    edit_json(folder / "generation_config.json", eos_token_id=[0, 2])
    loaded = load_model(folder)
    assert loaded.spec.eos_token_ids == loaded.tokenizer.eos_token_ids == (0, 2)


def test_a_weight_file_instead_of_its_folder(folder):
    with pytest.raises(CorruptModelError, match=re.escape("give the folder")):
        load_model(folder / "model.safetensors")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "jax"}, "'jax'"),
        ({"dtype": "int8"}, "int8"),
        ({"dtype": "float12"}, "float12"),
        *[
            ({"device": device}, re.escape(f"device={device!r}: must be 'cpu', 'cuda' or 'cuda:N'"))
            for device in ("banana", "", "mps", "meta", -1, "cuda:x", 1.5, [], 10**30)
        ],
        ({"device": "cuda:99"}, "CUDA device"),
        ({"backend": "numpy", "device": "cuda"}, "CPU only"),
        ({"backend": "numpy", "dtype": "bfloat16"}, "float64 or float32"),
        pytest.param(
            {"device": "cuda"},
            "no CUDA device",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
    ],
    ids=str,
)
def test_options_that_do_not_exist(folder, options, message):
    with pytest.raises(ValueError, match=message):
        load_model(folder, **options)
