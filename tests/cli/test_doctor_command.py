"""mini-engine doctor: each fault is found and comes with its remedy; warnings do not fail."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from mini_engine import doctor
from mini_engine.doctor import Check, environment, files, machine


def only(checks):
    """The one finding that is not ok."""
    (check,) = (check for check in checks if check.status != "ok")
    assert check.remedy, "a finding without a remedy"
    return check


@pytest.fixture
def versions(monkeypatch):
    """Pretend that packages have other versions; None means not installed."""
    pretended: dict[str, str | None] = {}
    real = metadata.version

    def version(name):
        if name not in pretended:
            return real(name)
        if pretended[name] is None:
            raise metadata.PackageNotFoundError(name)
        return pretended[name]

    monkeypatch.setattr(metadata, "version", version)
    return pretended


def test_this_environment_has_no_fault_of_its_own():
    faults = [check for check in doctor.examine() if check.status == "fault" and not check.name.startswith("model ")]
    assert faults == []


# -- the command ------------------------------------------------------------------------------------------------------------

OK, WARNING, FAULT = (
    Check("a", "ok", "fine"),
    Check("b", "warning", "odd", "mend it"),
    Check("c", "fault", "bad", "do so"),
)


@pytest.mark.parametrize(
    ("checks", "status", "end"),
    [
        ([OK], 0, "0 faults and 0 warnings"),
        ([OK, WARNING, WARNING], 0, "0 faults and 2 warnings"),
        ([OK, WARNING, FAULT], 1, "1 fault and 1 warning"),
    ],
)
def test_only_faults_fail(run, monkeypatch, checks, status, end):
    monkeypatch.setattr(doctor, "examine", lambda: checks)
    result = run("doctor")
    assert (result.status, result.err) == (status, "")
    assert result.out.splitlines()[-1] == end
    for check in checks:
        assert f"{check.name}: {check.found}" in result.out
        assert check.remedy in result.out
    answer = json.loads(run("doctor", "--json").out)
    assert answer["ok"] == (status == 0)
    assert [check["status"] for check in answer["checks"]] == [check.status for check in checks]


def test_a_check_that_crashes_is_a_fault_and_the_others_still_run(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(files, "check_models", lambda: [OK])
    checks = doctor.examine()
    crashed = next(check for check in checks if check.name == "torch")
    assert crashed.status == "fault"
    assert "torch" in crashed.found
    assert crashed.remedy
    assert checks[-1] is OK


# -- each check -----------------------------------------------------------------------------------------------------------


def test_an_old_python(monkeypatch):
    monkeypatch.setattr(environment, "OLDEST_PYTHON", (99, 0))
    check = only(environment.check_python())
    assert check.status == "fault"
    assert "99.0" in check.remedy


def test_every_pinned_package_is_looked_at(versions):
    pins = {line.split("==")[0] for line in environment.requirements() if "extra ==" not in line} - {"triton"}
    assert len(pins) > 5
    versions |= dict.fromkeys(pins)
    missing = [check for check in environment.check_packages() if check.status == "fault"]
    assert {check.name.removeprefix("package ") for check in missing} == pins


def test_a_missing_package(versions):
    versions["numpy"] = None
    check = only(environment.check_packages())
    assert (check.name, check.status, check.found) == ("package numpy", "fault", "not installed")
    assert "-m pip install" in check.remedy
    assert "numpy==" in check.remedy


def test_another_version_is_a_warning(versions):
    versions["numpy"] = "1.0"
    check = only(environment.check_packages())
    assert (check.name, check.status) == ("package numpy", "warning")
    assert check.found.startswith("1.0 installed, ==")


def test_a_local_build_of_the_right_version_is_right(versions):
    pinned = next(line for line in environment.requirements() if line.startswith("torch=="))
    versions["torch"] = pinned.removeprefix("torch==") + "+cu130"
    assert all(check.status == "ok" for check in environment.check_packages())


def test_requirements_are_read_without_an_installed_package(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert any(line.startswith("torch==") for line in environment.requirements())


@pytest.mark.parametrize("name", ["jupyterlab", "ipykernel", "ipywidgets"])
def test_a_part_of_the_notebook_is_missing(versions, name):
    versions[name] = None
    check = only(environment.check_notebook())
    assert check.status == "fault"
    assert name in check.found
    assert f'-m pip install "{name}==' in check.remedy


def test_jupyterlab_of_another_environment(monkeypatch, tmp_path):
    monkeypatch.setattr(environment.shutil, "which", lambda name: str(tmp_path / name))
    check = only(environment.check_notebook())
    assert check.status == "warning"
    assert str(tmp_path) in check.found
    monkeypatch.setattr(environment.shutil, "which", lambda name: None)
    assert [check.status for check in environment.check_notebook()] == ["ok"]


def test_a_part_of_the_notebook_from_elsewhere(monkeypatch, tmp_path):
    real = metadata.distribution

    def distribution(name):
        return SimpleNamespace(locate_file=lambda _: tmp_path, version="1") if name == "ipywidgets" else real(name)

    monkeypatch.setattr(metadata, "distribution", distribution)
    check = only(environment.check_notebook())
    assert check.status == "warning"
    assert check.found.startswith("ipywidgets outside")
    assert '--ignore-installed --no-deps "ipywidgets==' in check.remedy, "pip would be content with the other one"


def write_kernel(folder, python):
    folder = folder / "kernels" / "python3"
    folder.mkdir(parents=True)
    argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "x", "language": "python"}))


def test_a_kernel_of_another_environment(monkeypatch, tmp_path):
    # the interpreter both environments link to is the same file: links must not be followed
    other = tmp_path / "other" / "bin"
    other.mkdir(parents=True)
    (other / "python").symlink_to(sys.executable)
    write_kernel(tmp_path / "jupyter", str(other / "python"))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    check = only(environment.check_kernelspec())
    assert check.status == "fault"
    assert str(other / "python") in check.found
    assert check.remedy == f"remove {tmp_path / 'jupyter' / 'kernels' / 'python3'}", (
        "another one would not be found first"
    )


def test_a_kernel_of_this_environment_that_starts_another(monkeypatch, tmp_path):
    write_kernel(tmp_path / "jupyter", "/other/bin/python")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setattr(environment.sys, "prefix", str(tmp_path))
    check = only(environment.check_kernelspec())
    assert check.remedy.endswith("-m ipykernel install --sys-prefix --name python3")


@pytest.mark.parametrize("python", ["python", sys.executable])
def test_a_kernel_of_this_environment(monkeypatch, tmp_path, python):
    write_kernel(tmp_path / "jupyter", python)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    assert [check.status for check in environment.check_kernelspec()] == ["ok"]


def test_more_threads_than_processors(monkeypatch):
    monkeypatch.setattr("torch.get_num_threads", lambda: 8)
    monkeypatch.setattr(machine, "usable_cpus", lambda: 2)
    check = only(machine.check_torch())
    assert (check.name, check.status) == ("threads", "warning")
    assert check.found.startswith("8 for 2 usable CPUs")
    assert "OMP_NUM_THREADS=2" in check.remedy


@pytest.mark.parametrize(
    ("quota", "cpus"), [("max 100000", 8), ("150000 100000", 2), ("10000 100000", 1), ("900000 100000", 8)]
)
def test_processors_are_counted_within_affinity_and_quota(monkeypatch, quota, cpus):
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(machine.Path, "read_text", lambda self: quota)
    assert machine.usable_cpus() == cpus


def test_a_driver_without_a_gpu_for_torch(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)
    monkeypatch.setattr(environment.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    check = only(machine.check_torch())
    assert (check.name, check.status) == ("cuda", "warning")


@pytest.mark.parametrize(("platform", "status"), [("linux", "warning"), ("darwin", "ok")])
def test_triton_is_missed_on_linux_only(versions, monkeypatch, platform, status):
    versions["triton"] = None
    monkeypatch.setattr(machine.sys, "platform", platform)
    (check,) = machine.check_triton()
    assert check.status == status
    assert ("triton==" in check.remedy) == (platform == "linux")


def test_the_mode_of_triton(versions, monkeypatch):
    versions["triton"] = "3.7.1"
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    (check,) = machine.check_triton()
    assert "interpreter (TRITON_INTERPRET=1)" in check.found
    monkeypatch.delenv("TRITON_INTERPRET")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    (check,) = machine.check_triton()
    assert "compiled for the GPU" in check.found


def test_models_missing_and_damaged(monkeypatch):
    from mini_engine.models import CorruptModelError, ModelNotFoundError

    state: dict[str, Exception | None] = {"tiny-gqa": None, "tiny-mla": None, "smollm2-135m": None}

    def open_checkpoint(name):
        if state[name] is not None:
            raise state[name]
        return SimpleNamespace(path=f"/models/{name}")

    monkeypatch.setattr("mini_engine.models.open_checkpoint", open_checkpoint)
    assert [check.found for check in files.check_models()] == [f"/models/{name}" for name in state]

    state["smollm2-135m"] = ModelNotFoundError("gone")
    check = only(files.check_models())
    assert (check.status, check.found) == ("warning", "not there")
    assert "-m mini_engine download smollm2-135m" in check.remedy

    state["smollm2-135m"] = CorruptModelError("cut after 5 bytes")
    check = only(files.check_models())
    assert (check.status, check.found) == ("fault", "cut after 5 bytes")

    state["smollm2-135m"] = None
    for name in ("tiny-gqa", "tiny-mla"):
        state[name] = ModelNotFoundError("gone")
        check = only(files.check_models())
        assert (check.name, check.status) == (f"model {name}", "fault")
        state[name] = None
