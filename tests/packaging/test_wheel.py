"""What is built from the repository works outside it: a wheel, and the wheel of the sdist."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REQUIRES = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
COMMAND = ["size", "--model", "llama-3-8b", "--gpu", "h100-sxm", "--json"]


def run(*words: object, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, words)), cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made as pip makes it: with the build tools that pyproject.toml pins, and nothing else."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (path,) = folder.glob("mini_engine-*.whl")
    return path


def test_the_wheel_holds_the_package_and_its_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"mini_engine/_data/models.csv", "mini_engine/_data/models/tiny-gqa/model.safetensors"} <= set(names)
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"mini_engine"}


def test_it_sizes_and_generates_outside_the_repository(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "site")
    here = {"PYTHONPATH": str(tmp_path / "site"), "OMP_NUM_THREADS": "1"}
    where = run(sys.executable, "-c", "import mini_engine; print(mini_engine.__file__)", cwd=tmp_path, **here)
    assert Path(where.strip()).is_relative_to(tmp_path)
    outside = run(sys.executable, "-m", "mini_engine", *COMMAND, cwd=tmp_path, **here)
    assert outside == run(sys.executable, "-m", "mini_engine", *COMMAND, cwd=ROOT, PYTHONPATH=str(ROOT))
    text = run(
        sys.executable,
        "-m",
        "mini_engine",
        "generate",
        "Emma",
        "--model",
        "tiny-gqa",
        "--max-tokens",
        "4",
        cwd=tmp_path,
        **here,
    )
    assert text.strip()


def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    build = "import hatchling.build as b, sys; print(b.build_sdist(sys.argv[1]))"
    tools = tmp_path / "tools"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--target", tools, *REQUIRES, cwd=tmp_path)
    run(sys.executable, "-c", build, tmp_path, cwd=ROOT, PYTHONPATH=str(tools))
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        file.extractall(tmp_path, filter="data")
    again = "import hatchling.build as b, sys; print(b.build_wheel(sys.argv[1]))"
    run(sys.executable, "-c", again, tmp_path, cwd=tmp_path / sdist.name.removesuffix(".tar.gz"), PYTHONPATH=str(tools))
    (other,) = tmp_path.glob("*.whl")
    assert set(zipfile.ZipFile(other).namelist()) == set(zipfile.ZipFile(wheel).namelist())
