"""The tables of measurements in the pages say what the stored results say."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tools import results
from tools.marks import between

ROOT = Path(__file__).resolve().parents[2]


def test_the_tables_are_up_to_date(capsys) -> None:
    assert results.main(["--check"]) == 0, f"run python tools/results.py: {capsys.readouterr().out}"


def test_every_table_names_command_machine_and_date() -> None:
    for make in results.RESULTS:
        last = make(ROOT).rpartition("\n\n")[2]
        assert "`python benchmarks/" in last
        assert " cores of " in last
        assert re.search(r", \d{4}-\d\d-\d\d", last)


def changed(folder: Path, name: str, change) -> Path:
    """A copy of the benchmarks' folder in which one report says something else."""
    shutil.copytree(ROOT / "benchmarks", folder / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "benchmarks" / "results" / f"{name}.json"
    report = json.loads(path.read_text())
    change(report)
    path.write_text(json.dumps(report))
    return folder


def test_a_changed_figure_changes_its_table(tmp_path: Path) -> None:
    def slower(report):
        report["workloads"]["W3"]["peers"]["mini_engine"]["tokens_per_cpu_second"] = 7.25

    other = results.engine_cpu(changed(tmp_path, "engine_cpu", slower))
    lines = set(other.splitlines()) - set(results.engine_cpu(ROOT).splitlines())
    assert [line.split(" | ")[1] for line in lines] == ["7.25"]


def test_marks_must_be_there_once_and_in_order() -> None:
    assert between("a\n<!-- x -->\nold\n<!-- /x -->\nb", "x", "new") == "a\n<!-- x -->\nnew\n<!-- /x -->\nb"
    for page in ("", "<!-- x -->", "<!-- /x --> <!-- x -->", "<!-- x --> <!-- /x --> <!-- x -->"):
        with pytest.raises(ValueError, match="each once"):
            between(page, "x", "new")
