"""Run notebooks with nbval in a process of its own, and share what those runs found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tools.lessons.execute import kernel_environment

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
Cells = list[dict[str, Any]]
SANITIZE = re.findall(r"(?m)^regex: (.*)\nreplace: (.*)$", (HERE / "sanitize.cfg").read_text(encoding="utf-8"))


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


def sanitized(text: str) -> str:
    """A text as nbval compares it."""
    for regex, replace in SANITIZE:
        text = re.sub(regex, replace, text)
    return text


def failures(cells: Cells) -> str:
    """The messages of the cells that did not pass; "" when all did and there was at least one."""
    assert cells
    return "\n".join(f"cell {n}: {c['message'][-3000:]}" for n, c in enumerate(cells) if c["outcome"] != "passed")


def runs_here(name: str) -> bool:
    """Whether all of a lesson runs: the two on kernels need Triton, and say so where it is missing."""
    return name[:2] not in ("10", "11") or find_spec("triton") is not None


class Runs:
    """A lesson's three nbval runs: stored outputs, solutions, and stubs under COURSE_STRICT=1. Each is made once, when a
    test first asks for it.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Cells] = {}

    def cells(self, run: str, name: str) -> Cells:
        if (run, name) not in self._made:
            path = ROOT / ("solutions" if run == "solutions" else "lessons") / f"{name}.ipynb"
            self._made[run, name] = run_nbval([path], strict=run != "lessons")[path]
        return self._made[run, name]
