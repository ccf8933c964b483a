"""The ablation's script runs from end to end; its counts, which depend on no clock, are what they must be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import ablation

from mini_engine.catalog import get_model
from mini_engine.simulator.ablation import rungs
from tests.benchmarks.ablation_checks import check_counts, check_origin

ROOT = Path(__file__).resolve().parents[2]


def test_a_rehearsal_writes_both_parts(tmp_path):
    command = [sys.executable, "benchmarks/ablation.py", "--quick", "--repeats", "1", "--folder", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for part in ablation.PARTS:
        check_origin(read(tmp_path, part))
    engine = read(tmp_path, "engine")
    assert engine["model"] == "tiny-gqa"
    check_counts(engine)
    assert "+ prefix cache" in done.stdout


def test_a_rehearsal_does_not_overwrite_results():
    command = [sys.executable, "benchmarks/ablation.py", "--quick"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 2
    assert "a rehearsal is no result" in done.stderr


def test_on_the_engine_too_each_rung_changes_one_option_and_chunks_get_their_budget():
    model = SimpleNamespace(spec=get_model("smollm2-135m"))
    for before, after in zip(rungs(), rungs()[1:]):
        one, other = (ablation.options(model, rung) for rung in (before, after))
        differing = {name for name in one.__dataclass_fields__ if getattr(one, name) != getattr(other, name)}
        assert after.changed is not None
        assert differing == {after.changed[0]} | ({"max_num_batched_tokens"} if after.name == "+ chunking" else set())


def read(folder: Path, part: str) -> dict:
    return json.loads((folder / f"ablation_{part}.json").read_text(encoding="utf-8"))
