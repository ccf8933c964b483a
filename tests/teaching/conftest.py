"""nbgrader has an environment of its own, `.venv-teach`, which `make test` sets up: tests see it from here."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

TEACH = Path(__file__).resolve().parents[2] / ".venv-teach"
sys.path += map(str, TEACH.glob("lib/python*/site-packages"))  # behind everything else


@pytest.fixture(scope="session")
def nbgrader_python() -> Path:
    """The interpreter that runs nbgrader; without one the test is skipped, or fails where REQUIRE_NBGRADER is set."""
    if (TEACH / "bin" / "python").exists():
        return TEACH / "bin" / "python"
    if find_spec("nbgrader") is not None:
        return Path(sys.executable)
    if os.environ.get("REQUIRE_NBGRADER", "0") not in ("", "0"):
        pytest.fail("REQUIRE_NBGRADER is set, but there is no nbgrader: make teach")
    pytest.skip("nbgrader is not installed: make teach")
