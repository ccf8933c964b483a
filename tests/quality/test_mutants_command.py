"""tools/mutants.py says at once what it cannot do, before it measures for minutes which test executes what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["random", "--count", "0"], "--count 0: at least 1"),
        (["random", "--count", "-3"], "--count -3: at least 1"),
        (["named", "no such fault"], "no fault's name contains no such fault"),
        (["random", "no such fault"], "no fault's name contains no such fault"),
        (["both"], "invalid choice"),
    ],
)
def test_a_request_for_nothing_is_refused(words: list[str], said: str) -> None:
    command = [sys.executable, "tools/mutants.py", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert said in done.stderr
