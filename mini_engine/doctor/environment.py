"""Python, packages, JupyterLab, its kernel and this package: do they come from one environment, and from the right one?"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlparse

from mini_engine.doctor.finding import Check

OLDEST_PYTHON = (3, 11)
PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of the mini_engine that runs."""


def check_python() -> Iterator[Check]:
    """Is this Python new enough?"""
    found = f"{sys.version.split()[0]}, {sys.executable}"
    if sys.version_info[:2] >= OLDEST_PYTHON:
        yield Check("python", "ok", found)
    else:
        needed = ".".join(map(str, OLDEST_PYTHON))
        yield Check("python", "fault", found, f"Python {needed} or newer is needed: make a new environment with it")


def requirements() -> list[str]:
    """What the package says it needs, from its metadata, or in a checkout that is not installed from pyproject.toml."""
    try:
        return metadata.requires("mini-engine") or []
    except metadata.PackageNotFoundError:
        import tomllib

        project = PACKAGE.parent / "pyproject.toml"
        return tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]


def check_packages() -> Iterator[Check]:
    """Is every package that the course needs here, in the version it was tested with? Triton is looked at apart."""
    from packaging.requirements import Requirement

    right = 0
    for line in requirements():
        needed = Requirement(line)
        if needed.name == "triton" or (needed.marker and not needed.marker.evaluate({"extra": ""})):
            continue
        remedy = f'"{sys.executable}" -m pip install "{needed.name}{needed.specifier}"'
        found = version(needed.name)
        if found is None:
            yield Check(f"package {needed.name}", "fault", "not installed", remedy)
        elif not needed.specifier.contains(found):
            tested = f"{found} installed, {needed.specifier} tested"
            yield Check(f"package {needed.name}", "warning", tested, f"if something fails: {remedy}")
        else:
            right += 1
    yield Check("packages", "ok", f"{right} in the versions the course was tested with")


def version(name: str) -> str | None:
    """The installed version of a package; None when it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def pip_install(names: list[str], *options: str) -> str:
    """The command that installs these packages of ours, in the versions that were tested, into this environment.

    `make setup` would not do: it does nothing as long as pyproject.toml is unchanged.
    """
    pins = [line.split(";")[0].strip() for line in requirements()]
    wanted = [f'"{pin}"' for pin in pins for name in names if pin.startswith(f"{name}==")]
    return " ".join([f'"{sys.executable}" -m pip install', *options, *wanted])


def check_notebook() -> Iterator[Check]:
    """Widgets move only when JupyterLab, kernel and ipywidgets are of one environment."""
    parts = ("jupyterlab", "ipykernel", "ipywidgets")
    missing = [name for name in parts if version(name) is None]
    if missing:
        yield Check("notebook", "fault", f"{', '.join(missing)} not in {sys.prefix}", pip_install(missing))
        return
    strangers = [name for name in parts if not _lies_in(metadata.distribution(name).locate_file(""), sys.prefix)]
    other = shutil.which("jupyter-lab")
    if strangers:
        found = f"{', '.join(strangers)} outside {sys.prefix}: sliders may not show"
        yield Check("notebook", "warning", found, pip_install(strangers, "--ignore-installed", "--no-deps"))
    elif other is not None and Path(other).parent.resolve() != Path(sys.executable).parent.resolve():
        found = f"`jupyter lab` starts {other}, which is of another environment: sliders may not show"
        yield Check("notebook", "warning", found, f'start it by `make lab` or "{sys.executable}" -m jupyterlab')
    else:
        yield Check("notebook", "ok", f"JupyterLab, kernel and ipywidgets are all in {sys.prefix}")


def _lies_in(path: object, folder: str) -> bool:
    return Path(str(path)).resolve().is_relative_to(Path(folder).resolve())


def check_kernelspec() -> Iterator[Check]:
    """Does the kernel `python3` of the notebooks start this Python?"""
    from jupyter_client.kernelspec import KernelSpecManager

    spec = KernelSpecManager().get_kernel_spec("python3")
    python = spec.argv[0]
    # A bare "python" means the interpreter that runs JupyterLab. Links are not followed: every venv links to one Python.
    if os.path.dirname(python) == "" or Path(python).parent.resolve() == Path(sys.executable).parent.resolve():
        yield Check("kernel", "ok", f"python3 starts {sys.executable}")
    else:
        if _lies_in(spec.resource_dir, sys.prefix):
            remedy = f'"{sys.executable}" -m ipykernel install --sys-prefix --name python3'
        else:  # it is found before the one of this environment
            remedy = f"remove {spec.resource_dir}"
        yield Check("kernel", "fault", f"python3 starts {python}, not {sys.executable}", remedy)


def check_install() -> Iterator[Check]:
    """Is the package that a notebook imports the one of this folder? An editable install goes on pointing where it was made."""
    try:
        installed = metadata.distribution("mini-engine")
    except metadata.PackageNotFoundError:
        remedy = f'in the project: "{sys.executable}" -m pip install --editable .'
        yield Check(
            "install", "fault", f"mini-engine is not installed in {sys.prefix}: notebooks cannot import it", remedy
        )
        return
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable"):
        yield Check("install", "ok", f"mini-engine {installed.version} from {PACKAGE}")
        return
    folder = Path(unquote(urlparse(origin["url"]).path))
    remedy = f'in the folder that you want: "{sys.executable}" -m pip install --editable .'
    if not (folder / "mini_engine").is_dir():
        yield Check("install", "fault", f"mini-engine was installed from {folder}, which is not there any more", remedy)
    elif (folder / "mini_engine").resolve() != PACKAGE:
        found = f"notebooks import mini_engine from {folder}, and this is {PACKAGE.parent}"
        yield Check("install", "warning", found, remedy)
    else:
        yield Check("install", "ok", f"editable, from {folder}")


def check_widgets() -> Iterator[Check]:
    """Does JupyterLab have the half of ipywidgets that draws sliders? Without it a panel is one line of text."""
    from packaging.requirements import Requirement

    if version("ipywidgets") is None:
        return  # check_notebook says so
    lines = [Requirement(line) for line in metadata.requires("ipywidgets") or []]
    needed = next(line for line in lines if line.name.replace("-", "_") == "jupyterlab_widgets")
    found = version(needed.name)
    extension = Path(sys.prefix, "share/jupyter/labextensions/@jupyter-widgets/jupyterlab-manager/package.json")
    remedy = f'"{sys.executable}" -m pip install --force-reinstall --no-deps "{needed.name}{needed.specifier}"'
    if found is None or not needed.specifier.contains(found):
        what = "not installed" if found is None else f"{found} installed, ipywidgets needs {needed.specifier}"
        yield Check("sliders", "fault", f"{needed.name} {what}: sliders do not show", remedy)
    elif not extension.is_file():
        yield Check(
            "sliders", "fault", f"JupyterLab's extension is not at {extension.parent}: sliders do not show", remedy
        )
    else:
        yield Check("sliders", "ok", f"{needed.name} {found}")


def check_nbgrader() -> Iterator[Check]:
    """For teachers: nbgrader needs its commands on the PATH, and changes every JupyterLab of its environment."""
    found = version("nbgrader")
    if found is None:
        yield Check("nbgrader", "ok", "not in this environment; only teachers need it, `make teach`")
        return
    command = shutil.which("nbgrader")
    if command is None or Path(command).parent.resolve() != Path(sys.executable).parent.resolve():
        what = f"{found} is here, but the command `nbgrader` is {command or 'not on the PATH'}"
        yield Check("nbgrader", "warning", what, f"source {Path(sys.prefix, 'bin', 'activate')}")
    else:
        yield Check("nbgrader", "ok", f"{found}: JupyterLab started from {sys.prefix} shows its menus")
