"""A pytest plugin for nbval runs: writes what every cell did to the file named by NBVAL_RECORD.

{notebook: [{"outcome": "passed", "message": "", "outputs": [...]}, ...]}, one entry a code cell. With the outputs at hand,
one run answers both questions: are the stored outputs still right, and would a rebuild write the same notebook?
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

CELLS: dict[str, list[dict[str, Any]]] = {}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    result = yield
    report = result.get_result()
    if call.when == "call" and hasattr(item, "test_outputs"):
        cell = {"outcome": report.outcome, "message": str(report.longrepr or ""), "outputs": item.test_outputs or []}
        CELLS.setdefault(str(item.path), []).append(cell)


def pytest_sessionfinish() -> None:
    Path(os.environ["NBVAL_RECORD"]).write_text(json.dumps(CELLS), encoding="utf-8")
