"""The kernels compile for three kinds of GPU without spills; what spoils them is reported, and so are names that are not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed here")

from mini_engine.kernels.compile_report import TARGETS, Row, chosen, faults, line
from mini_engine.kernels.machine_code import SHARED_LIMIT, Needs
from mini_engine.kernels.specialisations import TWELVE, every

FINE = Needs(registers=96, spills=0, stack=0, shared=38912, wide_loads=33, matrix_instructions=32)


def report(*arguments: str) -> tuple[int, list[dict]]:
    """Exit status and rows."""
    run = run_it(*arguments, "--json")
    return run.returncode, json.loads(run.stdout)


def run_it(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mini_engine.kernels.compile_report", *arguments]
    return subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)


@pytest.fixture(scope="module")
def twelve():
    """Exit status, and rows by name and target."""
    status, rows = report()
    return status, {(row["name"], row["target"]): row for row in rows}


def test_the_twelve_compile_for_every_target_without_a_fault(twelve):
    status, rows = twelve
    assert [(row["name"], row["target"], row["faults"]) for row in rows.values() if row["faults"]] == []
    assert status == 0
    assert list(rows) == [(name, target) for target in TARGETS for name in TWELVE]
    assert len(TWELVE) == 12
    for (name, target), row in rows.items():
        needs = row["needs"]
        assert row["kernel"].startswith(name.split("-")[0])
        assert 0 < needs["registers"] <= (512 if target == "gfx942" else 255)
        assert needs["shared"] <= SHARED_LIMIT[target]
        if name.startswith(("gqa", "mla")):
            # 32-bit numbers are multiplied exactly, which on NVIDIA is not the matrix instructions' work.
            assert (needs["matrix_instructions"] > 0) == ("fp32" not in name or target == "gfx942")


@pytest.mark.slow
def test_every_specialisation_compiles_for_every_target_without_a_fault():
    status, rows = report("--all")
    assert [(row["name"], row["target"], row["faults"]) for row in rows if row["faults"]] == []
    assert status == 0
    assert len(rows) == len(every()) * len(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_without_alignment_loads_are_narrow_and_the_report_fails(twelve, target):
    row = twelve[1]["gqa-bf16-d128", target]
    status, (spoiled,) = report("--targets", target, "--only", "gqa-bf16-d128", "--spoil", "alignment")
    assert status == 1
    assert row["needs"]["wide_loads"] > spoiled["needs"]["wide_loads"] == 0
    assert any("16 bytes" in fault for fault in spoiled["faults"])
    assert spoiled["needs"]["registers"] > row["needs"]["registers"]


@pytest.mark.parametrize(
    ("target", "name", "fault"),
    [("sm_80", "mla-bf16-h16", "spills"), ("sm_90", "mla-bf16-h16", "bytes of stack"), ("gfx942", "gqa-fp32-d128", "shared memory")],
)  # fmt: skip
def test_tiles_of_twice_the_tokens_fail(target, name, fault):
    status, (spoiled,) = report("--targets", target, "--only", name, "--spoil", "tiles")
    assert status == 1
    assert any(fault in each for each in spoiled["faults"])


def test_faults_of_a_kernel():
    def found(**changed):
        return Needs(**{**vars_of(FINE), **changed}).faults("sm_90", wide=True)

    assert found() == []
    assert found(spills=3) == ["3 spills"]
    assert found(stack=8) == ["8 bytes of stack"]
    assert found(shared=227 * 1024) == []
    assert found(shared=227 * 1024 + 1) == ["232449 bytes of shared memory, sm_90 has 232448"]
    assert found(wide_loads=0) == ["no load of 16 bytes a thread: addresses are not known to be aligned"]
    assert Needs(**{**vars_of(FINE), "wide_loads": 0}).faults("sm_90", wide=False) == []


def vars_of(needs: Needs) -> dict[str, int]:
    return {name: getattr(needs, name) for name in Needs.__dataclass_fields__}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--targets", "sm_91"], ["target 'sm_91'", "sm_80, sm_90, gfx942"]),
        (["--targets", ""], ["target ''", "sm_80, sm_90, gfx942"]),
        (["--only", "gqa-bf16-d123"], ["specialisation 'gqa-bf16-d123'", "gqa-bf16-d128"]),
        (["--spoil", "milk"], ["milk", "alignment"]),
    ],
)
def test_a_name_that_is_not_there(arguments, words):
    run = run_it(*arguments)
    assert run.returncode == 2
    assert run.stdout == ""
    last = run.stderr.splitlines()[-1]
    assert all(word in last for word in words)


def test_names_are_taken_once_each():
    assert chosen(" sm_90, sm_80,sm_90 ", TARGETS, "target") == ("sm_90", "sm_80")


def test_text_and_saved_code(tmp_path):
    run = run_it("--targets", "sm_90,gfx942", "--only", "combine-bf16-d128", "--save", str(tmp_path / "code"))
    assert run.returncode == 0
    lines = run.stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [
        ["combine-bf16-d128", "sm_90"],
        ["combine-bf16-d128", "gfx942"],
    ]
    assert lines[-1] == "2 compiled, 0 at fault"
    assert sorted(path.name for path in (tmp_path / "code").iterdir()) == [
        "combine-bf16-d128.gfx942.amdgcn", "combine-bf16-d128.sm_90.ptx", "combine-bf16-d128.sm_90.sass",
    ]  # fmt: skip
    assert ".target sm_90" in (tmp_path / "code/combine-bf16-d128.sm_90.ptx").read_text()
    assert "gfx942" in (tmp_path / "code/combine-bf16-d128.gfx942.amdgcn").read_text()


def test_faults_are_told_under_the_table():
    bad = Row("a", "a_kernel", "sm_80", 4, 2, Needs(255, 3, 8, 100, 1, 1), ["3 spills", "8 bytes of stack"])
    broken = Row("b", "b_kernel", "sm_80", 4, 2, None, ["does not compile: Error: why"])
    assert faults([bad, broken]).splitlines() == [
        "a on sm_80: 3 spills", "a on sm_80: 8 bytes of stack", "b on sm_80: does not compile: Error: why",
        "2 compiled, 2 at fault",
    ]  # fmt: skip
    assert line(bad).split() == ["sm_80", "4", "255", "3", "8", "100", "166,912", "1", "1"]
    assert line(broken).split() == ["sm_80", "4"]
