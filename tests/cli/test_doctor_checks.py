"""What newcomers ran into, met by `mini-engine doctor`: each is found, and comes with its remedy."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from mini_engine.doctor import environment, files, machine
from mini_engine.doctor.finding import Check


def one(checks) -> Check:
    (check,) = checks
    assert (check.status == "ok") is (check.remedy == ""), "a finding comes with its remedy, and nothing else does"
    return check


# -- the package that notebooks import ---------------------------------------------------------------------------------------


@pytest.fixture
def installed_from(monkeypatch, tmp_path):
    """Pretend that mini-engine was installed, editable or not, from a folder."""

    def pretend(folder: Path | None, editable: bool = True) -> None:
        origin = {"url": f"file://{folder}", "dir_info": {"editable": True} if editable else {}}
        text = None if folder is None else json.dumps(origin)
        found = SimpleNamespace(version="0.1.0", read_text=lambda name: text if name == "direct_url.json" else None)
        monkeypatch.setattr(metadata, "distribution", lambda name: found)

    return pretend


def test_an_install_from_this_folder_or_from_a_wheel(installed_from) -> None:
    installed_from(environment.PACKAGE.parent)
    assert one(environment.check_install()).status == "ok"
    installed_from(None)
    assert one(environment.check_install()).status == "ok"
    installed_from(Path("/somewhere/else"), editable=False)
    assert one(environment.check_install()).status == "ok"


def test_an_editable_install_that_points_to_another_folder(installed_from, tmp_path) -> None:
    other = tmp_path / "another copy"
    (other / "mini_engine").mkdir(parents=True)
    installed_from(Path(str(other).replace(" ", "%20")))
    check = one(environment.check_install())
    assert check.status == "warning"
    assert str(other) in check.found
    assert "pip install --editable ." in check.remedy


def test_an_editable_install_whose_folder_was_moved(installed_from, tmp_path) -> None:
    installed_from(tmp_path / "gone")
    check = one(environment.check_install())
    assert check.status == "fault"
    assert "not there any more" in check.found


def test_a_package_that_is_not_installed(monkeypatch) -> None:
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    check = one(environment.check_install())
    assert check.status == "fault"
    assert "-m pip install --editable ." in check.remedy


# -- sliders -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", [None, "1.0.0"])
def test_the_browsers_half_of_ipywidgets(monkeypatch, found) -> None:
    assert one(environment.check_widgets()).status == "ok"
    monkeypatch.setattr(environment, "version", lambda name: found if name.startswith("jupyterlab") else "8.1.9")
    check = one(environment.check_widgets())
    assert check.status == "fault"
    assert "sliders do not show" in check.found
    assert '"jupyterlab_widgets' in check.remedy


def test_an_extension_that_was_not_copied(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(environment.sys, "prefix", str(tmp_path))
    check = one(environment.check_widgets())
    assert check.status == "fault"
    assert str(tmp_path) in check.found


# -- nbgrader ----------------------------------------------------------------------------------------------------------------


def test_nbgrader_whose_commands_are_not_found(monkeypatch) -> None:
    monkeypatch.setattr(environment, "version", lambda name: None)
    assert one(environment.check_nbgrader()).status == "ok"
    monkeypatch.setattr(environment, "version", lambda name: "0.9.6")
    for command in (None, "/usr/bin/nbgrader"):
        monkeypatch.setattr(shutil, "which", lambda name, command=command: command)
        check = one(environment.check_nbgrader())
        assert check.status == "warning"
        assert check.remedy.endswith("activate")
    monkeypatch.setattr(shutil, "which", lambda name: str(Path(sys.executable).parent / name))
    assert one(environment.check_nbgrader()).status == "ok"


# -- the machine -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("available", "limit", "used", "free"),
    [("8388608", "max", "5", 2**33), ("8388608", str(2**31), str(2**30), 2**30), ("1024", str(2**40), "0", 2**20)],
)
def test_memory_is_counted_within_machine_and_container(monkeypatch, available, limit, used, free) -> None:
    texts = {"meminfo": f"MemTotal: 9 kB\nMemAvailable: {available} kB\n", "memory.max": limit, "memory.current": used}
    monkeypatch.setattr(machine.Path, "read_text", lambda self: texts[self.name])
    assert machine.free_memory() == free
    check = one(machine.check_memory())
    assert (check.status == "ok") is (free > machine.KERNEL_MEMORY)


def test_the_memory_asked_for_holds_every_lesson() -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "results" / "lesson_costs.json"
    largest = max(row["peak_bytes"] for row in json.loads(path.read_text())["lessons"].values())
    assert largest < machine.KERNEL_MEMORY < 2 * largest


def test_memory_that_nobody_tells_is_not_judged(monkeypatch) -> None:
    monkeypatch.setattr(machine, "free_memory", lambda: None)
    assert list(machine.check_memory()) == []


@pytest.mark.parametrize(("free", "status"), [(2**28, "warning"), (2**33, "ok")])
def test_a_full_disk(monkeypatch, free, status) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    assert one(machine.check_disk()).status == status


def test_a_taken_port(monkeypatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        monkeypatch.setattr(machine, "PORT", other.getsockname()[1])
        assert one(machine.check_port()).status == "ok"
        other.listen()
        check = one(machine.check_port())
    assert check.status == "warning"
    assert "make lab ARGS=" in check.remedy


@pytest.mark.parametrize(
    ("listed", "status"), [("", "warning"), ("\n", "warning"), ("Noto Sans CJK SC,Noto Sans CJK\n", "ok")]
)
def test_fonts_for_chinese(monkeypatch, listed, status) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: SimpleNamespace(stdout=listed))
    assert one(machine.check_fonts()).status == status
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert list(machine.check_fonts()) == []


# -- what the lessons read ---------------------------------------------------------------------------------------------------


@pytest.fixture
def data(monkeypatch, tmp_path):
    """A copy of the tables, traces and texts, for damaging."""
    from mini_engine.catalog import tables
    from mini_engine.data_files import data_dir

    for name in ("traces", "text"):
        shutil.copytree(data_dir() / name, tmp_path / name)
    for name in ("models.csv", "gpus.csv"):
        shutil.copy(data_dir() / name, tmp_path / name)
    for module in ("mini_engine.doctor.files", "mini_engine.catalog.tables", "mini_engine.workload"):
        monkeypatch.setattr(f"{module}.data_dir", lambda: tmp_path)
    caches = [tables._models, tables._gpus]
    for cache in caches:
        cache.cache_clear()
    yield tmp_path
    for cache in caches:
        cache.cache_clear()


def test_tables_that_can_be_read(data) -> None:
    check = one(files.check_tables())
    assert (check.status, check.found.split(" in ")[1]) == ("ok", str(data))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("models.csv", b"name,source\n"),
        ("gpus.csv", b"\xff\xfe\x00"),
        ("traces/synthetic_azure_conv.csv", b"cut in the mid"),
        ("text/moby_dick_61.txt", b"\xff\xff"),
        ("models.csv", None),
    ],
)
def test_a_damaged_or_missing_file(data, name, content) -> None:
    if content is None:
        (data / name).unlink()
    else:
        (data / name).write_bytes(content)
    check = one(files.check_tables())
    assert (check.name, check.status) == ("tables", "fault")
    assert "git checkout -- data" in check.remedy
