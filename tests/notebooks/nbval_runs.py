"""Run notebooks with nbval in a process of its own, and share what those runs found."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tools.lessons.build import sources
from tools.lessons.execute import kernel_environment

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
Cells = list[dict[str, Any]]


def run_nbval(notebooks: Sequence[Path], strict: bool, sanitize: bool = True) -> dict[Path, Cells]:
    """What every code cell did, by notebook: `pytest --nbval`, as the README says, plus the recorder."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.json"
        command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "--nbval-cell-timeout=120", "-q"]
        command += ["-p", "tests.notebooks.nbval_recorder", "-p", "no:cacheprovider", "--color=no", f"--rootdir={ROOT}"]
        command += [f"--nbval-sanitize-with={HERE / 'sanitize.cfg'}"] if sanitize else []
        env = {**kernel_environment(strict), "NBVAL_RECORD": str(record)}
        done = subprocess.run(
            [*command, *map(str, notebooks)], cwd=ROOT, env=env, capture_output=True, text=True, timeout=1200
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return {Path(path): cells for path, cells in json.loads(record.read_text(encoding="utf-8")).items()}


def failures(cells: Cells) -> str:
    """The messages of the cells that did not pass; "" when all did and there was at least one."""
    assert cells
    return "\n".join(f"cell {n}: {c['message'][-3000:]}" for n, c in enumerate(cells) if c["outcome"] != "passed")


def runs_here(name: str) -> bool:
    """Whether all of a lesson runs: the two on kernels need Triton, and say so where it is missing."""
    return name[:2] not in ("10", "11") or find_spec("triton") is not None


class Runs:
    """The three nbval runs over all lessons, started together: stored outputs, solutions, and stubs under COURSE_STRICT=1."""

    def __init__(self) -> None:
        names = [path.stem for path in sources(ROOT) if runs_here(path.stem)]
        lessons = [ROOT / "lessons" / f"{name}.ipynb" for name in names]
        solutions = [ROOT / "solutions" / f"{name}.ipynb" for name in names]
        self._pool = ThreadPoolExecutor(2)
        self._runs: dict[str, Future[dict[Path, Cells]]] = {
            "lessons": self._pool.submit(run_nbval, lessons, strict=False),
            "solutions": self._pool.submit(run_nbval, solutions, strict=True),
            "stubs": self._pool.submit(run_nbval, lessons, strict=True),
        }

    def cells(self, run: str, name: str) -> Cells:
        folder = "solutions" if run == "solutions" else "lessons"
        return self._runs[run].result()[ROOT / folder / f"{name}.ipynb"]

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
