"""pytest in a child of this process, which has imported the heavy libraries already: a run costs a second, not ten.

The child works in a copy of the project and imports `mini_engine` from there. This process must never import it.
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import shutil
import signal
import sys
import time
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COPIED = ("mini_engine", "tests")  # the rest of the project is linked to
MEMORY = 8 << 30  # bytes of data a run may hold; a fault may make a list grow for ever
OUT_OF_TIME = -1


def copy_project(folder: Path) -> None:
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.name not in COPIED and not path.name.startswith("."):
            (folder / path.name).symlink_to(path)


def warm_up() -> None:
    """Import what most tests need. Not Triton: tests/conftest.py chooses its mode first."""
    os.environ |= {"OMP_NUM_THREADS": "1", "MINI_ENGINE_MUTANT": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for name in ("hypothesis.stateful", "numpy.testing", "torch"):
        importlib.import_module(name)
    gc.freeze()


def run(folder: Path, files: Iterable[str], plugins: list[Any], log: Path, seconds: float) -> int:
    """The exit code of pytest over `files` of the copy, or OUT_OF_TIME."""
    sys.stdout.flush()
    if not (child := os.fork()):
        try:
            _pytest(folder, list(files), plugins, log)
        finally:
            os._exit(99)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            killed = os.WIFSIGNALED(status)
            return (
                OUT_OF_TIME if killed and os.WTERMSIG(status) == signal.SIGPROF else os.waitstatus_to_exitcode(status)
            )
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return OUT_OF_TIME


def _pytest(folder: Path, files: list[str], plugins: list[Any], log: Path) -> None:
    assert "mini_engine" not in sys.modules
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]  # the copy's own are imported
    sys.modules["__main__"] = types.ModuleType(
        "__main__"
    )  # a process that a test spawns must not begin with our own main
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder)
    sys.path = [str(folder), *(entry for entry in sys.path if Path(entry or ".").resolve() != ROOT)]
    options = [
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "_hypothesis_pytestplugin",
        "--hypothesis-seed=0",
        "-m",
        "not slow and not browser and not model",
    ]
    code = pytest.main([*options, *files], plugins=plugins)
    sys.stdout.flush()
    os._exit(int(code))


class QuickHypothesis:
    """No shrinking and no memory of failures: a fault is noticed in the same way every time."""

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate], database=None)
        settings.load_profile("mutants")
