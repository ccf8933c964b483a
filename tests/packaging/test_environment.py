"""`environment.yml` and `pyproject.toml` must name the same packages at the same versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def by_name(lines: list[str]) -> dict[str, str]:
    """{name: canonical text of the requirement}."""
    requirements = [Requirement(line) for line in lines]
    assert len({r.name for r in requirements}) == len(requirements), "a package is named twice"
    return {r.name: str(r) for r in requirements}


def conda_pip_lines() -> list[str]:
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (pip,) = [entry["pip"] for entry in dependencies if isinstance(entry, dict)]
    return pip


def test_the_wheel_carries_every_small_model():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    small = {f"data/models/{path.name}": f"mini_engine/_data/models/{path.name}" for path in ROOT.glob("data/models/*")}
    assert len(small) >= 2
    assert small.items() <= wheel["force-include"].items()


def test_conda_holds_only_python_and_pip():
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    names = {re.split(r"[=<>]", entry)[0] for entry in dependencies if isinstance(entry, str)}
    assert names == {"python", "pip"}


def test_environment_and_pyproject_agree():
    lines = conda_pip_lines()
    assert "-e ." in lines, "the package itself must be installed"
    assert by_name([line for line in lines if line != "-e ."]) == by_name(PROJECT["dependencies"])


@pytest.mark.parametrize("extra", [None, *PROJECT["optional-dependencies"]])
def test_every_dependency_is_pinned(extra):
    lines = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
    for line in lines:
        (specifier,) = Requirement(line).specifier
        assert specifier.operator == "==", f"{line} is not pinned"


def test_triton_is_asked_for_on_linux_only():
    (triton,) = [Requirement(line) for line in PROJECT["dependencies"] if line.startswith("triton")]
    assert triton.marker is not None
    assert triton.marker.evaluate({"sys_platform": "linux"})
    assert not triton.marker.evaluate({"sys_platform": "darwin"})
    assert not triton.marker.evaluate({"sys_platform": "win32"})


def test_an_image_gets_the_real_model_or_is_not_built():
    """repo2docker runs postBuild after environment.yml, at the root of the project, and goes on after an error unless told."""
    first, _, *commands = (ROOT / "postBuild").read_text().splitlines()
    assert first == "#!/bin/bash"
    assert commands == ["set -e", "mini-engine download smollm2-135m"]
    assert not {"binder", ".binder"} & {path.name for path in ROOT.iterdir()}, "environment.yml would not be read"
