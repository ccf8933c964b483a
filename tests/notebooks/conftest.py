"""The nbval runs that tests share, and a small lesson of their own, built once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.notebooks.nbval_runs import HERE, Runs
from tools.build_lessons import main


@pytest.fixture(scope="session")
def runs() -> Runs:
    return Runs()


@pytest.fixture(scope="session")
def built_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixture lesson, stamped and built, in a folder of its own. Tests that change it take a copy."""
    root = tmp_path_factory.mktemp("fixture") / "root"
    shutil.copytree(HERE / "fixture", root)
    assert main(["--stamp"], root) == 0
    assert main([], root) == 0
    return root


@pytest.fixture
def lesson(built_fixture: Path, tmp_path: Path) -> Path:
    """A copy of the built fixture that a test may change."""
    return Path(shutil.copytree(built_fixture, tmp_path / "root"))
