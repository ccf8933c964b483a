"""Every way the files of a Hugging Face folder can be wrong, whatever the family, each with the message a reader needs."""

from __future__ import annotations

import json
import re

import pytest
import torch

from mini_engine.models import CorruptModelError, UnsupportedModelError, load_model, load_weights
from tests.models.damage import DEEP, VOCAB_SIZE, edit_json, fails, make_folder


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("sound"))


def test_the_sound_folder_loads(folder):
    loaded = load_model(folder)
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("hello wörld")) == "hello wörld"
    assert loaded.tokenizer.eos_token_ids == (2,)
    assert loaded.path == folder
    assert loaded.spec.name == "model"


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
