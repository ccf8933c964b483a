"""`make lab` hands the learner a copy of each lesson and never touches a copy that exists."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_tool(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_new_lessons_are_copied_and_own_work_is_kept(tmp_path):
    copy_new_lessons = load_tool("open_lab").copy_new_lessons
    source, target = tmp_path / "lessons", tmp_path / "my_lessons"
    for name in ["00_a.ipynb", "zh/00_a.ipynb", ".ipynb_checkpoints/00_a.ipynb", "notes.txt"]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("as shipped")

    assert copy_new_lessons(source, target) == [target / "00_a.ipynb", target / "zh/00_a.ipynb"]

    (target / "00_a.ipynb").write_text("my work")
    (source / "00_a.ipynb").write_text("a newer lesson")
    (source / "01_b.ipynb").write_text("as shipped")
    assert copy_new_lessons(source, target) == [target / "01_b.ipynb"]
    assert (target / "00_a.ipynb").read_text() == "my work"
    assert sorted(p.name for p in target.rglob("*") if p.is_file()) == ["00_a.ipynb", "00_a.ipynb", "01_b.ipynb"]


@pytest.mark.parametrize(("uid", "flag"), [(0, True), (1000, False)])
def test_jupyterlab_is_started_for_root_too(monkeypatch, tmp_path, uid, flag):
    tool = load_tool("open_lab")
    commands = []
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool.os, "geteuid", lambda: uid)
    monkeypatch.setattr(tool.os, "execv", lambda program, command: commands.append(command))
    monkeypatch.setattr(tool.sys, "argv", ["open_lab.py", "--no-browser"])
    tool.main()
    (command,) = commands
    assert command[1:3] == ["-m", "jupyterlab"]
    assert "--no-browser" in command
    assert ("--allow-root" in command) == flag
