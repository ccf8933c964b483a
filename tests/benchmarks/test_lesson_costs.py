"""What a lesson costs is counted over the kernel and everything that it starts."""

from __future__ import annotations

import json
from pathlib import Path

import lesson_costs
import nbformat
import pytest

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "lesson_costs.json"
CHILD = """
import subprocess, sys
work = "x = bytearray(300_000_000)\\nfor _ in range(6_000_000): pass\\nimport time; time.sleep(0.5)"
"""


def notebook(*cells: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return lesson_costs.run_notebook(notebook("1"), tmp_path_factory.mktemp("idle"))


def test_a_childs_memory_and_work_count_after_it_has_ended(idle: dict, tmp_path: Path) -> None:
    row = lesson_costs.run_notebook(
        notebook(CHILD, "subprocess.run([sys.executable, '-c', work], check=True)"), tmp_path
    )
    assert 0 < idle["peak_bytes"] < 250e6
    assert row["peak_bytes"] > idle["peak_bytes"] + 290e6
    assert row["cpu_seconds"] > idle["cpu_seconds"]
    assert row["wall_seconds"] > 0.5


def test_memory_that_is_given_back_counts(idle: dict, tmp_path: Path) -> None:
    row = lesson_costs.run_notebook(
        notebook("x = bytearray(300_000_000)", "import time; time.sleep(0.3)", "del x"), tmp_path
    )
    assert row["peak_bytes"] > idle["peak_bytes"] + 290e6


@pytest.mark.skipif(not RESULTS.exists(), reason="not measured yet")
def test_every_lesson_is_in_the_stored_report() -> None:
    report = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert list(report["lessons"]) == [path.stem for path in sorted((lesson_costs.ROOT / "lessons").glob("*.ipynb"))]
    assert report["command"] == "python benchmarks/lesson_costs.py"
    for row in report["lessons"].values():
        assert row["peak_bytes"] > 50e6
        assert row["cpu_seconds"] > 0
