"""`mini-engine doctor`: is everything here that the course needs, and what to do about what is not."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from mini_engine import __version__

OLDEST_PYTHON = (3, 11)
Status = Literal["ok", "warning", "fault"]


@dataclass(frozen=True)
class Check:
    """One finding. A fault stops something that is needed; a warning does not. Both name their remedy."""

    name: str
    status: Status
    found: str
    remedy: str = ""


def examine() -> list[Check]:
    """Run every check. A check that cannot even run is itself a fault."""
    checks: list[Check] = []
    for check in (
        check_python,
        check_packages,
        check_notebook,
        check_kernelspec,
        check_torch,
        check_triton,
        check_models,
    ):
        try:
            checks += check()
        except Exception as error:
            name = check.__name__.removeprefix("check_")
            checks.append(Check(name, "fault", f"{type(error).__name__}: {error}", "install again: `make setup`"))
    return checks


def report(checks: list[Check], *, as_json: bool = False) -> str:
    """The findings as lines of text, or as a JSON object."""
    faults = sum(check.status == "fault" for check in checks)
    warnings = sum(check.status == "warning" for check in checks)
    if as_json:
        return json.dumps({"ok": faults == 0, "version": __version__, "checks": [asdict(c) for c in checks]}, indent=2)
    lines = []
    for check in checks:
        lines.append(f"{check.status:>7}  {check.name}: {check.found}")
        if check.remedy:
            lines.append(f"{'':>7}  -> {check.remedy}")
    plural = [f"{n} {word}{'' if n == 1 else 's'}" for n, word in ((faults, "fault"), (warnings, "warning"))]
    return "\n".join([*lines, "", " and ".join(plural)])


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

        project = Path(__file__).resolve().parents[1] / "pyproject.toml"
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
        found = _version(needed.name)
        if found is None:
            yield Check(f"package {needed.name}", "fault", "not installed", remedy)
        elif not needed.specifier.contains(found):
            tested = f"{found} installed, {needed.specifier} tested"
            yield Check(f"package {needed.name}", "warning", tested, f"if something fails: {remedy}")
        else:
            right += 1
    yield Check("packages", "ok", f"{right} in the versions the course was tested with")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_notebook() -> Iterator[Check]:
    """Widgets move only when JupyterLab, kernel and ipywidgets are of one environment."""
    parts = ("jupyterlab", "ipykernel", "ipywidgets")
    missing = [name for name in parts if _version(name) is None]
    if missing:
        yield Check("notebook", "fault", f"{', '.join(missing)} not in {sys.prefix}", "install again: `make setup`")
        return
    strangers = [name for name in parts if not _lies_in(metadata.distribution(name).locate_file(""), sys.prefix)]
    other = shutil.which("jupyter-lab")
    if strangers:
        found = f"{', '.join(strangers)} outside {sys.prefix}: sliders may not show"
        yield Check("notebook", "warning", found, "install again: `make setup`")
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
        remedy = f'"{sys.executable}" -m ipykernel install --sys-prefix --name python3; or remove {spec.resource_dir}'
        yield Check("kernel", "fault", f"python3 starts {python}, not {sys.executable}", remedy)


def usable_cpus() -> int:
    """Processors this process may use: its affinity, and in a container the quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(count, max(1, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file, or "max": no quota
        return count


def check_torch() -> Iterator[Check]:
    """Does torch start more threads than there are processors, and does it see the GPU?"""
    import torch

    threads, cpus = torch.get_num_threads(), usable_cpus()
    setting = os.environ.get("OMP_NUM_THREADS", "not set")
    found = f"{threads} for {cpus} usable CPUs, OMP_NUM_THREADS {setting}"
    if threads <= cpus:
        yield Check("threads", "ok", found)
    else:
        found += ": threads that wait for a processor make every step slow"
        yield Check("threads", "warning", found, f"set OMP_NUM_THREADS={cpus}")

    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        yield Check("cuda", "ok", f"torch {torch.__version__} on {names}")
    elif shutil.which("nvidia-smi"):
        found = f"there is an NVIDIA driver, but torch {torch.__version__} does not see a GPU"
        yield Check("cuda", "warning", found, "install a CUDA build of torch that fits the driver")
    else:
        yield Check("cuda", "ok", f"no GPU: torch {torch.__version__} runs on the CPU, and so does the whole course")


def check_triton() -> Iterator[Check]:
    """Is Triton here, and how will the kernels run?"""
    version = _version("triton")
    if version is None and sys.platform != "linux":
        yield Check("triton", "ok", f"not made for {sys.platform}: everything but the Triton kernels runs")
    elif version is None:
        pin = next((line.split(";")[0] for line in requirements() if line.startswith("triton")), "triton")
        yield Check("triton", "warning", "not installed", f'"{sys.executable}" -m pip install "{pin}"')
    else:
        import torch

        if os.environ.get("TRITON_INTERPRET") == "1":
            mode = "interpreter (TRITON_INTERPRET=1)"
        elif torch.cuda.is_available():
            mode = "compiled for the GPU"
        else:
            mode = "no GPU: kernels run in the interpreter, TRITON_INTERPRET=1"
        yield Check("triton", "ok", f"{version}, {mode}")


def check_models() -> Iterator[Check]:
    """Are the small models and the real one here, with sound headers?"""
    from mini_engine.models import ModelNotFoundError, open_checkpoint

    reinstall = "install mini-engine again; in a checkout: `git checkout -- data/models`"
    needed: list[tuple[str, Status, str]] = [
        ("tiny-gqa", "fault", reinstall),
        ("tiny-mla", "fault", reinstall),
        ("smollm2-135m", "warning", "`mini-engine download smollm2-135m` (93 MB)"),
    ]
    for name, if_missing, remedy in needed:
        try:
            yield Check(
                f"model {name}", "ok", str(open_checkpoint(name).path)
            )  # a look at the headers finds a cut file
        except ModelNotFoundError:
            yield Check(f"model {name}", if_missing, "not there", remedy)
        except ValueError as error:
            yield Check(f"model {name}", "fault", str(error), remedy)
