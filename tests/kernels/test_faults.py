"""Every named fault, planted in a copy of the kernels, must fail the check that the kernels themselves pass."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed here")

import mini_engine.kernels
from mini_engine.course.kernel_watch import StoredTwiceError
from mini_engine.kernels import WildAccessError
from tests.kernels import checks
from tests.kernels.faults import FAULTS, GQA, MLA, Fault
from tests.kernels.worlds import gqa_run, mla_run

pytestmark = [
    checks.needs_interpreter,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # NumPy's, of what the faults do
]
KERNELS = Path(mini_engine.kernels.__file__).parent
SHARED = ("_mode", "bf16_shim", "memory")  # Triton's mode and the interpreter are everybody's
LATENT = {"K": 1, "G": 3, "D": 48, "value_dim": 32}


def kernels_with(fault: Fault | None, folder: Path, name: str):
    """The kernels as a package of another name, from a copy with the fault in it."""
    target = folder / name
    shutil.copytree(KERNELS, target, ignore=shutil.ignore_patterns("__pycache__", *(f"{x}.py" for x in SHARED)))
    for path in target.glob("*.py"):
        text = path.read_text()
        if fault is not None and path.name in fault.files:
            assert text.count(fault.right) == 1, f"{fault.name}: {path.name} has not one {fault.right!r}"
            text = text.replace(fault.right, fault.wrong)
        path.write_text(re.sub(rf"mini_engine\.kernels\.(?!{'|'.join(SHARED)})", f"{name}.", text))
    return importlib.import_module(name)


@pytest.fixture
def planted(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    names = []

    def plant(fault):
        name = f"planted_{len(names)}_{abs(hash(tmp_path))}"
        names.append(name)
        return kernels_with(fault, tmp_path, name)

    yield plant
    for loaded in list(sys.modules):
        if loaded.split(".")[0] in names:
            del sys.modules[loaded]


def run_of(package, file: str):
    """A Run and the sizes to check it with."""
    if file == MLA:
        return mla_run(package.paged_mla_decode), LATENT
    return gqa_run(package.paged_gqa_decode), {"G": 3}


def check(name: str, run, shape) -> None:
    if name == "padded_latent":
        checks.check_ragged(run, K=1, G=3, D=40, value_dim=24)
    elif name == "int8":
        checks.check_ragged(run, int8=True, **shape)
        checks.check_reads(run, int8=True, **shape)
    else:
        getattr(checks, f"check_{name}")(run, **shape)


@pytest.mark.parametrize("file", [GQA, MLA])
def test_a_copy_without_a_fault_passes(planted, file):
    run, shape = run_of(planted(None), file)
    for name in ("ragged", "reads", "small_values", "unlike_heads", "low_scores", "any_order"):
        check(name, run, shape)
    if file == GQA:
        check("strides", run, shape)


CASES = [
    (fault, file)
    for fault in FAULTS
    for file in ([GQA] if fault.check == "window" else [GQA, MLA] if fault.files[0] not in (GQA, MLA) else fault.files)
]


@pytest.mark.parametrize(("fault", "file"), CASES, ids=lambda x: x if isinstance(x, str) else x.name)
def test_every_fault_is_noticed(planted, fault, file):
    package = planted(fault)
    with pytest.raises((AssertionError, WildAccessError, StoredTwiceError)):
        check(fault.check, *run_of(package, file))
